#include "base/fixed_math.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace trine {
namespace {

double uniform(std::uint64_t i) {
  return uniform_open(philox(11, i, RngPurpose::kTest, 0), 0);
}

double relative_error(double got, long double want) {
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / want));
}

constexpr double kTwoUlps = 2.0 * std::numeric_limits<double>::epsilon();

TEST(FixedMath, ExpIsWithinTwoUlps) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double x = -uniform(i) * (i % 2 == 0 ? 708.0 : 1.0);
    EXPECT_LE(relative_error(fixed_exp(x), std::exp(static_cast<long double>(x))), kTwoUlps) << x;
  }
  EXPECT_EQ(fixed_exp(0.0), 1.0);
  EXPECT_EQ(fixed_exp(-0.0), 1.0);
  EXPECT_GT(fixed_exp(-708.0), 0.0);
  EXPECT_EQ(fixed_exp(-708.0000001), 0.0);
  EXPECT_EQ(fixed_exp(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(FixedMath, ExpNeverFallsWhenItsArgumentRises) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double x = -uniform(i) * 50.0;
    EXPECT_LE(fixed_exp(x), fixed_exp(std::nextafter(x, 0.0))) << x;
  }
}

TEST(FixedMath, LogIsWithinTwoUlps) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform(i);
    const double x = i % 3 == 0   ? u
                     : i % 3 == 1 ? 1.0 - u * 1e-6
                                  : std::ldexp(u, static_cast<int>(i % 900));
    EXPECT_LE(relative_error(fixed_log(x), std::log(static_cast<long double>(x))), kTwoUlps) << x;
  }
  EXPECT_EQ(fixed_log(1.0), 0.0);
  // The ends of uniform_open().
  EXPECT_LE(relative_error(fixed_log(0x1p-53), std::log(0x1p-53L)), kTwoUlps);
  EXPECT_LE(relative_error(fixed_log(1.0 - 0x1p-53), std::log(1.0L - 0x1p-53L)), kTwoUlps);
}

// A change of any constant or of the order of operations changes these bits, and with them seeded
// texts.
TEST(FixedMath, BitsAreFrozen) {
  std::uint64_t digest = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    digest =
        digest * 0x9E3779B97F4A7C15u + std::bit_cast<std::uint64_t>(fixed_exp(-uniform(i) * 30.0));
    digest = digest * 0x9E3779B97F4A7C15u + std::bit_cast<std::uint64_t>(fixed_log(uniform(i)));
  }
  EXPECT_EQ(digest, 6710045735107544195u);
}

}  // namespace
}  // namespace trine
