// Weights and tokens of the tiny golden models, made from their names; the same rule as in
// tools/golden/families.py, so that no weights need to be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trine::testing {

inline std::uint64_t fnv1a(std::string_view name) {
  std::uint64_t value = 0xCBF29CE484222325u;
  for (const char c : name) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return value;
}

inline std::uint64_t splitmix64(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Value i of the tensor `name`: offset + scale * u, u uniform in [-1, 1).
inline float hash_weight(std::uint64_t name_hash, std::size_t i, double scale, double offset) {
  const std::uint64_t bits = splitmix64(name_hash + i) >> 40;
  return static_cast<float>(offset + scale * (static_cast<double>(bits) / 8388608.0 - 1.0));
}

inline std::vector<std::int32_t> hash_tokens(std::size_t count, std::int32_t vocab_size) {
  std::vector<std::int32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::int32_t>(splitmix64(fnv1a("tokens") + i) %
                                       static_cast<std::uint64_t>(vocab_size));
  }
  return out;
}

}  // namespace trine::testing
