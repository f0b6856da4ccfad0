// Helpers of tests that compare floats: reproducible random values, bitwise equality, distance in
// ulp, and the instruction-set levels of this machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "platform/cpu.h"

namespace trine::test {

// Uniform in (-1, 1), a pure function of seed and index.
inline float random_float(std::uint64_t seed, std::uint64_t index) {
  return static_cast<float>(2.0 * uniform_open(philox(seed, index, RngPurpose::kTest, 0), 0) - 1.0);
}

inline std::vector<float> random_floats(std::uint64_t seed, std::int64_t count,
                                        float scale = 1.0f) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = scale * random_float(seed, i);
  }
  return out;
}

// Random floats, one in `rarity` of which is special: not a number, infinite, huge, tiny or a zero
// of either sign.
inline std::vector<float> extreme_floats(std::uint64_t seed, std::int64_t count,
                                         std::uint32_t rarity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                                kInfinity,
                                -kInfinity,
                                std::numeric_limits<float>::max(),
                                -3e38f,
                                7e4f,
                                -1e20f,
                                1e-40f,
                                -1e-45f,
                                1e-31f,
                                0.0f,
                                -0.0f};
  std::vector<float> out = random_floats(seed, count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto dice = philox(seed, i, RngPurpose::kTest, 2);
    if (dice[0] % rarity == 0) {
      out[i] = kSpecial[dice[1] % std::size(kSpecial)];
    }
  }
  return out;
}

// Uniform in [low, high].
inline std::int64_t random_int(std::uint64_t seed, std::uint64_t index, std::int64_t low,
                               std::int64_t high) {
  const double u = uniform_open(philox(seed, index, RngPurpose::kTest, 1), 0);
  return low + static_cast<std::int64_t>(u * static_cast<double>(high - low + 1));
}

// The same bits; any NaN equals any NaN.
inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

inline ::testing::AssertionResult same_bits(const std::vector<float>& a,
                                            const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " values against " << b.size();
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      return ::testing::AssertionFailure() << "index " << i << " of " << a.size() << ": "
                                           << std::hexfloat << a[i] << " against " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// |value - truth| in units of the last place of a float near `truth`.
inline double ulp_distance(float value, double truth) {
  if (std::isinf(value)) {  // right when the truth rounds to infinity
    return std::fabs(truth) >= 0x1.ffffffp127 ? 0.0 : HUGE_VAL;
  }
  const double magnitude = std::fabs(truth);
  const double ulp = magnitude < 0x1p-126 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::fabs(static_cast<double>(value) - truth) / ulp;
}

inline std::vector<IsaLevel> machine_levels() {
  std::vector<IsaLevel> levels;
  for (const IsaLevel level : kAllIsaLevels) {
    if (missing_feature(level, cpu_features()).empty()) {
      levels.push_back(level);
    }
  }
  return levels;
}

// Runs a scope at another level and restores the one before.
class ScopedIsaLevel {
 public:
  explicit ScopedIsaLevel(IsaLevel level) : before_(isa_level()) { override_isa_level(level); }

  ~ScopedIsaLevel() { override_isa_level(before_); }

  ScopedIsaLevel(const ScopedIsaLevel&) = delete;
  ScopedIsaLevel& operator=(const ScopedIsaLevel&) = delete;

 private:
  IsaLevel before_;
};

}  // namespace trine::test
