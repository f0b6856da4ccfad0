// The neutral view of a set of weights that every file format gives: named tensors in mapped
// memory.
//
// Shapes are row-major with the outermost dimension first, as safetensors writes them; GGUF's
// reversed order is undone by its reader. The data of a quantized tensor is a sequence of whole
// blocks along the last dimension. Names, shapes and sizes were checked against each other by the
// reader; values were not. Thread rule: immutable after construction; any number of readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "platform/mapped_file.h"
#include "tensor/dtype.h"

namespace trine {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // row-major, outermost first; empty for a scalar
  std::span<const std::byte> data;  // in the mapped file, not necessarily aligned to the element

  // Product of the shape; 1 for a scalar. The reader has checked that it fits 63 bits.
  std::int64_t num_elems() const;
};

// "[4096, 576]", for messages.
std::string shape_text(std::span<const std::int64_t> shape);

class Checkpoint {
 public:
  Checkpoint() = default;
  // Move only: the index views the names.
  ~Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  // `source` is named in errors. `keep_alive` owns the memory that the tensors view. Errors:
  // corrupt_data for a name that occurs twice.
  static Result<Checkpoint> build(std::string source, std::vector<TensorInfo> tensors,
                                  std::vector<std::shared_ptr<const void>> keep_alive);

  // The files that the tensors lie in, for release_pages().
  void set_files(std::vector<std::shared_ptr<const MappedFile>> files) {
    files_ = std::move(files);
  }

  // Gives the memory of the mapped files back to the system. The tensors stay valid: what is read
  // again comes from the page cache or the disk.
  void release_pages() const;

  const std::string& source() const { return source_; }

  std::span<const TensorInfo> tensors() const { return tensors_; }

  // nullptr when there is no tensor of that name. The pointer lives as long as this Checkpoint.
  const TensorInfo* find(std::string_view name) const;

  // find() for a tensor that must exist. Errors: corrupt_data naming the tensor and the source.
  Result<const TensorInfo*> require(std::string_view name) const;

 private:
  std::string source_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys view tensors_[i].name
  std::vector<std::shared_ptr<const void>> keep_alive_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

// Ok when the tensor can be turned into floats. Errors: unsupported, naming the tensor and its
// type, and for codebook types what to convert the file to.
Status check_decodable(const TensorInfo& tensor);

}  // namespace trine
