// Products of dense float32 matrices for the quantizers, on the team. Each output element is one
// fixed chain (kernels/linear.h), so results do not depend on the number of threads.
// Thread rule: the thread that owns the team.
#pragma once

#include <cstdint>

#include "platform/thread_team.h"

namespace trine {

// y[m][n] = dot(w[n], x[m]) over k elements. Strides in elements.
struct RowsProduct {
  const float* w = nullptr;
  std::int64_t w_stride = 0;
  std::int64_t num_w = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t num_x = 0;
  std::int64_t k = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

void multiply_rows(ThreadTeam& team, const RowsProduct& product);

}  // namespace trine
