// The operations that treat rows or elements one by one: the split over threads is all that happens
// here.
#include "kernels/rowwise.h"

#include "base/check.h"
#include "kernels/dispatch.h"
#include "ops/ops.h"

namespace trine::ops {
namespace {

// Below this many elements waking the team costs more than it brings.
constexpr std::int64_t kMinParallelElements = std::int64_t{16} * 1024;
constexpr std::int64_t kElementGrain = 16;  // one cache line of floats

// Calls work(begin, end) on parts of [0, total); `weight` elements stand behind each unit.
template <typename Work>
void parallel_for(Context& ctx, std::int64_t total, std::int64_t grain, std::int64_t weight,
                  Work&& work) {
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || total * weight < kMinParallelElements) {
    work(std::int64_t{0}, total);
    return;
  }
  ctx.team().run([&](int thread_idx) {
    const auto [begin, end] = split_range(total, grain, thread_idx, num_threads);
    if (begin < end) {
      work(begin, end);
    }
  });
}

kernels::GateKind gate_kind(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return kernels::GateKind::kSilu;
    case Activation::kGeluTanh:
      return kernels::GateKind::kGeluTanh;
    case Activation::kGeluErf:
      return kernels::GateKind::kGeluErf;
  }
  TRINE_CHECK(false);
  return kernels::GateKind::kSilu;
}

}  // namespace

void rms_norm(Context& ctx, const float* x, const float* weight, float weight_offset, float eps,
              std::int64_t dim, std::int64_t num_rows, std::int64_t stride, float* y) {
  TRINE_CHECK(dim > 0 && num_rows >= 0 && stride >= dim);
  const auto& table = kernels::rowwise_table();
  parallel_for(ctx, num_rows, 1, dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      table.rms_norm(x + t * stride, weight, weight_offset, eps, dim, y + t * stride);
    }
  });
}

void add(Context& ctx, float* x, const float* y, std::int64_t count) {
  TRINE_CHECK(count >= 0);
  const auto& table = kernels::rowwise_table();
  parallel_for(ctx, count, kElementGrain, 1, [&](std::int64_t begin, std::int64_t end) {
    table.add(x + begin, y + begin, end - begin);
  });
}

void gated_activation(Context& ctx, Activation act, const float* gate, const float* up,
                      std::int64_t count, float* out) {
  TRINE_CHECK(count >= 0);
  const auto& table = kernels::rowwise_table();
  const kernels::GateKind kind = gate_kind(act);
  parallel_for(ctx, count, kElementGrain, 4, [&](std::int64_t begin, std::int64_t end) {
    table.gated(kind, gate + begin, up + begin, end - begin, out + begin);
  });
}

void rope(Context& ctx, RopeLayout layout, float* x, std::int64_t stride, std::int64_t num_rows,
          std::int32_t num_heads, std::int32_t head_dim, std::int32_t rotary_dim, const float* cos,
          const float* sin) {
  TRINE_CHECK(num_rows >= 0 && num_heads > 0 && rotary_dim % 2 == 0 && rotary_dim >= 0);
  TRINE_CHECK(rotary_dim <= head_dim && stride >= std::int64_t{num_heads} * head_dim);
  const auto& table = kernels::rowwise_table();
  const auto rotate = layout == RopeLayout::kHalf ? table.rope_half : table.rope_interleaved;
  const std::int64_t half = rotary_dim / 2;
  parallel_for(ctx, num_rows, 1, std::int64_t{num_heads} * rotary_dim,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t t = begin; t < end; ++t) {
                   for (std::int64_t h = 0; h < num_heads; ++h) {
                     rotate(x + t * stride + h * head_dim, cos + t * half, sin + t * half, half);
                   }
                 }
               });
}

void softmax_rows(Context& ctx, float* x, std::int64_t num_rows, std::int64_t dim) {
  TRINE_CHECK(num_rows >= 0 && dim > 0);
  const auto& table = kernels::rowwise_table();
  parallel_for(ctx, num_rows, 1, 4 * dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      table.softmax(x + t * dim, dim);
    }
  });
}

}  // namespace trine::ops
