#include <cmath>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/dequant.h"
#include "ops/ops.h"
#include "support/numeric.h"

namespace trine {
namespace {

using test::random_floats;
using test::same_bits;

std::unique_ptr<ThreadTeam> make_team(int num_threads) {
  return std::move(ThreadTeam::create(num_threads)).value();
}

// A weight matrix of random bits with finite scales.
struct Weights {
  std::vector<std::byte> bytes;
  ops::WeightView view;
  std::vector<float> decoded;

  Weights(DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed,
          std::size_t misalign = 0) {
    const std::int64_t row_bytes = dtype_row_bytes(dtype, cols).value();
    bytes.resize(static_cast<std::size_t>(rows * row_bytes) + misalign);
    std::byte* data = bytes.data() + misalign;
    const auto values = random_floats(seed, rows * cols);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half =
          dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      if (dtype == DType::kF32) {
        std::memcpy(data + 4 * i, &values[i], 4);
      } else if (dtype == DType::kF16 || dtype == DType::kBF16) {
        std::memcpy(data + 2 * i, &half, 2);
      }
    }
    if (dtype == DType::kQ8_0) {  // blocks of an F16 scale and 32 signed bytes
      for (std::int64_t block = 0; block < rows * cols / 32; ++block) {
        const std::uint16_t scale =
            f32_to_f16(0.01f + 0.01f * test::random_float(seed, static_cast<std::uint64_t>(block)));
        std::memcpy(data + block * 34, &scale, 2);
        for (std::int64_t i = 0; i < 32; ++i) {
          data[block * 34 + 2 + i] =
              static_cast<std::byte>(philox(seed, static_cast<std::uint64_t>(block),
                                            RngPurpose::kTest, static_cast<std::uint32_t>(i))[0] &
                                     0xffu);
        }
      }
    }
    view = {dtype, rows, cols, data, row_bytes};
    decoded.resize(static_cast<std::size_t>(rows * cols));
    for (std::int64_t n = 0; n < rows; ++n) {
      kernels::dequantize_row(dtype, data + n * row_bytes, decoded.data() + n * cols, cols);
    }
  }
};

TEST(Linear, MatchesDoublePrecisionForEveryKindOfWeights) {
  const auto team = make_team(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const std::int64_t rows = 75;
    const std::int64_t cols = dtype == DType::kQ8_0 ? 96 : 101;
    const Weights w(dtype, rows, cols, 3);
    const std::int64_t x_stride = cols + 5;
    const std::int64_t y_stride = rows + 2;
    const auto x = random_floats(4, 9 * x_stride);
    const auto bias = random_floats(5, rows);
    for (const bool with_bias : {false, true}) {
      ops::Context ctx(*team);
      std::vector<float> y(static_cast<std::size_t>(9 * y_stride), -5.0f);
      ops::linear(ctx, w.view, with_bias ? bias.data() : nullptr, x.data(), x_stride, 9, y.data(),
                  y_stride);
      for (std::int64_t t = 0; t < 9; ++t) {
        for (std::int64_t n = 0; n < rows; ++n) {
          double truth = with_bias ? double{bias[static_cast<std::size_t>(n)]} : 0.0;
          for (std::int64_t k = 0; k < cols; ++k) {
            truth += double{w.decoded[static_cast<std::size_t>(n * cols + k)]} *
                     double{x[static_cast<std::size_t>(t * x_stride + k)]};
          }
          ASSERT_NEAR(y[static_cast<std::size_t>(t * y_stride + n)], truth, 2e-5);
        }
        // The gap between rows of y is not written.
        EXPECT_EQ(y[static_cast<std::size_t>(t * y_stride + rows)], -5.0f);
      }
    }
  }
}

TEST(Linear, RowsAloneEqualRowsInABatchForEveryTeamAndLevel) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const std::int64_t rows = 203;
    const std::int64_t cols = dtype == DType::kQ8_0 ? 320 : 333;
    const Weights w(dtype, rows, cols, 7);
    const auto x = random_floats(8, 17 * cols);
    std::vector<float> alone(static_cast<std::size_t>(17 * rows));
    {
      const auto team = make_team(1);
      ops::Context ctx(*team);
      for (std::int64_t t = 0; t < 17; ++t) {
        ops::linear(ctx, w.view, nullptr, x.data() + t * cols, cols, 1, alone.data() + t * rows,
                    rows);
      }
    }
    const auto batch = [&](ThreadTeam& team, std::int64_t m) {
      ops::Context ctx(team);
      std::vector<float> y(static_cast<std::size_t>(m * rows));
      ops::linear(ctx, w.view, nullptr, x.data(), cols, m, y.data(), rows);
      return y;
    };
    const auto first_rows = [&](std::int64_t m) {
      return std::vector<float>(alone.begin(), alone.begin() + m * rows);
    };
    for (const int num_threads : {1, 2, 3, 5}) {
      const auto team = make_team(num_threads);
      for (std::int64_t m = 1; m <= 17; ++m) {
        ASSERT_TRUE(same_bits(batch(*team, m), first_rows(m)))
            << dtype_info(dtype).name << " threads " << num_threads << " rows " << m;
      }
    }
    const auto team = make_team(2);
    for (const IsaLevel level : test::machine_levels()) {
      const test::ScopedIsaLevel scope(level);
      for (const std::int64_t m : {1, 4, 13}) {
        EXPECT_TRUE(same_bits(batch(*team, m), first_rows(m))) << isa_level_name(level);
      }
    }
  }
}

