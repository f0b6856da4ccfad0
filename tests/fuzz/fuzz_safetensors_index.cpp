// Any bytes either are an index or give a printable error; shards made from an index join, and no
// longer do when one tensor is moved, repeated or dropped.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/safetensors.h"
#include "fuzz_support.h"

namespace {

std::vector<trine::SafetensorsShard> shards_of(const trine::StringPairs& map) {
  std::vector<trine::SafetensorsShard> shards;
  for (const auto& [name, file] : map) {
    auto it = std::ranges::find(shards, file, &trine::SafetensorsShard::file);
    if (it == shards.end()) {
      it = shards.insert(it, {file, {}});
    }
    it->tensors.push_back({name, trine::DType::kF32, {0}, {}});
  }
  return shards;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto map = trine::parse_safetensors_index({reinterpret_cast<const char*>(data), size});
  if (!map.has_value()) {
    trine::require_printable(map.error());
    return 0;
  }
  for (const auto& [name, file] : *map) {
    trine::require(file.find('/') == std::string::npos && file.find("..") != 0);
  }
  const auto shards = shards_of(*map);
  const auto joined = trine::join_safetensors_shards(*map, shards);
  trine::require(joined.has_value() && joined->size() == map->size());

  auto dropped = shards;
  dropped.front().tensors.pop_back();
  trine::require(!trine::join_safetensors_shards(*map, dropped).has_value());
  auto repeated = shards;
  repeated.back().tensors.push_back(repeated.front().tensors.front());
  trine::require(!trine::join_safetensors_shards(*map, repeated).has_value());
  auto moved = shards;
  moved.front().file += "x";
  trine::require(!trine::join_safetensors_shards(*map, moved).has_value());
  return 0;
}
