#include "quant/quantized_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "quant/packed_tile.h"

namespace trine {
namespace {

using kernels::CodeKind;
using kernels::ScaleKind;

constexpr std::int64_t kChunk = kernels::kPackedChunk;
// Weights alone are quantized in the file: activations are quantized in groups of at most this
// many columns, which loses less than one scale for a whole row.
constexpr std::int64_t kActivationGroup = 128;

CodeKind code_kind(int bits) {
  switch (bits) {
    case 2:
      return CodeKind::kU2;
    case 3:
      return CodeKind::kU3;
    case 4:
      return CodeKind::kU4;
    default:
      return CodeKind::kU8;
  }
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The packed group for groups of so many columns, a multiple of 32.
std::int64_t packed_group_of(std::int64_t cols) {
  if (cols == 256) {
    return cols;
  }
  for (const std::int64_t group : {std::int64_t{128}, std::int64_t{64}}) {
    if (cols % group == 0) {
      return group;
    }
  }
  return kChunk;
}

// The columns of each group, in ascending order.
std::vector<std::vector<std::int32_t>> columns_by_group(const QuantizedLinear& linear) {
  std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(linear.num_groups()));
  for (std::int64_t col = 0; col < linear.cols(); ++col) {
    out[static_cast<std::size_t>(linear.group_of(col))].push_back(static_cast<std::int32_t>(col));
  }
  return out;
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(QuantizedLinear linear) : linear_(std::move(linear)) {
  if (linear_.layout() != QuantizedLinear::Layout::kFloat8 &&
      linear_.cols() <= kernels::kMaxPackedCols) {
    plan_columns();
  }
}

void QuantizedMatrix::choose_scheme(std::int64_t group) {
  const bool f16 = linear_.scales_fit_f16();
  const ScaleKind scales = linear_.symmetric() ? (f16 ? ScaleKind::kF16 : ScaleKind::kF32)
                                               : (f16 ? ScaleKind::kF16Zero : ScaleKind::kF32Zero);
  scheme_ = {code_kind(linear_.bits()), scales, static_cast<std::int32_t>(group)};
}

void QuantizedMatrix::plan_columns() {
  const std::int64_t cols = linear_.cols();
  if (linear_.num_groups() == 1) {
    if (linear_.int8_activations()) {
      choose_scheme(0);
      groups_ = {0};
      return;
    }
    const std::int64_t group = cols >= kActivationGroup ? kActivationGroup : kChunk;
    choose_scheme(group);
    groups_.assign(static_cast<std::size_t>((cols + group - 1) / group), 0);
    return;
  }
  const bool in_order = linear_.group_index().empty();
  if (in_order && linear_.group_cols() % kChunk == 0) {
    const std::int64_t group = packed_group_of(linear_.group_cols());
    choose_scheme(group);
    for (std::int64_t col = 0; col < cols; col += group) {
      groups_.push_back(static_cast<std::int32_t>(linear_.group_of(col)));
    }
    return;
  }
  const auto members = columns_by_group(linear_);
  std::int64_t group = 256;
  std::int64_t slots = 0;
  for (std::size_t g = 0; g < members.size(); ++g) {
    const std::int64_t width = round_up(static_cast<std::int64_t>(members[g].size()), kChunk);
    slots += width;
    if (g + 1 < members.size()) {
      group = std::gcd(group, width);
    }
  }
  if (group == 256 && static_cast<std::int64_t>(members.front().size()) != group) {
    group = kActivationGroup;
  }
  // Groups far smaller than a chunk would make mostly padding.
  if (slots > 2 * cols || slots > kernels::kMaxPackedCols) {
    return;
  }
  choose_scheme(group);
  for (std::size_t g = 0; g < members.size(); ++g) {
    order_.insert(order_.end(), members[g].begin(), members[g].end());
    if (g + 1 < members.size()) {
      order_.resize(
          static_cast<std::size_t>(round_up(static_cast<std::int64_t>(order_.size()), kChunk)), -1);
    }
    while (static_cast<std::int64_t>(groups_.size()) * group <
           static_cast<std::int64_t>(order_.size())) {
      groups_.push_back(static_cast<std::int32_t>(g));
    }
  }
}

void QuantizedMatrix::pack_rows(std::int64_t row, std::int64_t count, std::uint8_t* out) const {
  TRINE_CHECK(scheme_.has_value() && count <= static_cast<std::int64_t>(kTileRows));
  const std::int64_t cols = linear_.cols();
  const auto stride = static_cast<std::size_t>(cols);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count) * stride);
  linear_.read_codes(row, count, 0, cols, codes.data(), cols);
  const std::int64_t padded = kernels::packed_padded_cols(packed_cols());
  const std::int64_t group = kernels::packed_group(*scheme_, packed_cols());
  PackTile tile = {};
  for (std::int64_t col = 0; col < padded; col += static_cast<std::int64_t>(kTileCols)) {
    const std::int64_t width = std::min<std::int64_t>(padded - col, kTileCols);
    const std::int64_t filled = std::min(packed_cols() - col, width);
    for (std::int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const std::uint8_t* in = codes.data() + at * stride;
      std::uint8_t* to = tile.codes[at].data();
      if (order_.empty()) {
        std::memcpy(to, in + col, static_cast<std::size_t>(filled));
      } else {
        for (std::int64_t c = 0; c < filled; ++c) {
          const std::int32_t from = order_[static_cast<std::size_t>(col + c)];
          to[c] = from < 0 ? std::uint8_t{0} : in[from];
        }
      }
      std::memset(to + filled, 0, static_cast<std::size_t>(width - filled));
      for (std::int64_t g = 0; g * group < width; ++g) {
        const std::int32_t source = groups_[static_cast<std::size_t>(col / group + g)];
        const float scale = linear_.scale(row + r, source);
        const auto i = static_cast<std::size_t>(g);
        tile.scale_f32[at][i] = scale;
        tile.scale_f16[at][i] = f32_to_f16(scale);
        tile.zero[at][i] = static_cast<std::uint8_t>(linear_.zero(row + r, source));
      }
    }
    out = write_tile(*scheme_, tile, col, width, out);
  }
}

}  // namespace trine