TEST(Linear, WeightsAtOddAddressesGiveTheSameBits) {
  const auto team = make_team(2);
  ops::Context ctx(*team);
  const auto x = random_floats(8, 3 * 70);
  const Weights aligned(DType::kF32, 600, 70, 7);
  std::vector<float> expected(3 * 600);
  ops::linear(ctx, aligned.view, nullptr, x.data(), 70, 3, expected.data(), 600);
  const Weights odd(DType::kF32, 600, 70, 7, 1);
  std::vector<float> y(3 * 600);
  ops::linear(ctx, odd.view, nullptr, x.data(), 70, 3, y.data(), 600);
  EXPECT_TRUE(same_bits(y, expected));
}

TEST(Linear, LongRowsAndSingleOutputs) {
  const auto team = make_team(3);
  ops::Context ctx(*team);
  // Rows so long that few fit a block.
  const Weights wide(DType::kF16, 20, 12000, 1);
  const auto x = random_floats(2, 2 * 12000);
  std::vector<float> y(40);
  ops::linear(ctx, wide.view, nullptr, x.data(), 12000, 2, y.data(), 20);
  const Weights single(DType::kF16, 1, 12000, 1);
  float first = 0.0f;
  ops::linear(ctx, single.view, nullptr, x.data(), 12000, 1, &first, 1);
  EXPECT_EQ(first, y[0]);
  ops::linear(ctx, single.view, nullptr, x.data(), 12000, 0, &first,
              1);  // no rows: nothing happens
  EXPECT_EQ(first, y[0]);
}

TEST(Embed, RowsAreDecodedAndScaled) {
  for (const int num_threads : {1, 3}) {
    const auto team = make_team(num_threads);
    ops::Context ctx(*team);
    const Weights table(DType::kQ8_0, 50, 512, 3);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 70; ++i) {
      ids.push_back(i * 7 % 50);
    }
    for (const float scale : {1.0f, 2.5f}) {
      std::vector<float> out(ids.size() * 512);
      ops::embed(ctx, table.view, ids, scale, out.data());
      for (std::size_t t = 0; t < ids.size(); ++t) {
        for (std::size_t i = 0; i < 512; ++i) {
          ASSERT_EQ(out[t * 512 + i],
                    table.decoded[static_cast<std::size_t>(ids[t]) * 512 + i] * scale);
        }
      }
    }
  }
}

TEST(OpsDeathTest, ShapesThatCannotBeAreBugs) {
  const auto team = make_team(1);
  ops::Context ctx(*team);
  const Weights w(DType::kF32, 4, 8, 1);
  float x[8] = {};
  float y[4] = {};
  EXPECT_DEATH(ops::linear(ctx, w.view, nullptr, x, 7, 1, y, 4), "internal check failed");
  ops::WeightView integers = w.view;
  integers.dtype = DType::kI32;
  EXPECT_DEATH(ops::linear(ctx, integers, nullptr, x, 8, 1, y, 4), "internal check failed");
  const std::int32_t outside = 4;
  EXPECT_DEATH(ops::embed(ctx, w.view, std::span<const std::int32_t>(&outside, 1), 1.0f, x),
               "internal check failed");
}

}  // namespace
}  // namespace trine
