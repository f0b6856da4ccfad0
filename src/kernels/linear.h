// Family `linear`: dot products of float32 rows with rows of float32, or of a narrower float that
// is widened, which is exact, as it is read.
//
// Numeric contract, the chain of one dot product of length k: both rows are padded with zeros to a
// multiple of 16. Sixteen lanes start at +0; lane j takes the elements j, j + 16, j + 32, ... in
// ascending order, acc = fma(w, x, acc). Then lanes are folded in the order j + 8, j + 4, j + 2, j
// + 1 (sum[j] = sum[j] + sum[j + d]). The chain is the same for every tile shape and instruction
// set, so a row alone equals the row in a batch bit for bit. Shapes: w [num_w, k], x [num_x, k], y
// [num_x, num_w]; strides in elements; any num_w, num_x >= 0, k >= 1. No alignment is assumed.
// Errors: none. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace trine::kernels {

// Elements as they are stored, at any address.
struct StoredF16 {
  unsigned char bytes[2];
};

struct StoredBF16 {
  unsigned char bytes[2];
};

struct StoredF8E4M3 {
  unsigned char bytes[1];
};

template <typename W>
using DotRows = void (*)(const W* w, std::int64_t w_stride, std::int64_t num_w, const float* x,
                         std::int64_t x_stride, std::int64_t num_x, std::int64_t k,
                         const float* bias, float* y, std::int64_t y_stride);

struct LinearTable {
  // y[m][n] = dot(w[n], x[m]), then + bias[n] when bias is not null.
  DotRows<float> dot_rows;
  DotRows<StoredF16> dot_rows_f16;
  DotRows<StoredBF16> dot_rows_bf16;
  DotRows<StoredF8E4M3> dot_rows_f8_e4m3;
  // Rows of x that share a widened element; for more it is cheaper to widen rows of w once.
  std::int64_t rows_per_pass;
};

extern const LinearTable kLinearScalar;
extern const LinearTable kLinearAvx2;
extern const LinearTable kLinearAvx512;

}  // namespace trine::kernels
