// Figures over many measurements: percentiles, spread, and how sure they are.
//
// Percentiles are those of NumPy's default method (linear between neighbours), the deviation is the
// population's (divided by n), as in vLLM's benchmark. Intervals come from a bootstrap that draws
// whole requests, in blocks of neighbours by arrival because requests that overlap are not
// independent; all values of a request go together. Draws are counter-based: the same values and
// seed give the same interval. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trine::loadgen {

// Of values in rising order, not empty; q from 0 to 1.
double percentile_of_sorted(std::span<const double> sorted, double q);

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

// The figures of one metric, in its unit; 0 without values.
struct Summary {
  static constexpr std::array<double, 4> kQuantiles{0.50, 0.90, 0.95, 0.99};

  std::size_t count = 0;
  double mean = 0.0;
  double deviation = 0.0;
  std::array<double, kQuantiles.size()> quantiles{};
  // 95 % intervals; equal to the figure when there is one request or none.
  Interval mean_interval;
  std::array<Interval, kQuantiles.size()> quantile_intervals{};
  // A percentile q needs 100 / (1 - q) values to mean much: the greatest of kQuantiles that has
  // them, 0 when none.
  double trusted_quantile = 0.0;

  double median() const { return quantiles[0]; }
};

// Values of one request each, in order of arrival. A request may have none.
using PerRequest = std::vector<std::vector<double>>;

inline constexpr int kResamples = 1000;

Summary summarize(const PerRequest& values, std::uint64_t seed);

// Of a sum divided by a time (throughput, goodput): the interval of sum / seconds when the amounts,
// those of the parts of a run in order, are drawn anew.
Interval rate_interval(std::span<const double> amounts, double seconds, std::uint64_t seed);

}  // namespace trine::loadgen
