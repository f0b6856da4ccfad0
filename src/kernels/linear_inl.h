// Body of the linear family; contract in linear.h. TRINE_LANES_HEADER names the instruction set's
// lanes.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

// num_w = NW rows of w against num_x = NX rows of x, all sums in registers.
template <unsigned NW, unsigned NX>
TRINE_LANES_INLINE void dot_tile(const float* w, std::int64_t w_stride, const float* x,
                                 std::int64_t x_stride, std::int64_t k, const float* bias, float* y,
                                 std::int64_t y_stride) {
  V acc[NX][NW];
#pragma GCC unroll 8
  for (unsigned m = 0; m < NX; ++m) {
#pragma GCC unroll 8
    for (unsigned n = 0; n < NW; ++n) {
      acc[m][n] = vzero();
    }
  }
  const std::int64_t whole = k & ~std::int64_t{15};
  for (std::int64_t i = 0; i < whole; i += 16) {
    V wv[NW];
#pragma GCC unroll 8
    for (unsigned n = 0; n < NW; ++n) {
      wv[n] = vload(w + n * w_stride + i);
    }
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
      const V xv = vload(x + m * x_stride + i);
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        acc[m][n] = vfma(wv[n], xv, acc[m][n]);
      }
    }
  }
  if (whole != k) {
    V wv[NW];
#pragma GCC unroll 8
    for (unsigned n = 0; n < NW; ++n) {
      wv[n] = vload_n(w + n * w_stride + whole, k - whole);
    }
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
      const V xv = vload_n(x + m * x_stride + whole, k - whole);
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        acc[m][n] = vfma(wv[n], xv, acc[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (unsigned m = 0; m < NX; ++m) {
    float sums[NW];
    if constexpr (NW % 4 == 0) {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; n += 4) {
        vreduce_add4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3], sums + n);
      }
    } else {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        sums[n] = vreduce_add(acc[m][n]);
      }
    }
    for (unsigned n = 0; n < NW; ++n) {
      y[m * y_stride + n] = bias != nullptr ? sums[n] + bias[n] : sums[n];
    }
  }
}

// All of w against NX rows of x.
template <unsigned NX>
void dot_rows_x(const float* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
                std::int64_t x_stride, std::int64_t k, const float* bias, float* y,
                std::int64_t y_stride) {
  constexpr unsigned kRows = tile_w_rows(NX);
  std::int64_t n = 0;
  for (; n + kRows <= num_w; n += kRows) {
    dot_tile<kRows, NX>(w + n * w_stride, w_stride, x, x_stride, k,
                        bias != nullptr ? bias + n : nullptr, y + n, y_stride);
  }
  for (; n < num_w; ++n) {
    dot_tile<1, NX>(w + n * w_stride, w_stride, x, x_stride, k,
                    bias != nullptr ? bias + n : nullptr, y + n, y_stride);
  }
}

template <unsigned NX>
void dot_rows_remainder(const float* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
                        std::int64_t x_stride, std::int64_t num_x, std::int64_t k,
                        const float* bias, float* y, std::int64_t y_stride) {
  if constexpr (NX > 0) {
    if (num_x == NX) {
      dot_rows_x<NX>(w, w_stride, num_w, x, x_stride, k, bias, y, y_stride);
    } else {
      dot_rows_remainder<NX - 1>(w, w_stride, num_w, x, x_stride, num_x, k, bias, y, y_stride);
    }
  }
}

void dot_rows(const float* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
              std::int64_t x_stride, std::int64_t num_x, std::int64_t k, const float* bias,
              float* y, std::int64_t y_stride) {
  // The rows of x stay in the first-level cache while the rows of w pass by.
  std::int64_t m = 0;
  for (; m + kMaxTileX <= num_x; m += kMaxTileX) {
    dot_rows_x<kMaxTileX>(w, w_stride, num_w, x + m * x_stride, x_stride, k, bias, y + m * y_stride,
                          y_stride);
  }
  dot_rows_remainder<kMaxTileX - 1>(w, w_stride, num_w, x + m * x_stride, x_stride, num_x - m, k,
                                    bias, y + m * y_stride, y_stride);
}

}  // namespace
}  // namespace trine::kernels
