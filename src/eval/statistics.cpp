#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace trine::eval {
namespace {

constexpr double kTail = 0.025;
constexpr double kZ975 = 1.959963984540054;  // normal quantiles
constexpr double kZ80 = 0.8416212335729143;
constexpr double kFewestSignificant = 6.0;  // 2 * 0.5^6 = 0.03 < 0.05 < 2 * 0.5^5

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  TRINE_CHECK(!values.empty());
  // In order of position, before they are sorted: the sum does not depend on ties.
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::sort(values.begin(), values.end());
  return {.mean = sum / static_cast<double>(values.size()),
          .median = loadgen::percentile_of_sorted(values, 0.5),
          .p99 = loadgen::percentile_of_sorted(values, 0.99),
          .p999 = loadgen::percentile_of_sorted(values, 0.999),
          .max = values.back()};
}

Interval bootstrap(std::size_t n, std::uint64_t seed,
                   const std::function<double(std::span<const std::uint32_t>)>& figure) {
  std::vector<std::uint32_t> counts(n, 1);
  if (n < 2) {
    const double value = figure(counts);
    return {.low = value, .high = value};
  }
  std::vector<double> figures;
  figures.reserve(kResamples);
  for (int r = 0; r < kResamples; ++r) {
    std::fill(counts.begin(), counts.end(), 0U);
    for (std::size_t k = 0; k < n; k += 2) {
      const auto words = philox(seed, static_cast<std::uint64_t>(r), RngPurpose::kBootstrap,
                                static_cast<std::uint32_t>(k / 2));
      for (int half = 0; half < 2 && k + static_cast<std::size_t>(half) < n; ++half) {
        ++counts[static_cast<std::size_t>(uniform_open(words, half) * static_cast<double>(n))];
      }
    }
    figures.push_back(figure(counts));
  }
  std::sort(figures.begin(), figures.end());
  return {.low = loadgen::percentile_of_sorted(figures, kTail),
          .high = loadgen::percentile_of_sorted(figures, 1.0 - kTail)};
}

double mcnemar_exact(std::int64_t b, std::int64_t c) {
  TRINE_CHECK(b >= 0 && c >= 0);
  const std::int64_t n = b + c;
  const std::int64_t k = std::min(b, c);
  if (n == 0 || 2 * k == n) {
    return 1.0;
  }
  // 2 * P(X <= k), X binomial(n, 1/2). Coefficients of few items are exact; those of many would not
  // fit and go by their logarithms.
  constexpr std::int64_t kFits = 1000;
  double sum = 0.0;
  if (n <= kFits) {
    double ways = 1.0;
    for (std::int64_t i = 0; i <= k; ++i) {
      sum += ways;
      ways = ways * static_cast<double>(n - i) / static_cast<double>(i + 1);
    }
    return std::min(1.0, std::ldexp(sum, 1 - static_cast<int>(n)));
  }
  const auto log_factorial = [](std::int64_t x) { return std::lgamma(static_cast<double>(x) + 1); };
  for (std::int64_t i = 0; i <= k; ++i) {
    sum += std::exp(log_factorial(n) - log_factorial(i) - log_factorial(n - i) -
                    static_cast<double>(n) * std::log(2.0));
  }
  return std::min(1.0, 2.0 * sum);
}

double minimum_detectable_difference(std::int64_t n, std::int64_t discordant) {
  TRINE_CHECK(n >= 0 && discordant >= 0 && discordant <= n);
  if (static_cast<double>(n) < kFewestSignificant) {
    return 1.0;
  }
  const auto items = static_cast<double>(n);
  const double psi = (static_cast<double>(discordant) + 1.0) / (items + 2.0);
  // Models that differ by d differ on at least that share of the items. Grows with d.
  const auto enough = [&](double d) {
    const double differing = std::max(psi, d);
    return d * std::sqrt(items) >=
           kZ975 * std::sqrt(differing) + kZ80 * std::sqrt(std::max(0.0, differing - d * d));
  };
  double low = 0.0;
  double high = 1.0;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2.0;
    (enough(middle) ? high : low) = middle;
  }
  return std::clamp(high, kFewestSignificant / items, 1.0);
}

double macro_f1(const std::vector<std::vector<std::int64_t>>& confusion) {
  double sum = 0.0;
  std::int64_t labels = 0;
  for (std::size_t i = 0; i < confusion.size(); ++i) {
    std::int64_t expected = 0;
    std::int64_t answered = 0;
    for (const std::int64_t count : confusion[i]) {
      expected += count;
    }
    for (const auto& row : confusion) {
      answered += row[i];
    }
    if (expected + answered > 0) {
      sum += 2.0 * static_cast<double>(confusion[i][i]) / static_cast<double>(expected + answered);
      ++labels;
    }
  }
  return labels == 0 ? 0.0 : sum / static_cast<double>(labels);
}

}  // namespace trine::eval
