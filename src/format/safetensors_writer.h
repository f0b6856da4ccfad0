// Writes safetensors files. Tensors are laid out by descending element size, then by name, and the
// header is padded with spaces to a multiple of 8, so every tensor is aligned to its element size.
// Errors: invalid_argument for what the format forbids; exhausted for a full disk. After an error
// the target is untouched and nothing is left behind. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/output_file.h"
#include "format/safetensors.h"

namespace trine {

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // row-major, outermost first
};

// Streaming writer of one file.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::vector<SafetensorsSpec> tensors,
                                          const StringPairs& metadata);

  // The order in which append() wants the tensors.
  std::span<const SafetensorsSpec> order() const { return tensors_; }

  // The next bytes of tensor `name`, which must be the first one that is not complete. Tensors
  // without bytes are skipped.
  Status append(std::string_view name, std::span<const std::byte> bytes);
  Status finish();

 private:
  SafetensorsWriter(OutputFile file, std::vector<SafetensorsSpec> tensors,
                    std::vector<std::uint64_t> sizes);
  void skip_empty();

  OutputFile file_;
  std::vector<SafetensorsSpec> tensors_;
  std::vector<std::uint64_t> sizes_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;
};

// One file; `tensors` carry their data.
Status write_safetensors(const std::string& path, std::span<const TensorInfo> tensors,
                         const StringPairs& metadata);

// model.safetensors in `directory` when everything fits in `max_shard_bytes`, else shards of at
// most that size (a larger tensor gets its own) named model-00001-of-0000N.safetensors and, last,
// the index. A directory that already holds model.safetensors gets no shards, because readers would
// prefer the old file.
Status write_safetensors_sharded(const std::string& directory, std::span<const TensorInfo> tensors,
                                 const StringPairs& metadata, std::uint64_t max_shard_bytes);

}  // namespace trine
