#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "support/numeric.h"

namespace trine::kernels {
namespace {

using test::random_floats;
using test::random_int;
using test::same_bits;

// linear.h's chain, written from its text.
float chain(const float* w, const float* x, std::int64_t k) {
  std::array<float, 16> lanes{};
  const std::int64_t padded = (k + 15) / 16 * 16;
  for (std::int64_t i = 0; i < padded; ++i) {
    float& lane = lanes[static_cast<std::size_t>(i % 16)];
    lane = i < k ? std::fma(w[i], x[i], lane) : std::fma(0.0f, 0.0f, lane);
  }
  for (std::size_t d = 8; d > 0; d /= 2) {
    for (std::size_t j = 0; j < d; ++j) {
      lanes[j] += lanes[j + d];
    }
  }
  return lanes[0];
}

struct Case {
  std::int64_t num_w, num_x, k;
};

// Allocations end with the last row, so that a read past it is seen by the address sanitizer.
std::vector<float> run(IsaLevel level, const Case& c, const std::vector<float>& w,
                       std::int64_t w_stride, const std::vector<float>& x, std::int64_t x_stride,
                       const float* bias) {
  std::vector<float> y(static_cast<std::size_t>(c.num_x * c.num_w), -77.0f);
  linear_table(level).dot_rows(w.data(), w_stride, c.num_w, x.data(), x_stride, c.num_x, c.k, bias,
                               y.data(), c.num_w);
  return y;
}

TEST(LinearKernel, EveryLevelFollowsTheChain) {
  std::uint64_t seed = 100;
  for (const std::int64_t k : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 259}) {
    for (const std::int64_t num_w : {1, 2, 3, 4, 5, 7, 8, 9, 16, 19}) {
      for (const std::int64_t num_x : {1, 2, 3, 4, 5, 6, 7, 11, 13}) {
        const Case c{num_w, num_x, k};
        ++seed;
        const std::int64_t w_stride = k + random_int(seed, 0, 0, 3);
        const std::int64_t x_stride = k + random_int(seed, 1, 0, 3);
        auto w = random_floats(seed, (num_w - 1) * w_stride + k);
        auto x = random_floats(seed + 5000, (num_x - 1) * x_stride + k);
        // Whatever stands between the rows is not read.
        for (std::int64_t n = 0; n + 1 < num_w; ++n) {
          for (std::int64_t i = k; i < w_stride; ++i) {
            w[static_cast<std::size_t>(n * w_stride + i)] = std::nanf("");
          }
        }
        const auto bias = random_floats(seed + 9000, num_w);
        const bool with_bias = seed % 2 == 0;
        std::vector<float> expected;
        for (std::int64_t m = 0; m < num_x; ++m) {
          for (std::int64_t n = 0; n < num_w; ++n) {
            const float dot = chain(w.data() + n * w_stride, x.data() + m * x_stride, k);
            expected.push_back(with_bias ? dot + bias[static_cast<std::size_t>(n)] : dot);
          }
        }
        for (const IsaLevel level : test::machine_levels()) {
          ASSERT_TRUE(same_bits(
              run(level, c, w, w_stride, x, x_stride, with_bias ? bias.data() : nullptr), expected))
              << isa_level_name(level) << " w " << num_w << " x " << num_x << " k " << k;
        }
      }
    }
  }
}

TEST(LinearKernel, IsCloseToTheTrueSum) {
  const std::int64_t k = 3000;
  const auto w = random_floats(1, k);
  const auto x = random_floats(2, k);
  double truth = 0.0;
  double magnitude = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    truth += double{w[i]} * double{x[i]};
    magnitude += std::fabs(double{w[i]} * double{x[i]});
  }
  for (const IsaLevel level : test::machine_levels()) {
    const auto y = run(level, {1, 1, k}, w, k, x, k, nullptr);
    // k / 16 additions per lane, each within half an ulp of the running sum.
    EXPECT_NEAR(y[0], truth, magnitude * (3000.0 / 16.0 + 4.0) * 0x1p-24);
  }
}

