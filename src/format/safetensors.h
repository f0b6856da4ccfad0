// safetensors files: reader over mapped memory (single file or shards with an index) and writer.
//
// Layout: u64 header size N, N bytes of JSON, then the buffer. Each JSON entry gives dtype, shape
// and data_offsets [begin, end) in the buffer. The tensors must tile the buffer exactly. Shards:
// model.safetensors.index.json maps each tensor name to a file of the same directory; every name
// occurs exactly once, in the file that the index says.
// Limits: header 100,000,000 bytes, JSON depth 8, names 64 KiB, tensors 1e6.
// Errors: corrupt_data for a broken file, unsupported for element types without a DType and for
// pickle files, not_found for a missing shard. Each names the tensor or field, the value and the
// limit. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"

namespace trine {

using StringPairs = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsFile {
  std::vector<TensorInfo> tensors;  // in buffer order; data views the bytes given
  StringPairs metadata;             // the optional __metadata__ entry
};

// One file from memory.
Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes);

// The weight_map of an index: (tensor name, file name) in file order. File names are checked to be
// plain.
Result<StringPairs> parse_safetensors_index(std::string_view json);

struct SafetensorsShard {
  std::string file;
  std::vector<TensorInfo> tensors;
};

// The tensors of all shards, after checking that each name of the map occurs exactly once, in its
// file, and that no shard has another one.
Result<std::vector<TensorInfo>> join_safetensors_shards(const StringPairs& weight_map,
                                                        std::vector<SafetensorsShard> shards);

// A .safetensors file, or a directory: model.safetensors if there, else
// model.safetensors.index.json with its shards, else the only *.safetensors file in it.
Result<Checkpoint> open_safetensors(const std::string& path);

// The name that safetensors uses for a DType ("BF16"); empty when it has none (GGUF blocks).
std::string_view safetensors_dtype_name(DType type);

}  // namespace trine
