// Body of the linear family; contract in linear.h. TRINE_LANES_HEADER names the instruction set's
// lanes.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

// acc += w * x for one step of lanes of NW rows and NX rows; `load` reads a row's lanes. The
// operands of the smaller side are held in registers, those of the other pass one by one.
template <unsigned NW, unsigned NX, typename W, typename Load>
TRINE_LANES_INLINE void multiply_step(P (&acc)[NX][NW], const W* w, std::int64_t w_stride,
                                      const float* x, std::int64_t x_stride, Load load) {
  if constexpr (NX < NW) {
    P xv[NX];
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
      xv[m] = load(x + m * x_stride);
    }
#pragma GCC unroll 8
    for (unsigned n = 0; n < NW; ++n) {
      const P wv = load(w + n * w_stride);
#pragma GCC unroll 8
      for (unsigned m = 0; m < NX; ++m) {
        acc[m][n] = pfma(wv, xv[m], acc[m][n]);
      }
    }
  } else {
    P wv[NW];
#pragma GCC unroll 8
    for (unsigned n = 0; n < NW; ++n) {
      wv[n] = load(w + n * w_stride);
    }
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
      const P xv = load(x + m * x_stride);
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        acc[m][n] = pfma(wv[n], xv, acc[m][n]);
      }
    }
  }
}

// NW rows of w against NX rows of x, all sums in registers: part by part of the lanes, so that an
// instruction set with few registers can hold a large tile too.
template <unsigned NW, unsigned NX, typename W>
TRINE_LANES_INLINE void dot_tile(const W* w, std::int64_t w_stride, const float* x,
                                 std::int64_t x_stride, std::int64_t k, const float* bias, float* y,
                                 std::int64_t y_stride) {
  const std::int64_t whole = k & ~std::int64_t{15};
  P lanes[NX][NW][kParts];
#pragma GCC unroll 2
  for (unsigned part = 0; part < kParts; ++part) {
    P acc[NX][NW];
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        acc[m][n] = pzero();
      }
    }
    const std::int64_t first = std::int64_t{part} * (16 / kParts);
    for (std::int64_t i = first; i < whole; i += 16) {
      multiply_step<NW, NX>(acc, w + i, w_stride, x + i, x_stride, PartLoad{});
    }
    if (whole != k) {
      multiply_step<NW, NX>(acc, w + whole + first, w_stride, x + whole + first, x_stride,
                            PartLoadFirst{k - whole - first});
    }
#pragma GCC unroll 8
    for (unsigned m = 0; m < NX; ++m) {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        lanes[m][n][part] = acc[m][n];
      }
    }
  }
#pragma GCC unroll 8
  for (unsigned m = 0; m < NX; ++m) {
    float sums[NW];
    if constexpr (NW % 4 == 0) {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; n += 4) {
        vreduce_add4(vjoin(lanes[m][n]), vjoin(lanes[m][n + 1]), vjoin(lanes[m][n + 2]),
                     vjoin(lanes[m][n + 3]), sums + n);
      }
    } else {
#pragma GCC unroll 8
      for (unsigned n = 0; n < NW; ++n) {
        sums[n] = vreduce_add(vjoin(lanes[m][n]));
      }
    }
    for (unsigned n = 0; n < NW; ++n) {
      y[m * y_stride + n] = bias != nullptr ? sums[n] + bias[n] : sums[n];
    }
  }
}

// All of w against NX rows of x.
template <unsigned NX, typename W>
void dot_rows_x(const W* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
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

template <unsigned NX, typename W>
void dot_rows_remainder(const W* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
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

template <typename W>
void dot_rows(const W* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
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
