#include "quant/layer_error.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "quant/dense.h"

namespace trine {
namespace {

constexpr std::int64_t kRows = 512;  // at a time, which bounds the memory

}  // namespace

double output_energy(ThreadTeam& team, std::span<const float> d, std::int64_t rows,
                     std::int64_t cols, std::span<const float> second_moments) {
  TRINE_CHECK(static_cast<std::int64_t>(d.size()) == rows * cols);
  double total = 0;
  const bool plain = second_moments.empty();
  TRINE_CHECK(plain || static_cast<std::int64_t>(second_moments.size()) == cols * cols);
  std::vector<float> products(plain ? 0 : static_cast<std::size_t>(std::min(rows, kRows) * cols));
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t count = std::min(kRows, rows - first);
    const float* part = d.data() + first * cols;
    if (!plain) {
      multiply_rows(team, {second_moments.data(), cols, cols, part, cols, count, cols,
                           products.data(), cols});
    }
    const float* other = plain ? part : products.data();
    for (std::int64_t i = 0; i < count * cols; ++i) {
      total += static_cast<double>(part[i]) * static_cast<double>(other[i]);
    }
  }
  return std::max(total, 0.0);
}

double output_error(ThreadTeam& team, const QuantizedWeights& q, std::span<const float> w,
                    std::span<const float> second_moments) {
  TRINE_CHECK(static_cast<std::int64_t>(w.size()) == q.rows * q.cols);
  double total = 0;
  std::vector<float> d(static_cast<std::size_t>(std::min(q.rows, kRows) * q.cols));
  for (std::int64_t first = 0; first < q.rows; first += kRows) {
    const std::int64_t count = std::min(kRows, q.rows - first);
    const auto part = std::span(d).first(static_cast<std::size_t>(count * q.cols));
    for (std::int64_t r = 0; r < count; ++r) {
      const auto row =
          part.subspan(static_cast<std::size_t>(r * q.cols), static_cast<std::size_t>(q.cols));
      q.dequantize_row(first + r, row);
      const float* exact = w.data() + (first + r) * q.cols;
      for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] -= exact[c];
      }
    }
    total += output_energy(team, part, count, q.cols, second_moments);
  }
  return total;
}

}  // namespace trine
