#include "quant/quantized_weights.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/half.h"

namespace trine {

QuantizedWeights::QuantizedWeights(const QuantScheme& scheme_in, std::int64_t rows_in,
                                   std::int64_t cols_in)
    : scheme(scheme_in), rows(rows_in), cols(cols_in) {
  TRINE_CHECK(rows > 0 && cols > 0);
  const auto groups = static_cast<std::size_t>(rows * num_groups());
  codes.resize(static_cast<std::size_t>(rows * cols));
  scales.resize(groups);
  (scheme.kind == GridKind::kMin ? mins.resize(groups) : zeros.resize(groups));
}

void QuantizedWeights::set_grid(std::int64_t row, std::int64_t group_idx, const GroupGrid& grid) {
  const auto at = static_cast<std::size_t>(row * num_groups() + group_idx);
  scales[at] = f32_to_f16(grid.scale);
  if (scheme.kind == GridKind::kMin) {
    mins[at] = f32_to_f16(grid.min);
  } else {
    zeros[at] = static_cast<std::uint8_t>(grid.zero);
  }
}

GroupGrid QuantizedWeights::grid(std::int64_t row, std::int64_t group_idx) const {
  const auto at = static_cast<std::size_t>(row * num_groups() + group_idx);
  GroupGrid out;
  out.scale = f16_to_f32(scales[at]);
  if (scheme.kind == GridKind::kMin) {
    out.min = f16_to_f32(mins[at]);
  } else {
    out.zero = zeros[at];
  }
  return out;
}

void QuantizedWeights::dequantize_row(std::int64_t row, std::span<float> out) const {
  TRINE_CHECK(static_cast<std::int64_t>(out.size()) == cols);
  const std::int64_t size = scheme.group_cols(cols);
  for (std::int64_t first = 0; first < cols; first += size) {
    const GroupGrid of_group = grid(row, first / size);
    for (std::int64_t c = first; c < std::min(first + size, cols); ++c) {
      out[static_cast<std::size_t>(c)] =
          of_group.value(scheme, codes[static_cast<std::size_t>(row * cols + c)]);
    }
  }
}

QuantizedWeights round_to_nearest(ThreadTeam& team, const QuantScheme& scheme,
                                  const ClipSearch& clip, std::span<const float> w,
                                  std::int64_t rows, std::int64_t cols,
                                  std::span<const float> importance, double* clipped_share) {
  TRINE_CHECK(static_cast<std::int64_t>(w.size()) == rows * cols);
  QuantizedWeights out(scheme, rows, cols);
  const std::int64_t size = scheme.group_cols(cols);
  std::atomic<std::int64_t> num_clipped{0};
  team.run([&](int thread_idx) {
    const auto [begin, end] = split_range(rows, 1, thread_idx, team.num_threads());
    std::int64_t clipped_here = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t first = 0; first < cols; first += size) {
        const auto count = static_cast<std::size_t>(std::min(size, cols - first));
        const auto group = w.subspan(static_cast<std::size_t>(row * cols + first), count);
        bool clipped = false;
        const GroupGrid grid = choose_grid(
            scheme, clip, group,
            importance.empty() ? importance
                               : importance.subspan(static_cast<std::size_t>(first), count),
            &clipped);
        clipped_here += clipped ? 1 : 0;
        out.set_grid(row, first / size, grid);
        for (std::size_t i = 0; i < count; ++i) {
          out.codes[static_cast<std::size_t>(row * cols + first) + i] = grid.code(scheme, group[i]);
        }
      }
    }
    num_clipped += clipped_here;
  });
  if (clipped_share != nullptr) {
    *clipped_share =
        static_cast<double>(num_clipped) / static_cast<double>(rows * out.num_groups());
  }
  return out;
}

}  // namespace trine
