#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/fixed_math.h"
#include "base/rng.h"
#include "kernels/dispatch.h"
#include "support/numeric.h"

namespace trine::kernels {
namespace {

using test::random_floats;
using test::same_bits;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(SelectKernel, LargestPassesOverNan) {
  for (const IsaLevel level : test::machine_levels()) {
    const auto& table = select_table(level);
    EXPECT_EQ(table.largest(nullptr, 0), -kInf);
    for (const std::int64_t n : {1, 15, 16, 17, 255, 256, 1000}) {
      auto x = random_floats(static_cast<std::uint64_t>(n), n);
      const float truth = *std::max_element(x.begin(), x.end());
      EXPECT_EQ(table.largest(x.data(), n), truth) << n;
      x[static_cast<std::size_t>(n / 2)] = std::nanf("");
      float best = -kInf;
      for (const float value : x) {
        best = value > best ? value : best;
      }
      EXPECT_EQ(table.largest(x.data(), n), best) << n;
    }
  }
}

TEST(SelectKernel, FirstAboveFindsEveryPlace) {
  for (const IsaLevel level : test::machine_levels()) {
    const auto& table = select_table(level);
    for (const std::int64_t n : {0, 1, 255, 256, 700}) {
      std::vector<float> x(static_cast<std::size_t>(n), 1.0f);
      EXPECT_EQ(table.first_above(x.data(), 0, n, 1.0f), n);  // equal is not above
      for (std::int64_t at = 0; at < n; at += 37) {
        x[static_cast<std::size_t>(at)] = 2.0f;
        EXPECT_EQ(table.first_above(x.data(), 0, n, 1.0f), at);
        EXPECT_EQ(table.first_above(x.data(), at, n, 1.0f), at);
        EXPECT_EQ(table.first_above(x.data(), at + 1, n, 1.0f), n);
        x[static_cast<std::size_t>(at)] = std::nanf("");
        EXPECT_EQ(table.first_above(x.data(), 0, n, -kInf),
                  at == 0 ? std::min<std::int64_t>(1, n) : 0);
        x[static_cast<std::size_t>(at)] = 1.0f;
      }
    }
  }
}

TEST(SelectKernel, ExpSumIsTheSameOnEveryLevelAndRight) {
  for (const std::int64_t n : {0, 1, 7, 8, 9, 64, 1003}) {
    auto x = random_floats(static_cast<std::uint64_t>(n) + 5, n, 20.0f);
    if (n > 9) {
      x[9] = -kInf;
    }
    for (const double temperature : {1.0, 0.3, 5.0}) {
      double lanes[8] = {};
      for (std::int64_t i = 0; i < n; ++i) {
        lanes[i % 8] += fixed_exp((double{x[static_cast<std::size_t>(i)]} - 20.0) / temperature);
      }
      const double expected = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                              ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
      for (const IsaLevel level : test::machine_levels()) {
        EXPECT_EQ(select_table(level).exp_sum(x.data(), n, 20.0, temperature), expected)
            << n << " " << isa_level_name(level);
      }
    }
  }
}

TEST(SelectKernel, EntrantsAreThoseTheBoundCannotRuleOut) {
  const std::int64_t n = 517;
  const auto x = random_floats(3, n, 8.0f);
  const RaceArgs race{8.0, 0.8, 0x123456789abcdef0u, 0xfffffffff0u,
                      static_cast<std::uint32_t>(RngPurpose::kSample)};
  std::size_t found = 0;
  for (const double best : {1e300, 3.0, 0.5, 1e-3, 0.0}) {
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < n; ++i) {
      const double u = uniform_open(
          philox(race.seed, race.position, RngPurpose::kSample, static_cast<std::uint32_t>(i)), 0);
      const double weight =
          fixed_exp((double{x[static_cast<std::size_t>(i)]} - race.max) / race.temperature);
      if ((1.0 - u) * (1.0 - 1e-12) <= best * weight) {
        expected.push_back(i);
      }
    }
    found += expected.size();
    for (const IsaLevel level : test::machine_levels()) {
      const auto& table = select_table(level);
      std::vector<std::int64_t> got;
      for (std::int64_t i = table.first_entrant(x.data(), 0, n, &race, best); i < n;
           i = table.first_entrant(x.data(), i + 1, n, &race, best)) {
        got.push_back(i);
      }
      EXPECT_EQ(got, expected) << best << " " << isa_level_name(level);
    }
  }
  EXPECT_GT(found, 550u);
}

}  // namespace
}  // namespace trine::kernels
