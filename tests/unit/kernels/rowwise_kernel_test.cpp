#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "support/numeric.h"

namespace trine::kernels {
namespace {

using test::random_floats;
using test::same_bits;

constexpr float kInf = std::numeric_limits<float>::infinity();

const std::int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 100, 255, 577};

// Calls `fill` for every length and level and compares each level with scalar.
void expect_levels_agree(const std::function<std::vector<float>(const RowwiseTable&, std::int64_t,
                                                                std::uint64_t)>& compute) {
  std::uint64_t seed = 1;
  for (const std::int64_t n : kLengths) {
    ++seed;
    const auto expected = compute(kRowwiseScalar, n, seed);
    for (const IsaLevel level : test::machine_levels()) {
      ASSERT_TRUE(same_bits(compute(rowwise_table(level), n, seed), expected))
          << isa_level_name(level) << " n " << n;
    }
  }
}

// Random values of many magnitudes with the odd special one.
std::vector<float> wild_floats(std::uint64_t seed, std::int64_t n) {
  auto out = random_floats(seed, n);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::ldexp(out[i], static_cast<int>(test::random_int(seed, i, -12, 8)));
  }
  const float specials[] = {kInf, -kInf, std::nanf(""), -0.0f, 1e-41f, 88.8f, -103.9f, 3e38f};
  if (seed % 2 == 0) {
    for (std::size_t i = 0; i < out.size(); i += 11) {
      out[i] = specials[static_cast<std::size_t>(test::random_int(seed, 1000 + i, 0, 7))];
    }
  }
  return out;
}

TEST(RowwiseKernel, LevelsAgreeBitForBit) {
  expect_levels_agree([](const RowwiseTable& table, std::int64_t n, std::uint64_t seed) {
    const auto x = wild_floats(seed, n);
    const auto weight = random_floats(seed + 50, n);
    std::vector<float> y(x.size());
    table.rms_norm(x.data(), weight.data(), 1.0f, 1e-6f, n, y.data());
    return y;
  });
  for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kGeluErf}) {
    expect_levels_agree([kind](const RowwiseTable& table, std::int64_t n, std::uint64_t seed) {
      const auto gate = wild_floats(seed, n);
      const auto up = random_floats(seed + 50, n);
      std::vector<float> y(gate.size());
      table.gated(kind, gate.data(), up.data(), n, y.data());
      return y;
    });
  }
  for (const UnaryKind kind : {UnaryKind::kExp, UnaryKind::kTanh, UnaryKind::kErf}) {
    expect_levels_agree([kind](const RowwiseTable& table, std::int64_t n, std::uint64_t seed) {
      const auto x = wild_floats(seed, n);
      std::vector<float> y(x.size());
      table.unary(kind, x.data(), n, y.data());
      return y;
    });
  }
  expect_levels_agree([](const RowwiseTable& table, std::int64_t n, std::uint64_t seed) {
    auto x = wild_floats(seed, n);
    table.softmax(x.data(), n);
    return x;
  });
  expect_levels_agree([](const RowwiseTable& table, std::int64_t n, std::uint64_t seed) {
    auto x = wild_floats(seed, n);
    const auto y = wild_floats(seed + 7, n);
    table.add(x.data(), y.data(), n);
    table.scale(x.data(), 0.3f, n);
    return x;
  });
  for (const bool interleaved : {false, true}) {
    expect_levels_agree([interleaved](const RowwiseTable& table, std::int64_t n,
                                      std::uint64_t seed) {
      auto x = random_floats(seed, 2 * n);
      const auto cos = random_floats(seed + 1, n);
      const auto sin = random_floats(seed + 2, n);
      (interleaved ? table.rope_interleaved : table.rope_half)(x.data(), cos.data(), sin.data(), n);
      return x;
    });
  }
}

// Largest error in ulp over [low, high] in steps of `step` bit patterns, both signs of the pattern
// order.
double worst_ulp(UnaryKind kind, double (*truth)(double), float low, float high,
                 std::uint32_t step) {
  double worst = 0.0;
  std::vector<float> x;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(low);
       bits <= std::bit_cast<std::uint32_t>(high); bits += step) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-std::bit_cast<float>(bits));
  }
  std::vector<float> y(x.size());
  rowwise_table().unary(kind, x.data(), static_cast<std::int64_t>(x.size()), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, test::ulp_distance(y[i], truth(double{x[i]})));
  }
  return worst;
}

TEST(RowwiseKernel, ExpIsAccurateOverItsWholeRange) {
  EXPECT_LT(worst_ulp(UnaryKind::kExp, &std::exp, 1e-6f, 104.0f, 997), 1.1);
  EXPECT_LT(worst_ulp(UnaryKind::kExp, &std::exp, 80.0f, 103.97f, 31), 1.1);
}

