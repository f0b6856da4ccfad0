#include "quant/quant_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/half.h"

namespace trine {
namespace {

constexpr float kMaxF16 = 65504.0F;
constexpr float kMinF16 = 0x1p-24F;

// The nearest positive binary16 value: a group of zeros has a scale as well.
float as_scale(float value) {
  return std::clamp(f16_to_f32(f32_to_f16(std::min(value, kMaxF16))), kMinF16, kMaxF16);
}

GroupGrid grid_of_range(const QuantScheme& scheme, float low, float high) {
  const auto most = static_cast<float>(scheme.levels() - 1);
  GroupGrid grid;
  switch (scheme.kind) {
    case GridKind::kSymmetric:
      // The reach below zero is one code longer than above; the middle of both is used, as in the
      // published methods.
      grid.scale = as_scale(2.0F * std::max(-low, high) / most);
      grid.zero = scheme.levels() / 2;
      break;
    case GridKind::kZeroPoint:
      grid.scale = as_scale((high - low) / most);
      grid.zero =
          static_cast<std::int32_t>(std::clamp(std::nearbyint(-low / grid.scale), 0.0F, most));
      break;
    case GridKind::kFloat8:
      grid.scale = as_scale(std::max(-low, high) / 448.0F);
      break;
    case GridKind::kMin:
      grid.min = f16_to_f32(f32_to_f16(std::max(low, -kMaxF16)));
      grid.scale = as_scale((high - grid.min) / most);
      break;
  }
  return grid;
}

double error_of(const QuantScheme& scheme, const GroupGrid& grid, std::span<const float> w,
                std::span<const float> importance) {
  double sum = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double error = static_cast<double>(grid.round(scheme, w[i])) - w[i];
    sum += error * error * (importance.empty() ? 1.0 : static_cast<double>(importance[i]));
  }
  return sum;
}

}  // namespace

std::string QuantScheme::text() const {
  if (kind == GridKind::kFloat8) {
    return fmt::format("FP8 {}", group == 0 ? "row" : fmt::format("g{}", group));
  }
  return fmt::format("{}-bit {} {}", bits, group == 0 ? "row" : fmt::format("g{}", group),
                     kind == GridKind::kSymmetric ? "sym" : "asym");
}

Status check_scheme(const QuantScheme& scheme) {
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) {
    return fail(ErrorCode::kInvalidArgument, "{} bits: there are 2, 3, 4 and 8", scheme.bits);
  }
  constexpr std::array<std::int32_t, 5> kGroups{0, 32, 64, 128, 256};
  if (std::find(kGroups.begin(), kGroups.end(), scheme.group) == kGroups.end()) {
    return fail(ErrorCode::kInvalidArgument,
                "groups of {} columns: there are 32, 64, 128, 256 and row", scheme.group);
  }
  return {};
}

std::uint8_t GroupGrid::code(const QuantScheme& scheme, float w) const {
  if (scheme.kind == GridKind::kFloat8) {
    return f32_to_f8_e4m3(w / scale);
  }
  const auto most = static_cast<float>(scheme.levels() - 1);
  const float at = scheme.kind == GridKind::kMin
                       ? std::nearbyint((w - min) / scale)
                       : std::nearbyint(w / scale) + static_cast<float>(zero);
  return static_cast<std::uint8_t>(std::clamp(at, 0.0F, most));
}

float GroupGrid::value(const QuantScheme& scheme, std::uint8_t code) const {
  if (scheme.kind == GridKind::kFloat8) {
    return scale * f8_e4m3_to_f32(code);
  }
  return scheme.kind == GridKind::kMin ? std::fma(scale, static_cast<float>(code), min)
                                       : scale * static_cast<float>(code - zero);
}

GroupGrid choose_grid(const QuantScheme& scheme, const ClipSearch& clip, std::span<const float> w,
                      std::span<const float> importance, bool* clipped) {
  TRINE_CHECK(importance.empty() || importance.size() == w.size());
  float low = 0.0F;
  float high = 0.0F;
  for (const float value : w) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  GroupGrid best = grid_of_range(scheme, low, high);
  bool smaller = false;
  if (clip.enabled) {
    double least = error_of(scheme, best, w, importance);
    for (int step = 1; step <= clip.steps && least > 0; ++step) {
      const float share = clip.share(step);
      const GroupGrid grid = grid_of_range(scheme, share * low, share * high);
      if (const double error = error_of(scheme, grid, w, importance); error < least) {
        least = error;
        best = grid;
        smaller = true;
      }
    }
  }
  if (clipped != nullptr) {
    *clipped = smaller;
  }
  return best;
}

}  // namespace trine
