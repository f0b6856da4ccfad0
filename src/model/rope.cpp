// Rotary frequencies of every scaling kind. The arithmetic is in f32 in the order of the reference
// implementation (transformers), because a relative error of 1e-7 in a frequency is an angle of
// 4e-4 at position 4096.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "model/config.h"

namespace trine {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

// base^(2i / dim).
float base_power(const RopeConfig& rope, std::size_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
  return static_cast<float>(std::pow(rope.base, static_cast<double>(exponent)));
}

float llama3_frequency(const RopeConfig& rope, float frequency) {
  const auto context = static_cast<float>(rope.original_context);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(kTwoPi) / frequency;
  if (wavelength > context / low) {
    return frequency / factor;
  }
  if (wavelength < context / high) {
    return frequency;
  }
  const float smooth = (context / wavelength - low) / (high - low);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

// The dimension whose wave makes `rotations` turns over the original context.
double yarn_dimension(const RopeConfig& rope, double rotations) {
  return rope.rotary_dim * std::log(rope.original_context / (rotations * kTwoPi)) /
         (2.0 * std::log(rope.base));
}

std::vector<float> yarn_frequencies(const RopeConfig& rope, std::size_t half) {
  double low = yarn_dimension(rope, rope.beta_fast);
  double high = yarn_dimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) {
    high += 0.001;  // a ramp of no width would divide by zero
  }
  std::vector<float> out(half);
  for (std::size_t i = 0; i < half; ++i) {
    const float power = base_power(rope, i);
    const float kept = 1.0F / power;
    const float divided = 1.0F / (static_cast<float>(rope.factor) * power);
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F,
        1.0F);
    const float keep = 1.0F - ramp;
    out[i] = divided * (1.0F - keep) + kept * keep;
  }
  return out;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int32_t context_length) {
  TRINE_CHECK(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0);
  const auto half = static_cast<std::size_t>(rope.rotary_dim / 2);
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    return yarn_frequencies(rope, half);
  }
  std::vector<float> out(half);
  if (rope.scaling == RopeConfig::Scaling::kLongRope) {
    const auto& factors =
        context_length > rope.original_context ? rope.long_factors : rope.short_factors;
    TRINE_CHECK(factors.size() == half);
    for (std::size_t i = 0; i < half; ++i) {
      out[i] = 1.0F / (factors[i] * base_power(rope, i));
    }
    return out;
  }
  TRINE_CHECK(rope.freq_factors.empty() || rope.freq_factors.size() == half);
  for (std::size_t i = 0; i < half; ++i) {
    out[i] = 1.0F / base_power(rope, i);
    if (rope.scaling == RopeConfig::Scaling::kLinear) {
      out[i] /= static_cast<float>(rope.factor);
    } else if (rope.scaling == RopeConfig::Scaling::kLlama3) {
      out[i] = llama3_frequency(rope, out[i]);
    }
    if (!rope.freq_factors.empty()) {
      out[i] /= rope.freq_factors[i];
    }
  }
  return out;
}

}  // namespace trine
