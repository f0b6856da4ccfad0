#include "loadgen/statistics.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace trine::loadgen {
namespace {

TEST(Percentile, IsNumPysLinearOne) {
  const std::vector<double> values{1.0, 2.0, 4.0, 8.0, 16.0};
  EXPECT_EQ(percentile_of_sorted(values, 0.0), 1.0);
  EXPECT_EQ(percentile_of_sorted(values, 0.5), 4.0);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.9), 12.8);   // 8 + 0.6 * 8
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.95), 14.4);  // 8 + 0.8 * 8
  EXPECT_DOUBLE_EQ(percentile_of_sorted(values, 0.99), 15.68);
  EXPECT_EQ(percentile_of_sorted(values, 1.0), 16.0);
  EXPECT_EQ(percentile_of_sorted(std::vector<double>{7.0}, 0.99), 7.0);
}

TEST(Summary, ExactFigures) {
  const Summary s = summarize({{4.0, 1.0}, {}, {2.0}, {16.0, 8.0}}, 1);
  EXPECT_EQ(s.count, 5U);
  EXPECT_DOUBLE_EQ(s.mean, 6.2);
  EXPECT_DOUBLE_EQ(s.deviation,
                   std::sqrt((5.2 * 5.2 + 4.2 * 4.2 + 2.2 * 2.2 + 1.8 * 1.8 + 9.8 * 9.8) / 5.0));
  EXPECT_EQ(s.median(), 4.0);
  EXPECT_DOUBLE_EQ(s.quantiles[1], 12.8);
  EXPECT_DOUBLE_EQ(s.quantiles[2], 14.4);
  EXPECT_DOUBLE_EQ(s.quantiles[3], 15.68);
  EXPECT_EQ(s.trusted_quantile, 0.0);
}

TEST(Summary, NothingAndOneRequest) {
  EXPECT_EQ(summarize({}, 1).count, 0U);
  EXPECT_EQ(summarize({{}, {}}, 1).mean, 0.0);
  const Summary one = summarize({{3.0, 5.0}}, 1);
  EXPECT_EQ(one.mean_interval.low, 4.0);
  EXPECT_EQ(one.mean_interval.high, 4.0);
}

TEST(Summary, ManyValuesAreTrusted) {
  PerRequest values;
  for (int i = 0; i < 1000; ++i) {
    values.push_back({static_cast<double>(i)});
  }
  EXPECT_EQ(summarize(values, 1).trusted_quantile, 0.90);
  for (int i = 0; i < 9000; ++i) {
    values.push_back({1.0});
  }
  EXPECT_EQ(summarize(values, 1).trusted_quantile, 0.99);
}

TEST(Summary, SameSeedSameInterval) {
  PerRequest values;
  for (std::uint32_t i = 0; i < 50; ++i) {
    values.push_back({uniform_open(philox(4, i, RngPurpose::kSample, 0), 0)});
  }
  const Summary a = summarize(values, 5);
  const Summary b = summarize(values, 5);
  const Summary c = summarize(values, 6);
  EXPECT_EQ(a.mean_interval.low, b.mean_interval.low);
  EXPECT_NE(a.mean_interval.low, c.mean_interval.low);
}

// The interval holds the true mean in about 95 of 100 experiments.
TEST(Summary, IntervalsCover) {
  int covered = 0;
  constexpr int kRuns = 200;
  for (int run = 0; run < kRuns; ++run) {
    PerRequest values;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const auto words = philox(static_cast<std::uint64_t>(run) + 1000, i, RngPurpose::kSample, 0);
      values.push_back({-std::log(uniform_open(words, 0))});  // mean 1
    }
    const Interval interval = summarize(values, static_cast<std::uint64_t>(run)).mean_interval;
    covered += interval.low <= 1.0 && 1.0 <= interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, kRuns * 85 / 100);
  EXPECT_LE(covered, kRuns * 99 / 100);
}

// Resampled percentiles of values that are all the same are that value, and bounds hold.
TEST(Summary, IntervalsStayWithinTheValues) {
  PerRequest values;
  for (int i = 0; i < 40; ++i) {
    values.push_back({static_cast<double>(i), static_cast<double>(2 * i)});
  }
  const Summary s = summarize(values, 3);
  for (std::size_t q = 0; q < Summary::kQuantiles.size(); ++q) {
    EXPECT_GE(s.quantile_intervals[q].low, 0.0);
    EXPECT_LE(s.quantile_intervals[q].high, 78.0);
    EXPECT_LE(s.quantile_intervals[q].low, s.quantiles[q]);
    EXPECT_GE(s.quantile_intervals[q].high, s.quantiles[q]);
  }
  const Summary same = summarize({{5.0}, {5.0}, {5.0, 5.0}}, 3);
  EXPECT_EQ(same.quantile_intervals[3].low, 5.0);
  EXPECT_EQ(same.quantile_intervals[3].high, 5.0);
}

TEST(RateInterval, OfOnesIsTheRate) {
  const std::vector<double> ones(20, 1.0);
  const Interval interval = rate_interval(ones, 4.0, 9);
  EXPECT_EQ(interval.low, 5.0);
  EXPECT_EQ(interval.high, 5.0);
  EXPECT_EQ(rate_interval({}, 4.0, 9).high, 0.0);
}

}  // namespace
}  // namespace trine::loadgen
