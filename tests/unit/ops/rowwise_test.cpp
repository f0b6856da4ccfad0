#include <functional>

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "support/numeric.h"

namespace trine {
namespace {

using test::random_floats;
using test::same_bits;

// One operation on [rows, dim] data, in place.
using Op = std::function<void(ops::Context&, float* x, std::int64_t rows, std::int64_t first_row)>;

constexpr std::int64_t kDim = 96;
constexpr std::int64_t kRows = 400;  // enough elements for every operation to use the team

// Row by row on one thread equals all rows on any team and level.
void expect_row_independent(const Op& op) {
  const auto x = random_floats(1, kRows * kDim, 3.0f);
  auto expected = x;
  {
    const auto team = std::move(ThreadTeam::create(1)).value();
    ops::Context ctx(*team);
    for (std::int64_t t = 0; t < kRows; ++t) {
      op(ctx, expected.data() + t * kDim, 1, t);
    }
  }
  EXPECT_FALSE(same_bits(x, expected)) << "the operation did nothing";
  for (const int num_threads : {1, 2, 3, 5}) {
    const auto team = std::move(ThreadTeam::create(num_threads)).value();
    ops::Context ctx(*team);
    auto y = x;
    op(ctx, y.data(), kRows, 0);
    EXPECT_TRUE(same_bits(y, expected)) << num_threads << " threads";
  }
  const auto team = std::move(ThreadTeam::create(2)).value();
  for (const IsaLevel level : test::machine_levels()) {
    const test::ScopedIsaLevel scope(level);
    ops::Context ctx(*team);
    auto y = x;
    op(ctx, y.data(), kRows, 0);
    EXPECT_TRUE(same_bits(y, expected)) << isa_level_name(level);
  }
}

TEST(RowwiseOps, RmsNorm) {
  const auto weight = random_floats(2, kDim);
  expect_row_independent([&](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t) {
    ops::rms_norm(ctx, x, weight.data(), 1.0f, 1e-6f, kDim, rows, kDim, x);
  });
  // Rows of a wider matrix, as the norm of each head needs it.
  expect_row_independent([&](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t) {
    ops::rms_norm(ctx, x + 32, weight.data(), 0.0f, 1e-6f, 64, rows, kDim, x + 32);
  });
}

TEST(RowwiseOps, Add) {
  const auto y = random_floats(3, kRows * kDim);
  expect_row_independent([&](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t first) {
    ops::add(ctx, x, y.data() + first * kDim, rows * kDim);
  });
}

TEST(RowwiseOps, GatedActivations) {
  const auto up = random_floats(3, kRows * kDim);
  for (const auto act :
       {ops::Activation::kSilu, ops::Activation::kGeluTanh, ops::Activation::kGeluErf}) {
    expect_row_independent([&](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t first) {
      ops::gated_activation(ctx, act, x, up.data() + first * kDim, rows * kDim, x);
    });
  }
}

TEST(RowwiseOps, RopeRotatesEveryHeadAndLeavesTheRest) {
  const auto cos = random_floats(4, kRows * 8);
  const auto sin = random_floats(5, kRows * 8);
  for (const auto layout : {ops::RopeLayout::kHalf, ops::RopeLayout::kInterleaved}) {
    const Op rope = [&](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t first) {
      ops::rope(ctx, layout, x, kDim, rows, 4, 24, 16, cos.data() + first * 8,
                sin.data() + first * 8);
    };
    expect_row_independent(rope);
    const auto team = std::move(ThreadTeam::create(1)).value();
    ops::Context ctx(*team);
    const auto before = random_floats(6, kDim);
    auto x = before;
    rope(ctx, x.data(), 1, 2);
    for (std::size_t h = 0; h < 4; ++h) {
      const std::size_t partner = layout == ops::RopeLayout::kHalf ? 8 : 1;
      const float a = before[h * 24];
      const float b = before[h * 24 + partner];
      EXPECT_NEAR(x[h * 24], a * cos[16] - b * sin[16], 1e-6);
      EXPECT_NEAR(x[h * 24 + partner], b * cos[16] + a * sin[16], 1e-6);
      for (std::size_t d = 16; d < 24; ++d) {
        EXPECT_EQ(x[h * 24 + d], before[h * 24 + d]);
      }
    }
  }
}

TEST(RowwiseOps, Softmax) {
  expect_row_independent([](ops::Context& ctx, float* x, std::int64_t rows, std::int64_t) {
    ops::softmax_rows(ctx, x, rows, kDim);
  });
}

}  // namespace
}  // namespace trine
