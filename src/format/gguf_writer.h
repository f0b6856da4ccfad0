// Writes GGUF version 3 files, streaming: the header is complete when the writer is created, then
// the tensors' bytes follow in the order of `tensors`, in pieces of any size. Whatever it writes,
// open_gguf reads back equal. The alignment is the u32 metadata key general.alignment, 32 when
// absent. Errors: invalid_argument for what the format or the reader's limits forbid; exhausted for
// a full disk. After an error the target file is untouched and nothing is left behind. Thread rule:
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"
#include "format/gguf.h"
#include "format/output_file.h"

namespace trine {

struct GgufTensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // row-major, outermost first; reversed in the file
};

// Everything before the tensor data, including the padding.
Result<std::string> encode_gguf_header(std::span<const GgufMetadata::Pair> metadata,
                                       std::span<const GgufTensorSpec> tensors);

class GgufWriter {
 public:
  static Result<GgufWriter> create(const std::string& path,
                                   std::span<const GgufMetadata::Pair> metadata,
                                   std::span<const GgufTensorSpec> tensors);

  // The next bytes of tensor `name`, which must be the first one that is not complete.
  Status append(std::string_view name, std::span<const std::byte> bytes);
  // All tensors must be complete. The file appears under its name.
  Status finish();

 private:
  struct Pending {
    std::string name;
    std::uint64_t size;
  };

  GgufWriter(OutputFile file, std::vector<Pending> tensors, std::uint64_t alignment)
      : file_(std::move(file)), tensors_(std::move(tensors)), alignment_(alignment) {}

  OutputFile file_;
  std::vector<Pending> tensors_;
  std::uint64_t alignment_;
  std::size_t current_ = 0;    // first incomplete tensor
  std::uint64_t written_ = 0;  // bytes of it so far
};

// The whole file at once; `tensors` carry their data.
Status write_gguf(const std::string& path, std::span<const GgufMetadata::Pair> metadata,
                  std::span<const TensorInfo> tensors);

}  // namespace trine
