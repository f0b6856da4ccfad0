// linear() and embed(). Packed weights are multiplied as they are, and so are floats of the file
// for a few rows of x. Else weights in their file's form are turned into float32 rows, a few at a
// time, and then multiplied with every row of x while they are in the second-level cache.
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "kernels/dequant.h"
#include "kernels/dispatch.h"
#include "kernels/tuning.h"
#include "ops/ops.h"
#include "ops/quantized_rows.h"

namespace trine::ops {
namespace {

// Decoded weights of one block: a part of a core's second-level cache, the rest is for x.
constexpr std::int64_t kBlockBytes = std::int64_t{256} * 1024;
constexpr std::int64_t kMaxBlockRows = 32;
// A row block of the split; also the number of floats in a cache line, so that two threads do not
// write one.
constexpr std::int64_t kSplitGrain = 16;
// Below this many multiplications waking the team costs more than it brings.
constexpr std::int64_t kMinParallelWork = std::int64_t{32} * 1024;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check_view(const WeightView& w) {
  TRINE_CHECK(w.bound() && w.rows > 0 && w.cols > 0);
  if (w.source != nullptr) {
    TRINE_CHECK(w.row_bytes > 0);
    return;
  }
  TRINE_CHECK(dtype_info(w.dtype).decodes_to_f32);
  const auto row_bytes = dtype_row_bytes(w.dtype, w.cols);
  TRINE_CHECK(row_bytes.has_value() && w.row_bytes >= *row_bytes);
}

// Rows of w from row `first` on, `count` of them, times the input, where they stand in the file.
// False for what must be decoded first.
bool multiply_in_place(const LinearTask& task, const LinearInput& input, std::int64_t first,
                       std::int64_t count) {
  const WeightView& w = *task.w;
  if (w.source != nullptr) {
    return false;
  }
  const std::byte* data = w.data + first * w.row_bytes;
  const float* bias = task.bias == nullptr ? nullptr : task.bias + first;
  const kernels::LinearTable& table = kernels::linear_table();
  const auto multiply = [&]<typename W>(kernels::DotRows<W> dot_rows) {
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(W) != 0 ||
        w.row_bytes % static_cast<std::int64_t>(sizeof(W)) != 0) {
      return false;
    }
    dot_rows(reinterpret_cast<const W*>(data), w.row_bytes / static_cast<std::int64_t>(sizeof(W)),
             count, input.x, input.stride, input.num_rows, w.cols, bias, task.y + first,
             task.y_stride);
    return true;
  };
  if (w.dtype == DType::kF32) {
    return multiply(table.dot_rows);
  }
  if (input.num_rows > table.rows_per_pass) {
    return false;
  }
  switch (w.dtype) {
    case DType::kF16:
      return multiply(table.dot_rows_f16);
    case DType::kBF16:
      return multiply(table.dot_rows_bf16);
    case DType::kF8E4M3:
      return multiply(table.dot_rows_f8_e4m3);
    default:
      return false;
  }
}

// Rows of w from row `first` on, as float32.
void decode_rows(const WeightView& w, std::int64_t first, std::int64_t count, float* out,
                 std::int64_t stride) {
  if (w.source != nullptr) {
    w.source->read_rows(w.first_row + first, count, out, stride);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    kernels::dequantize_row(w.dtype, w.data + (first + i) * w.row_bytes, out + i * stride, w.cols);
  }
}

// Weight bytes that a member takes at a time: enough for the memory system to stream, few enough
// that a slow member does not hold up the others.
constexpr std::int64_t kGrabBytes = std::int64_t{128} * 1024;

// In the file's form, in float32.
void linear_f32(Context& ctx, const LinearInput& input, const LinearTask& task) {
  const WeightView& w = *task.w;
  check_view(w);
  const std::int64_t stride = round_up(w.cols, kSplitGrain);
  const std::int64_t fitting = kBlockBytes / (stride * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t block_rows = std::clamp<std::int64_t>(fitting / 8 * 8, 8, kMaxBlockRows);
  ctx.reserve_scratch(static_cast<std::size_t>(block_rows * stride) * sizeof(float));
  const auto work = [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    for (std::int64_t n = begin; n < end; n += block_rows) {
      const std::int64_t count = std::min(block_rows, end - n);
      if (multiply_in_place(task, input, n, count)) {
        continue;
      }
      auto* decoded = reinterpret_cast<float*>(ctx.scratch(thread_idx));
      decode_rows(w, n, count, decoded, stride);
      kernels::linear_table().dot_rows(
          decoded, stride, count, input.x, input.stride, input.num_rows, w.cols,
          task.bias == nullptr ? nullptr : task.bias + n, task.y + n, task.y_stride);
    }
  };
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || w.rows * w.cols * input.num_rows < kMinParallelWork) {
    work(0, w.rows, 0);
    return;
  }
  const std::int64_t grab =
      std::clamp<std::int64_t>(round_up(kGrabBytes / w.row_bytes, kSplitGrain), kSplitGrain,
                               std::max(kSplitGrain, round_up(w.rows / num_threads, kSplitGrain)));
  TurnQueue& queue = ctx.turns();
  queue.start((w.rows + grab - 1) / grab);
  ctx.team().run([&](int thread_idx) {
    for (std::int64_t turn = queue.next(thread_idx); turn >= 0; turn = queue.next(thread_idx)) {
      work(turn * grab, std::min((turn + 1) * grab, w.rows), thread_idx);
    }
  });
}

// A task of the packed kind, its quantized input and how its blocks are dealt out.
struct PackedJob {
  const LinearTask* task = nullptr;
  kernels::PackedRows rows{};
  std::int64_t blocks = 0;
  std::int64_t grab = 1;        // blocks per turn
  std::int64_t first_turn = 0;  // of all jobs' turns
};

void run_turn(const kernels::PackedTable& table, const kernels::Tuning& tuning,
              const PackedJob& job, std::int64_t turn, std::byte* scratch) {
  const std::int64_t begin = (turn - job.first_turn) * job.grab;
  const std::int64_t end = std::min(begin + job.grab, job.blocks);
  table.multiply(&job.task->w->packed, &job.rows, job.task->bias, job.task->y, job.task->y_stride,
                 begin, end, scratch, &tuning);
}

// At most kMaxJobs tasks.
constexpr std::size_t kMaxJobs = 4;

void linear_packed(Context& ctx, const LinearInput& input, std::span<const LinearTask> tasks) {
  std::array<PackedJob, kMaxJobs> jobs;
  std::size_t num_jobs = 0;
  std::int64_t turns = 0;
  std::int64_t work = 0;
  const int num_threads = ctx.team().num_threads();
  ctx.quantized_rows().start(input);
  for (const LinearTask& task : tasks) {
    const kernels::PackedMatrix& w = task.w->packed;
    if (w.data == nullptr) {
      continue;
    }
    PackedJob& job = jobs[num_jobs++];
    job.task = &task;
    job.rows = ctx.quantized_rows().get(ctx, w.scheme, task.w->input_order);
    job.blocks = (w.rows + kernels::kPackedBlockRows - 1) / kernels::kPackedBlockRows;
    const std::int64_t block_bytes = kernels::packed_block_bytes(w.scheme, w.cols);
    job.grab = std::clamp<std::int64_t>(kGrabBytes / block_bytes, 1,
                                        (job.blocks + num_threads - 1) / num_threads);
    job.first_turn = turns;
    turns += (job.blocks + job.grab - 1) / job.grab;
    work += w.rows * w.cols * input.num_rows;
  }
  if (num_jobs == 0) {
    return;
  }
  ctx.reserve_scratch(static_cast<std::size_t>(kernels::kPackedScratchBytes));
  const kernels::PackedTable& table = kernels::packed_table();
  const kernels::Tuning tuning = kernels::tuning(isa_level());
  TurnQueue& queue = ctx.turns();
  queue.start(turns);
  const auto member = [&](int thread_idx) {
    for (std::int64_t turn = queue.next(thread_idx); turn >= 0; turn = queue.next(thread_idx)) {
      std::size_t j = num_jobs - 1;
      while (turn < jobs[j].first_turn) {
        --j;
      }
      run_turn(table, tuning, jobs[j], turn, ctx.scratch(thread_idx));
    }
  };
  if (num_threads == 1 || work < kMinParallelWork) {
    member(0);
    return;
  }
  ctx.team().run(member);
}

}  // namespace

void linear(Context& ctx, const LinearInput& input, std::span<const LinearTask> tasks) {
  TRINE_CHECK(input.num_rows >= 0 && input.stride >= input.cols && tasks.size() <= kMaxJobs);
  if (input.num_rows == 0) {
    return;
  }
  for (const LinearTask& task : tasks) {
    TRINE_CHECK(task.w->cols == input.cols && task.y_stride >= task.w->rows);
    if (task.w->packed.data == nullptr) {
      linear_f32(ctx, input, task);
    } else {
      const std::span<const std::int32_t> order = task.w->input_order;
      TRINE_CHECK(task.w->packed.rows == task.w->rows &&
                  task.w->packed.cols ==
                      (order.empty() ? task.w->cols : static_cast<std::int64_t>(order.size())));
    }
  }
  linear_packed(ctx, input, tasks);
}

void linear(Context& ctx, const WeightView& w, const float* bias, const float* x,
            std::int64_t x_stride, std::int64_t num_rows, float* y, std::int64_t y_stride) {
  const LinearTask task{&w, bias, y, y_stride};
  linear(ctx, LinearInput{x, x_stride, num_rows, w.cols}, {&task, 1});
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
      decode_rows(table, id, 1, row, table.cols);
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
