// linear() and embed(): weights in any dtype are turned into float32 rows, a few at a time, and
// then multiplied with every row of x while they are in the second-level cache.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/dequant.h"
#include "kernels/dispatch.h"
#include "ops/ops.h"

namespace trine::ops {
namespace {

// Decoded weights of one block: a part of a core's second-level cache, the rest is for x.
constexpr std::int64_t kBlockBytes = 256 * 1024;
constexpr std::int64_t kMaxBlockRows = 32;
// A row block of the split; also the number of floats in a cache line, so that two threads do not
// write one.
constexpr std::int64_t kSplitGrain = 16;
// Below this many multiplications waking the team costs more than it brings.
constexpr std::int64_t kMinParallelWork = 32 * 1024;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check_view(const WeightView& w) {
  TRINE_CHECK(w.data != nullptr && w.rows > 0 && w.cols > 0);
  TRINE_CHECK(dtype_info(w.dtype).decodes_to_f32);
  const auto row_bytes = dtype_row_bytes(w.dtype, w.cols);
  TRINE_CHECK(row_bytes.has_value() && w.row_bytes >= *row_bytes);
}

// F32 rows can be multiplied where they are, if they are aligned as floats.
bool usable_in_place(const WeightView& w) {
  return w.dtype == DType::kF32 && reinterpret_cast<std::uintptr_t>(w.data) % alignof(float) == 0 &&
         w.row_bytes % static_cast<std::int64_t>(sizeof(float)) == 0;
}

}  // namespace

void linear(Context& ctx, const WeightView& w, const float* bias, const float* x,
            std::int64_t x_stride, std::int64_t num_rows, float* y, std::int64_t y_stride) {
  check_view(w);
  TRINE_CHECK(num_rows >= 0 && x_stride >= w.cols && y_stride >= w.rows);
  if (num_rows == 0) {
    return;
  }
  const bool in_place = usable_in_place(w);
  const std::int64_t stride = in_place ? w.row_bytes / static_cast<std::int64_t>(sizeof(float))
                                       : round_up(w.cols, kSplitGrain);
  const std::int64_t fitting = kBlockBytes / (stride * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t block_rows = std::clamp<std::int64_t>(fitting / 8 * 8, 8, kMaxBlockRows);
  if (!in_place) {
    ctx.reserve_scratch(static_cast<std::size_t>(block_rows * stride) * sizeof(float));
  }
  const kernels::LinearTable& table = kernels::linear_table();
  const auto work = [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    for (std::int64_t n = begin; n < end; n += block_rows) {
      const std::int64_t count = std::min(block_rows, end - n);
      const float* rows = nullptr;
      if (in_place) {
        rows = reinterpret_cast<const float*>(w.data) + n * stride;
      } else {
        auto* decoded = reinterpret_cast<float*>(ctx.scratch(thread_idx));
        for (std::int64_t i = 0; i < count; ++i) {
          kernels::dequantize_row(w.dtype, w.data + (n + i) * w.row_bytes, decoded + i * stride,
                                  w.cols);
        }
        rows = decoded;
      }
      table.dot_rows(rows, stride, count, x, x_stride, num_rows, w.cols,
                     bias == nullptr ? nullptr : bias + n, y + n, y_stride);
    }
  };
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || w.rows * w.cols * num_rows < kMinParallelWork) {
    work(0, w.rows, 0);
    return;
  }
  ctx.team().run([&](int thread_idx) {
    const auto [begin, end] = split_range(w.rows, kSplitGrain, thread_idx, num_threads);
    work(begin, end, thread_idx);
  });
}

void embed(Context& ctx, const WeightView& table, std::span<const std::int32_t> ids, float scale,
           float* out) {
  check_view(table);
  for (const std::int32_t id : ids) {
    TRINE_CHECK(id >= 0 && id < table.rows);
  }
  const kernels::RowwiseTable& rowwise = kernels::rowwise_table();
  const auto work = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = out + t * table.cols;
      const std::int64_t id = ids[static_cast<std::size_t>(t)];
      kernels::dequantize_row(table.dtype, table.data + id * table.row_bytes, row, table.cols);
      if (scale != 1.0f) {
        rowwise.scale(row, scale, table.cols);
      }
    }
  };
  const auto num_rows = static_cast<std::int64_t>(ids.size());
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || num_rows * table.cols < kMinParallelWork) {
    work(0, num_rows);
    return;
  }
  ctx.team().run([&](int thread_idx) {
    const auto [begin, end] = split_range(num_rows, 1, thread_idx, num_threads);
    work(begin, end);
  });
}

}  // namespace trine::ops
