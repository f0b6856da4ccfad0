// After warm-up no operation allocates (architecture: the step loop allocates nothing).
#include <gtest/gtest.h>

#include "support/alloc_counter.h"
#include "support/attention_case.h"

namespace trine {
namespace {

TEST(Ops, AllocateNothingAfterTheFirstStep) {
  const auto team = std::move(ThreadTeam::create(2)).value();
  ops::Context ctx(*team);
  const std::int64_t dim = 64;
  const std::int64_t rows = 40;
  const test::AttentionCase c({4, 2, 32, 32, 0, 0.0f, DType::kF16, 40}, 1);
  const test::Pages pages(c.geometry(), 40, 0);
  const std::vector<std::uint16_t> weights(static_cast<std::size_t>(1000 * dim), 0x3c00);
  const ops::WeightView w{DType::kF16, 1000, dim,
                          reinterpret_cast<const std::byte*>(weights.data()), 2 * dim};
  std::vector<float> x(static_cast<std::size_t>(rows * dim), 1.0f);
  std::vector<float> y(static_cast<std::size_t>(rows * 1000));
  std::vector<float> out(static_cast<std::size_t>(rows * c.out_width()));
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 3);
  const std::vector<std::int32_t> parents(20, -1);

  const auto step = [&](std::int32_t first_slot, std::int32_t num_rows, bool tree) {
    ops::AttentionSpan span;
    span.pages = pages.span();
    span.first_slot = first_slot;
    span.num_rows = num_rows;
    span.parents = tree ? parents.data() : nullptr;
    const std::span<const ops::AttentionSpan> spans(&span, 1);
    ops::embed(ctx, w, std::span(ids).first(static_cast<std::size_t>(num_rows)), 1.0f, x.data());
    ops::rms_norm(ctx, x.data(), x.data(), 0.0f, 1e-6f, dim, num_rows, dim, x.data());
    ops::linear(ctx, w, nullptr, x.data(), dim, num_rows, y.data(), 1000);
    ops::write_kv(ctx, c.geometry(), 1, spans, c.k.data(), c.k_width(), c.v.data(), c.v_width());
    ops::attention(ctx, c.geometry(), c.params(), spans, c.q.data(), c.q_width(), out.data(),
                   c.out_width());
    ops::add(ctx, x.data(), x.data(), num_rows * dim);
    ops::gated_activation(ctx, ops::Activation::kSilu, y.data(), y.data(), num_rows * 1000,
                          y.data());
    ops::softmax_rows(ctx, y.data(), num_rows, 1000);
  };
  const std::int64_t start = test::num_allocations();
  step(0, 40, false);
  step(20, 20, true);
  const std::int64_t warm = test::num_allocations();
  EXPECT_GT(warm, start) << "the counter counts";
  for (std::int32_t i = 0; i < 5; ++i) {
    step(0, 40, false);
    step(20, 20, true);
    step(30 + i, 1, false);
  }
  EXPECT_EQ(test::num_allocations(), warm);
}

}  // namespace
}  // namespace trine
