#include "ops/quantized_rows.h"

#include "base/check.h"
#include "kernels/dispatch.h"

namespace trine::ops {
namespace {

constexpr std::int64_t kCacheLine = 64;
// Below this many values waking the team costs more than it brings.
constexpr std::int64_t kMinParallelValues = std::int64_t{32} * 1024;

template <typename T>
void grow(std::vector<T>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
}

// Bytes from one row's codes to the next: whole cache lines, an odd number of them, so that the
// rows of a tile do not fall into the same few cache sets.
std::int64_t code_stride(std::int64_t cols) {
  const std::int64_t lines = (kernels::packed_padded_cols(cols) + kCacheLine - 1) / kCacheLine;
  return (lines | 1) * kCacheLine;
}

void gather(const float* x, std::span<const std::int32_t> order, float* out) {
  for (const std::int32_t from : order) {
    *out++ = from < 0 ? 0.0F : x[from];
  }
}

}  // namespace

void QuantizedRows::start(const LinearInput& input) {
  input_ = input;
  num_forms_ = 0;
}

kernels::PackedRows QuantizedRows::get(Context& ctx, const kernels::PackedScheme& scheme,
                                       std::span<const std::int32_t> order) {
  const std::int64_t cols = order.empty() ? input_.cols : static_cast<std::int64_t>(order.size());
  const std::int64_t group = kernels::packed_activation_group(scheme, cols);
  const std::int64_t sum_group = kernels::packed_group(scheme, cols);
  for (std::size_t i = 0; i < num_forms_; ++i) {
    if (forms_[i].group == group && forms_[i].sum_group == sum_group &&
        forms_[i].order.data() == order.data()) {
      return forms_[i].view;
    }
  }
  TRINE_CHECK(num_forms_ < forms_.size());  // there are no more matrices in one call
  Form& form = forms_[num_forms_++];
  form.group = group;
  form.sum_group = sum_group;
  form.order = order;
  form.cols = cols;
  fill(ctx, form);
  return form.view;
}

void QuantizedRows::fill(Context& ctx, Form& form) {
  const std::int64_t rows = input_.num_rows;
  const std::int64_t padded = kernels::packed_padded_cols(form.cols);
  const std::int64_t stride = code_stride(form.cols);
  const std::int64_t groups = (padded + form.group - 1) / form.group;
  const std::int64_t sums = (padded + form.sum_group - 1) / form.sum_group;
  grow(form.storage, rows * stride + kCacheLine);
  grow(form.scales, rows * groups);
  grow(form.sums, rows * sums);
  grow(form.scaled_sums, rows * sums);
  const auto address = reinterpret_cast<std::uintptr_t>(form.storage.data());
  form.codes = form.storage.data() + (kCacheLine - address % kCacheLine) % kCacheLine;
  form.view = {
      form.codes, stride, form.scales.data(), form.sums.data(), form.scaled_sums.data(), groups,
      sums,       rows};
  const kernels::PackedTable& table = kernels::packed_table();
  if (!form.order.empty()) {
    ctx.reserve_scratch(static_cast<std::size_t>(form.cols) * sizeof(float));
  }
  const auto work = [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = input_.x + t * input_.stride;
      if (!form.order.empty()) {
        auto* ordered = reinterpret_cast<float*>(ctx.scratch(thread_idx));
        gather(x, form.order, ordered);
        x = ordered;
      }
      table.quantize_row(x, form.cols, form.group, form.sum_group, form.codes + t * stride,
                         form.scales.data() + t * groups, form.sums.data() + t * sums,
                         form.scaled_sums.data() + t * sums);
    }
  };
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || rows * form.cols < kMinParallelValues) {
    work(0, rows, 0);
    return;
  }
  ctx.team().run([&](int thread_idx) {
    const auto [begin, end] = split_range(rows, 1, thread_idx, num_threads);
    work(begin, end, thread_idx);
  });
}

}  // namespace trine::ops
