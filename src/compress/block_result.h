// What quantizing a block gave, apart from the model it came from: kept in a file until the output
// is written, so that an interrupted run goes on where it was and memory holds one block.
//
// The file is a safetensors file of our own, read back by this code only. Thread rule: plain
// values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "compress/block_weights.h"

namespace trine {

struct LinearResult {
  std::string module;
  std::int64_t first_row = 0;  // of a fused tensor
  std::int64_t rows = 0, cols = 0;
  bool plain_activations = false;
  std::optional<QuantizedWeights> quantized;
  std::vector<float> kept;  // [rows, cols], when it stays in full precision but was scaled
  ModuleReport report;
};

struct BlockResult {
  std::vector<LinearResult> linears;
  std::vector<std::pair<std::string, std::vector<float>>> folded;  // by the tensor's name
};

// Moves codes out of the block.
BlockResult take_result(BlockWeights& block);
// Makes a freshly loaded block the one that the result was taken from. Errors: corrupt_data when
// they do not fit.
Status apply_result(ThreadTeam& team, const BlockResult& result, BlockWeights& block);

// `identity` is stored and compared: a result of other options or another source is refused.
Status write_block_result(const std::string& path, const BlockResult& result,
                          const std::string& identity);
// Errors: not_found; corrupt_data; invalid_argument for another identity.
Result<BlockResult> read_block_result(const std::string& path, const std::string& identity);
// The same of a file's bytes; `source` is named in errors.
Result<BlockResult> parse_block_result(std::span<const std::byte> bytes, const std::string& source,
                                       const std::string& identity);

// Codes of `bits` each, one after the other, lowest bits first, to whole bytes.
std::vector<std::uint8_t> pack_bits(const std::vector<std::uint8_t>& codes, int bits);
std::vector<std::uint8_t> unpack_bits(std::span<const std::byte> packed, int bits,
                                      std::size_t count);

}  // namespace trine
