#include "loadgen/arrivals.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::loadgen {
namespace {

std::vector<double> gaps(double shape, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(unit_gamma(shape, 7, static_cast<std::uint64_t>(i)));
  }
  return out;
}

TEST(UnitGamma, HasMeanOneAndItsVariation) {
  constexpr int kCount = 40000;
  for (const double shape : {0.25, 0.5, 1.0, 2.0, 9.0, 100.0}) {
    double sum = 0.0;
    double squares = 0.0;
    double cubes = 0.0;
    for (const double gap : gaps(shape, kCount)) {
      EXPECT_GE(gap, 0.0);
      sum += gap;
      squares += (gap - 1.0) * (gap - 1.0);
      cubes += (gap - 1.0) * (gap - 1.0) * (gap - 1.0);
    }
    const double sd = 1.0 / std::sqrt(shape);
    EXPECT_NEAR(sum / kCount, 1.0, 5.0 * sd / std::sqrt(kCount)) << shape;
    EXPECT_NEAR(std::sqrt(squares / kCount), sd, 0.06 * sd) << shape;
    // Skewness of a gamma is 2 / sqrt(shape): tells it from other laws of the same variance.
    EXPECT_NEAR(cubes / kCount / (sd * sd * sd), 2.0 * sd, 0.2 * (2.0 * sd) + 0.1) << shape;
  }
}

// A seed means the same schedule for good; the times are an independent program's (PROVENANCE.md).
TEST(Arrivals, OfFixedSeeds) {
  std::ifstream file(TRINE_SOURCE_DIR "/tests/golden/loadgen/arrivals.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 6U);
  for (const auto& one : cases) {
    const double rate = one["rate"];
    Arrivals arrivals(
        {.rate = rate, .end_rate = rate, .burstiness = one["burstiness"], .seed = one["seed"]});
    for (const double at : one["at_s"]) {
      EXPECT_NEAR(arrivals.next(), at, 1e-12 * (1.0 + at));
    }
  }
}

TEST(Arrivals, InfiniteRateIsAllAtOnce) {
  Arrivals all({.rate = std::numeric_limits<double>::infinity()});
  EXPECT_EQ(all.next(), 0.0);
  EXPECT_EQ(all.next(), 0.0);
}

TEST(Arrivals, RampsGrow) {
  ArrivalOptions linear{.rate = 2.0, .end_rate = 10.0, .ramp_s = 4.0};
  EXPECT_EQ(rate_at(linear, 0.0), 2.0);
  EXPECT_EQ(rate_at(linear, 1.0), 4.0);
  EXPECT_EQ(rate_at(linear, 4.0), 10.0);
  EXPECT_EQ(rate_at(linear, 100.0), 10.0);
  for (const auto& [from, to] : {std::pair{1.0, 16.0}, std::pair{16.0, 1.0}}) {
    const ArrivalOptions e{
        .rate = from, .end_rate = to, .ramp_s = 4.0, .ramp_shape = RampShape::kExponential};
    EXPECT_NEAR(rate_at(e, 0.0), from, 1e-12);
    EXPECT_NEAR(rate_at(e, 2.0), 4.0, 1e-12);
    EXPECT_NEAR(rate_at(e, 4.0), to, 1e-12);
  }
  // As many arrivals as the area under the rate, within four standard deviations.
  linear = {.rate = 100.0, .end_rate = 300.0, .ramp_s = 10.0, .seed = 3};
  Arrivals arrivals(linear);
  int count = 0;
  while (arrivals.next() < 10.0) {
    ++count;
  }
  EXPECT_NEAR(count, 2000, 4 * std::sqrt(2000.0));
}

TEST(ParseRate, RefusesByName) {
  EXPECT_EQ(parse_rate("2.5", "--request-rate").value(), 2.5);
  EXPECT_TRUE(std::isinf(parse_rate("inf", "--request-rate").value()));
  for (const char* bad : {"", "0", "-1", "x", "nan", "1e9", "2x", "infinity"}) {
    const auto rate = parse_rate(bad, "--request-rate");
    ASSERT_FALSE(rate.has_value()) << bad;
    EXPECT_EQ(rate.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(rate.error().message.starts_with("--request-rate ")) << rate.error().message;
  }
}

}  // namespace
}  // namespace trine::loadgen
