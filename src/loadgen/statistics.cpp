#include "loadgen/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace trine::loadgen {
namespace {

constexpr double kTail = 0.025;  // on each side of the interval
// Limits the work on long runs: fewer resamples when one of them is much to add up.
constexpr double kMostAdditions = 4e8;
constexpr int kLeastResamples = 100;

// How often each of n requests is drawn: blocks of neighbours, the end followed by the beginning.
// Purpose kTest is not used by sampling, so no draw is shared with an answer.
void draw_weights(std::size_t n, std::uint64_t seed, int resample,
                  std::vector<std::uint32_t>& weights) {
  const auto block = static_cast<std::size_t>(std::ceil(std::cbrt(static_cast<double>(n))));
  weights.assign(n, 0);
  for (std::size_t drawn = 0, k = 0; drawn < n; ++k) {
    const auto words = philox(seed, static_cast<std::uint64_t>(resample), RngPurpose::kTest,
                              static_cast<std::uint32_t>(k));
    const auto start = static_cast<std::size_t>(uniform_open(words, 0) * static_cast<double>(n));
    for (std::size_t i = 0; i < block && drawn < n; ++i, ++drawn) {
      ++weights[(start + i) % n];
    }
  }
}

Interval interval_of(std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return {.low = percentile_of_sorted(figures, kTail),
          .high = percentile_of_sorted(figures, 1.0 - kTail)};
}

// A value and the request it belongs to.
struct Entry {
  double value;
  std::uint32_t request;
};

// The figures of one resample.
struct Figures {
  double mean = 0.0;
  std::array<double, Summary::kQuantiles.size()> quantiles{};
};

// Percentiles of the values in order, each as often as its request was drawn.
bool resampled(std::span<const Entry> sorted, std::span<const std::uint32_t> weights,
               Figures& out) {
  std::uint64_t total = 0;
  double sum = 0.0;
  for (const Entry& entry : sorted) {
    total += weights[entry.request];
    sum += entry.value * weights[entry.request];
  }
  if (total == 0) {
    return false;
  }
  out.mean = sum / static_cast<double>(total);
  std::size_t next = 0;  // quantile
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < sorted.size() && next < out.quantiles.size(); ++i) {
    const std::uint64_t upto = before + weights[sorted[i].request];
    while (next < out.quantiles.size()) {
      const double place = Summary::kQuantiles[next] * static_cast<double>(total - 1);
      const auto low = static_cast<std::uint64_t>(place);
      if (low >= upto) {
        break;
      }
      double value = sorted[i].value;
      if (const double part = place - static_cast<double>(low); part > 0.0 && low + 1 >= upto) {
        std::size_t after = i + 1;
        while (after < sorted.size() && weights[sorted[after].request] == 0) {
          ++after;
        }
        if (after < sorted.size()) {
          value += part * (sorted[after].value - value);
        }
      }
      out.quantiles[next++] = value;
    }
    before = upto;
  }
  return true;
}

void add_intervals(std::span<const Entry> sorted, std::size_t num_requests, std::uint64_t seed,
                   Summary& out) {
  const int resamples =
      std::clamp(static_cast<int>(kMostAdditions / static_cast<double>(sorted.size())),
                 kLeastResamples, kResamples);
  std::vector<std::uint32_t> weights;
  std::vector<double> means;
  std::array<std::vector<double>, Summary::kQuantiles.size()> quantiles;
  for (int r = 0; r < resamples; ++r) {
    draw_weights(num_requests, seed, r, weights);
    Figures figures;
    if (!resampled(sorted, weights, figures)) {
      continue;
    }
    means.push_back(figures.mean);
    for (std::size_t q = 0; q < quantiles.size(); ++q) {
      quantiles[q].push_back(figures.quantiles[q]);
    }
  }
  if (means.empty()) {
    return;
  }
  out.mean_interval = interval_of(std::move(means));
  for (std::size_t q = 0; q < quantiles.size(); ++q) {
    out.quantile_intervals[q] = interval_of(std::move(quantiles[q]));
  }
}

}  // namespace

double percentile_of_sorted(std::span<const double> sorted, double q) {
  TRINE_CHECK(!sorted.empty());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  if (low + 1 >= sorted.size()) {
    return sorted.back();
  }
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[low + 1] - sorted[low]);
}

Summary summarize(const PerRequest& values, std::uint64_t seed) {
  std::vector<Entry> sorted;
  std::size_t with_values = 0;
  for (std::size_t r = 0; r < values.size(); ++r) {
    with_values += values[r].empty() ? 0U : 1U;
    for (const double value : values[r]) {
      sorted.push_back({.value = value, .request = static_cast<std::uint32_t>(r)});
    }
  }
  Summary out;
  out.count = sorted.size();
  if (sorted.empty()) {
    return out;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry& a, const Entry& b) { return a.value < b.value; });
  std::vector<double> plain(sorted.size());
  std::transform(sorted.begin(), sorted.end(), plain.begin(),
                 [](const Entry& entry) { return entry.value; });
  const auto n = static_cast<double>(plain.size());
  out.mean = std::accumulate(plain.begin(), plain.end(), 0.0) / n;
  double squares = 0.0;
  for (const double value : plain) {
    squares += (value - out.mean) * (value - out.mean);
  }
  out.deviation = std::sqrt(squares / n);
  out.mean_interval = {.low = out.mean, .high = out.mean};
  for (std::size_t q = 0; q < Summary::kQuantiles.size(); ++q) {
    out.quantiles[q] = percentile_of_sorted(plain, Summary::kQuantiles[q]);
    out.quantile_intervals[q] = {.low = out.quantiles[q], .high = out.quantiles[q]};
    if (n * (1.0 - Summary::kQuantiles[q]) >= 100.0 * (1.0 - 1e-9)) {
      out.trusted_quantile = Summary::kQuantiles[q];
    }
  }
  if (with_values > 1) {
    add_intervals(sorted, values.size(), seed, out);
  }
  return out;
}

Interval rate_interval(std::span<const double> amounts, double seconds, std::uint64_t seed) {
  if (amounts.empty() || !(seconds > 0.0)) {
    return {};
  }
  std::vector<std::uint32_t> weights;
  std::vector<double> rates;
  for (int r = 0; r < kResamples; ++r) {
    draw_weights(amounts.size(), seed, r, weights);
    double sum = 0.0;
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      sum += amounts[i] * weights[i];
    }
    rates.push_back(sum / seconds);
  }
  return interval_of(std::move(rates));
}

}  // namespace trine::loadgen