TEST(LinearKernel, NanInfinityAndTinyValuesAgree) {
  const float specials[] = {std::nanf(""),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            1e-40f,
                            -1e-40f,
                            -0.0f,
                            3e38f};
  const Case c{9, 7, 37};
  for (std::uint64_t round = 0; round < 50; ++round) {
    auto w = random_floats(round, c.num_w * c.k, 1e-20f);
    auto x = random_floats(round + 100, c.num_x * c.k, 1e-20f);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto special = specials[static_cast<std::size_t>(random_int(round, i, 0, 6))];
      auto& target = i % 2 == 0 ? w : x;
      target[static_cast<std::size_t>(
          random_int(round, 10 + i, 0, static_cast<std::int64_t>(target.size()) - 1))] = special;
    }
    const auto expected = run(IsaLevel::kScalar, c, w, c.k, x, c.k, nullptr);
    for (const IsaLevel level : test::machine_levels()) {
      EXPECT_TRUE(same_bits(run(level, c, w, c.k, x, c.k, nullptr), expected))
          << isa_level_name(level);
    }
  }
}

// Stored rows against the same rows decoded to float32, at odd addresses.
template <typename W>
void check_stored(DotRows<W> LinearTable::*dot_rows, DType type, std::uint64_t seed) {
  const auto element = static_cast<std::int64_t>(sizeof(W));
  for (const std::int64_t k : {1, 7, 8, 9, 16, 37, 300}) {
    for (const std::int64_t num_x : {1, 2, 3, 5, 6, 7}) {
      const std::int64_t num_w = 13;
      std::vector<std::byte> bytes(static_cast<std::size_t>(num_w * k * element + 1));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] =
            static_cast<std::byte>(philox(seed, static_cast<std::uint64_t>(k), RngPurpose::kTest,
                                          static_cast<std::uint32_t>(i))[0]);
      }
      std::vector<float> decoded(static_cast<std::size_t>(num_w * k));
      kDequantScalar.row[static_cast<std::size_t>(type)](bytes.data() + 1, decoded.data(),
                                                         num_w * k);
      const auto x = random_floats(seed + 1, num_x * k);
      const auto expected = run(IsaLevel::kScalar, {num_w, num_x, k}, decoded, k, x, k, nullptr);
      for (const IsaLevel level : test::machine_levels()) {
        std::vector<float> y(expected.size(), -77.0f);
        (linear_table(level).*dot_rows)(reinterpret_cast<const W*>(bytes.data() + 1), k, num_w,
                                        x.data(), k, num_x, k, nullptr, y.data(), num_w);
        ASSERT_TRUE(same_bits(y, expected)) << isa_level_name(level) << " k " << k;
      }
    }
  }
}

TEST(LinearKernel, StoredFloatsGiveTheBitsOfDecodedOnes) {
  check_stored(&LinearTable::dot_rows_f16, DType::kF16, 1);
  check_stored(&LinearTable::dot_rows_bf16, DType::kBF16, 2);
  check_stored(&LinearTable::dot_rows_f8_e4m3, DType::kF8E4M3, 3);
  // Every code of eight bits.
  std::vector<std::byte> codes;
  for (int code = 0; code < 256; ++code) {
    codes.push_back(static_cast<std::byte>(code));
  }
  std::vector<float> decoded(256);
  kDequantScalar.row[static_cast<std::size_t>(DType::kF8E4M3)](codes.data(), decoded.data(), 256);
  const float one = 1.0f;
  for (const IsaLevel level : test::machine_levels()) {
    std::vector<float> y(256);
    linear_table(level).dot_rows_f8_e4m3(reinterpret_cast<const StoredF8E4M3*>(codes.data()), 1,
                                         256, &one, 1, 1, 1, nullptr, y.data(), 256);
    for (std::size_t i = 0; i < 256; ++i) {
      // A sum that starts at +0 makes -0 to +0.
      EXPECT_TRUE(same_bits(y[i], decoded[i] + 0.0f)) << i;
    }
  }
}

}  // namespace
}  // namespace trine::kernels
