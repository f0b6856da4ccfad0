#include "loadgen/arrivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/fixed_math.h"
#include "base/rng.h"

namespace trine::loadgen {
namespace {

double uniform(std::uint64_t seed, std::uint64_t index, std::uint32_t k, int half) {
  return uniform_open(philox(seed, index, RngPurpose::kTest, k), half);
}

// Standard normal by Marsaglia's polar method: square roots and logarithms only, which are the same
// bits everywhere. `k` is the next counter of this gap.
double normal(std::uint64_t seed, std::uint64_t index, std::uint32_t& k) {
  for (;;) {
    const auto words = philox(seed, index, RngPurpose::kTest, k++);
    const double x = 2.0 * uniform_open(words, 0) - 1.0;
    const double y = 2.0 * uniform_open(words, 1) - 1.0;
    const double r = x * x + y * y;
    if (r > 0.0 && r < 1.0) {
      return x * std::sqrt(-2.0 * fixed_log(r) / r);
    }
  }
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; shape of at least 1.
double gamma_above_one(double shape, std::uint64_t seed, std::uint64_t index, std::uint32_t& k) {
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal(seed, index, k);
    const double t = 1.0 + c * x;
    if (t <= 0.0) {
      continue;
    }
    const double v = t * t * t;
    const double u = uniform(seed, index, k++, 0);
    if (fixed_log(u) < 0.5 * x * x + d - d * v + d * fixed_log(v)) {
      return d * v;
    }
  }
}

}  // namespace

double unit_gamma(double shape, std::uint64_t seed, std::uint64_t index) {
  if (shape == 1.0) {
    return -fixed_log(uniform(seed, index, 0, 0));
  }
  std::uint32_t k = 0;
  if (shape > 1.0) {
    return gamma_above_one(shape, seed, index, k) / shape;
  }
  // Gamma(a) = Gamma(a + 1) * U^(1/a).
  const double boost = fixed_exp(fixed_log(uniform(seed, index, k++, 0)) / shape);
  return gamma_above_one(shape + 1.0, seed, index, k) * boost / shape;
}

double rate_at(const ArrivalOptions& options, double seconds) {
  if (options.ramp_s <= 0.0) {
    return options.rate;
  }
  const double part = std::min(seconds / options.ramp_s, 1.0);
  if (options.ramp_shape == RampShape::kLinear) {
    return options.rate + part * (options.end_rate - options.rate);
  }
  // fixed_exp takes arguments up to 0: count from the greater end.
  const double log_ratio = fixed_log(options.end_rate) - fixed_log(options.rate);
  return log_ratio > 0.0 ? options.end_rate * fixed_exp(-(1.0 - part) * log_ratio)
                         : options.rate * fixed_exp(part * log_ratio);
}

double Arrivals::next() {
  if (std::isinf(options_.rate)) {
    return 0.0;
  }
  now_s_ += unit_gamma(options_.burstiness, options_.seed, index_++) / rate_at(options_, now_s_);
  return now_s_;
}

Result<double> parse_rate(std::string_view text, std::string_view what) {
  if (text == "inf") {
    return std::numeric_limits<double>::infinity();
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr double kMost = 1e6;
  constexpr double kLeast = 1e-6;
  if (error != std::errc() || end != text.data() + text.size() ||
      !(value >= kLeast && value <= kMost)) {
    return fail(ErrorCode::kInvalidArgument,
                "{} {}: give requests per second, from {:g} to {:g}, or inf for all at once", what,
                text, kLeast, kMost);
  }
  return value;
}

}  // namespace trine::loadgen
