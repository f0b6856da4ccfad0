// When requests are sent.
//
// Gaps between arrivals are gamma-distributed with mean 1 / rate and shape `burstiness`: 1 is a
// Poisson process, below 1 is bursty, above 1 is even (coefficient of variation 1 / sqrt(shape)). A
// ramp changes the rate over the run. Gap i is a pure function of the seed and i and the same bits
// on every machine. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace trine::loadgen {

enum class RampShape : std::uint8_t { kLinear, kExponential };

struct ArrivalOptions {
  // Requests per second; infinity: all at once.
  double rate = 1.0;
  // At the end of the ramp; the same as `rate` without one. Both finite with a ramp.
  double end_rate = 1.0;
  // How long the ramp takes; the rate stays at end_rate afterwards. Above 0 with a ramp.
  double ramp_s = 0.0;
  RampShape ramp_shape = RampShape::kLinear;
  double burstiness = 1.0;  // above 0
  std::uint64_t seed = 0;
};

// Gamma with this shape and mean 1, drawn number `index` of the seed.
double unit_gamma(double shape, std::uint64_t seed, std::uint64_t index);

// Requests per second at `seconds` after the start.
double rate_at(const ArrivalOptions& options, double seconds);

// Arrival times in seconds after the start, one after the other.
class Arrivals {
 public:
  explicit Arrivals(const ArrivalOptions& options) : options_(options) {}

  double next();

 private:
  ArrivalOptions options_;
  std::uint64_t index_ = 0;
  double now_s_ = 0.0;
};

// "8", "0.5", "inf". Errors: invalid_argument, with `what` in front.
Result<double> parse_rate(std::string_view text, std::string_view what);

}  // namespace trine::loadgen
