#include "quant/dense.h"

#include <algorithm>

#include "kernels/dispatch.h"

namespace trine {

void multiply_rows(ThreadTeam& team, const RowsProduct& p) {
  // Rows of w that stay in the second-level cache while all of x passes by.
  constexpr std::int64_t kBlock = 32;
  const kernels::LinearTable& table = kernels::linear_table();
  team.run([&](int thread_idx) {
    const auto [begin, end] = split_range(p.num_w, kBlock, thread_idx, team.num_threads());
    for (std::int64_t n = begin; n < end; n += kBlock) {
      table.dot_rows(p.w + n * p.w_stride, p.w_stride, std::min(kBlock, end - n), p.x, p.x_stride,
                     p.num_x, p.k, nullptr, p.y + n, p.y_stride);
    }
  });
}

}  // namespace trine