TEST(RowwiseKernel, TanhAndErfAreAccurate) {
  EXPECT_LT(worst_ulp(UnaryKind::kTanh, &std::tanh, 1e-6f, 20.0f, 997), 3.0);
  EXPECT_LT(worst_ulp(UnaryKind::kErf, &std::erf, 1e-6f, 8.0f, 997), 3.0);
}

TEST(RowwiseKernel, ExactValues) {
  std::vector<float> x{0.0f, -0.0f, -kInf, kInf, 1000.0f, -1000.0f, 88.8f};
  std::vector<float> y(x.size());
  rowwise_table().unary(UnaryKind::kExp, x.data(), static_cast<std::int64_t>(x.size()), y.data());
  EXPECT_TRUE(same_bits(y, {1.0f, 1.0f, 0.0f, kInf, kInf, 0.0f, kInf}));
  x = {0.0f, -0.0f, kInf, -kInf, 30.0f};
  y.resize(x.size());
  rowwise_table().unary(UnaryKind::kTanh, x.data(), static_cast<std::int64_t>(x.size()), y.data());
  EXPECT_TRUE(same_bits(y, {0.0f, -0.0f, 1.0f, -1.0f, 1.0f}));
  rowwise_table().unary(UnaryKind::kErf, x.data(), static_cast<std::int64_t>(x.size()), y.data());
  EXPECT_TRUE(same_bits(y, {0.0f, -0.0f, 1.0f, -1.0f, 1.0f}));
  for (const UnaryKind kind : {UnaryKind::kExp, UnaryKind::kTanh, UnaryKind::kErf}) {
    const float nan = std::nanf("");
    float out = 0.0f;
    rowwise_table().unary(kind, &nan, 1, &out);
    EXPECT_TRUE(std::isnan(out));
  }
}

TEST(RowwiseKernel, ActivationsMatchTheirDefinitions) {
  const std::int64_t n = 4000;
  const auto gate = random_floats(3, n, 12.0f);
  const auto up = random_floats(4, n);
  std::vector<float> y(gate.size());
  for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kGeluErf}) {
    rowwise_table().gated(kind, gate.data(), up.data(), n, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double g = gate[i];
      double act = 0.0;
      if (kind == GateKind::kSilu) {
        act = g / (1.0 + std::exp(-g));
      } else if (kind == GateKind::kGeluTanh) {
        act = 0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g)));
      } else {
        act = 0.5 * g * (1.0 + std::erf(g / std::sqrt(2.0)));
      }
      // 1 + tanh cancels for negative g: absolute error of an ulp of 1, times |g| / 2.
      ASSERT_NEAR(y[i], act * double{up[i]}, 3e-7 * std::fabs(act) + 4e-7 * std::fabs(g)) << g;
    }
  }
}

TEST(RowwiseKernel, RmsNormAndSoftmaxMatchDoublePrecision) {
  for (const std::int64_t n : kLengths) {
    const auto x = random_floats(static_cast<std::uint64_t>(n), n, 4.0f);
    const auto weight = random_floats(9, n);
    std::vector<float> y(x.size());
    rowwise_table().rms_norm(x.data(), weight.data(), 1.0f, 1e-5f, n, y.data());
    double squares = 0.0;
    double total = 0.0;
    double max = -1e30;
    for (const float value : x) {
      squares += double{value} * double{value};
      max = std::max(max, double{value});
    }
    for (const float value : x) {
      total += std::exp(double{value} - max);
    }
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    auto soft = x;
    rowwise_table().softmax(soft.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], double{x[i]} * inverse * (1.0 + double{weight[i]}), 2e-6);
      EXPECT_NEAR(soft[i], std::exp(double{x[i]} - max) / total, 1e-6);
    }
  }
}

TEST(RowwiseKernel, RopeRotatesThePairsOfItsLayout) {
  const std::vector<float> x{1.0f, 2.0f, 3.0f, 4.0f};
  const std::vector<float> cos{0.0f, 1.0f};
  const std::vector<float> sin{1.0f,
                               0.0f};  // the first pair by a quarter turn, the second not at all
  auto half = x;
  rowwise_table().rope_half(half.data(), cos.data(), sin.data(), 2);
  EXPECT_EQ(half, (std::vector<float>{-3.0f, 2.0f, 1.0f, 4.0f}));
  auto interleaved = x;
  rowwise_table().rope_interleaved(interleaved.data(), cos.data(), sin.data(), 2);
  EXPECT_EQ(interleaved, (std::vector<float>{-2.0f, 1.0f, 3.0f, 4.0f}));
}

}  // namespace
}  // namespace trine::kernels
