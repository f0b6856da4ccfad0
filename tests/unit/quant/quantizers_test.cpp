// The quantizers on synthetic layers: the ratios that held in every case measured for the reference
// (docs/quantization.md), on inputs that were not calibrated on.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "quant/awq.h"
#include "quant/gptq.h"
#include "quant/input_moments.h"
#include "quant/layer_error.h"
#include "quant/smooth.h"
#include "support/synthetic_layer.h"

namespace trine {
namespace {

std::unique_ptr<ThreadTeam> team_of(int threads) {
  auto team = ThreadTeam::create(threads);
  EXPECT_TRUE(team.has_value());
  return *std::move(team);
}

struct Moments {
  std::vector<float> h, importance, mean_abs, max_abs;
};

Moments moments_of(ThreadTeam& team, const std::vector<float>& x, std::int64_t cols,
                   std::int64_t tokens) {
  InputMoments moments(cols);
  moments.add(team, x.data(), cols, tokens);
  return {moments.second_moments(),
          moments.importance(),
          moments.mean_abs(),
          {moments.max_abs().begin(), moments.max_abs().end()}};
}

// ||(Q - W) X||^2 over the tokens, the slow way.
double true_error(const std::vector<float>& d, const std::vector<float>& x, std::int64_t cols) {
  double total = 0;
  for (std::size_t t = 0; t < x.size(); t += static_cast<std::size_t>(cols)) {
    for (std::size_t r = 0; r < d.size(); r += static_cast<std::size_t>(cols)) {
      double y = 0;
      for (std::size_t c = 0; c < static_cast<std::size_t>(cols); ++c) {
        y += static_cast<double>(d[r + c]) * static_cast<double>(x[t + c]);
      }
      total += y * y;
    }
  }
  return total;
}

TEST(InputMoments, AreTheMeansOfProductsWhateverTheThreadsAndTheCalls) {
  const test::SyntheticLayer layer(1, 0.3, 12.0F, 1, 70, 1500);
  const auto one = team_of(1);
  const auto three = team_of(3);
  const Moments a = moments_of(*one, layer.x, 70, 1500);
  const Moments b = moments_of(*three, layer.x, 70, 1500);
  EXPECT_EQ(0, std::memcmp(a.h.data(), b.h.data(), a.h.size() * sizeof(float)));
  InputMoments parts(70);
  parts.add(*three, layer.x.data(), 70, 1024);  // where a call cuts on its own
  parts.add(*three, layer.x.data() + 1024 * 70, 70, 476);
  EXPECT_EQ(parts.second_moments(), a.h);
  EXPECT_EQ(parts.num_tokens(), 1500);
  for (std::size_t i = 0; i < 70; i += 23) {
    for (std::size_t j = 0; j < 70; j += 11) {
      double sum = 0;
      for (std::size_t t = 0; t < 1500; ++t) {
        sum += static_cast<double>(layer.x[t * 70 + i]) * static_cast<double>(layer.x[t * 70 + j]);
      }
      EXPECT_NEAR(a.h[i * 70 + j], sum / 1500, 1e-5 * std::sqrt(a.importance[i] * a.importance[j]));
    }
  }
  double abs_sum = 0;
  float most = 0;
  for (std::size_t t = 0; t < 1500; ++t) {
    abs_sum += std::fabs(layer.x[t * 70 + 5]);
    most = std::max(most, std::fabs(layer.x[t * 70 + 5]));
  }
  EXPECT_NEAR(a.mean_abs[5], abs_sum / 1500, 1e-5);
  EXPECT_EQ(a.max_abs[5], most);
  EXPECT_TRUE(parts.finite());
  const std::vector<float> bad(70, std::nanf(""));
  parts.add(*one, bad.data(), 70, 1);
  EXPECT_FALSE(parts.finite());
}

TEST(LayerError, IsTheChangeOfTheOutputs) {
  const test::SyntheticLayer layer(2, 0.6, 12.0F, 24, 64, 512);
  const auto team = team_of(2);
  const Moments moments = moments_of(*team, layer.x, 64, 512);
  const QuantizedWeights q =
      round_to_nearest(*team, {3, 32, GridKind::kZeroPoint}, {}, layer.w, 24, 64, {}, nullptr);
  std::vector<float> d(layer.w.size());
  for (std::int64_t r = 0; r < 24; ++r) {
    q.dequantize_row(r, std::span(d).subspan(static_cast<std::size_t>(r) * 64, 64));
  }
  double plain = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    d[i] -= layer.w[i];
    plain += static_cast<double>(d[i]) * d[i];
  }
  const double exact = true_error(d, layer.x, 64) / 512;
  EXPECT_NEAR(output_error(*team, q, layer.w, moments.h), exact, 1e-4 * exact);
  EXPECT_NEAR(output_error(*team, q, layer.w, {}), plain, 1e-6 * plain);
}

TEST(QuantGrid, CoversTheRangeWithZeroAndStaysInBinary16) {
  for (const GridKind kind : {GridKind::kSymmetric, GridKind::kZeroPoint, GridKind::kMin}) {
    for (const int bits : {2, 3, 4, 8}) {
      const QuantScheme scheme{bits, 32, kind};
      const std::vector<std::vector<float>> cases = {
          {0.1F, 0.2F, 0.9F},    {-0.5F, -0.25F, -0.1F}, {-1.0F, 0.0F, 3.0F},
          {0.0F, 0.0F, 0.0F},    {1e-6F, -2e-6F, 5e-7F}, {60000.0F, -60000.0F, 1.0F},
          {-1.0F, -0.5F, -1.0F}, {7.0F, 7.0F, 7.0F}};
      for (const std::vector<float>& w : cases) {
        const GroupGrid grid = choose_grid(scheme, {}, w, {}, nullptr);
        EXPECT_EQ(grid.scale, f16_to_f32(f32_to_f16(grid.scale)));
        EXPECT_GT(grid.scale, 0.0F);
        EXPECT_EQ(grid.min, f16_to_f32(f32_to_f16(grid.min)));
        EXPECT_GE(grid.zero, 0);
        EXPECT_LT(grid.zero, scheme.levels());
        for (const float value : w) {
          // Half a step; the ends of a mirrored range and a rounded scale may lose another half.
          EXPECT_LE(std::fabs(grid.round(scheme, value) - value),
                    1.02F * grid.scale + 1e-3F * std::fabs(value) +
                        0x1p-25F * static_cast<float>(scheme.levels()))
              << bits << " bits, kind " << static_cast<int>(kind) << ", " << value;
          if (kind != GridKind::kMin) {
            EXPECT_EQ(grid.round(scheme, 0.0F), 0.0F);
          }
        }
      }
    }
  }
}

TEST(QuantGrid, AClipSearchNeverLosesByItsOwnMeasure) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  int num_clipped = 0;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<float> w(64);
    std::vector<float> importance(64);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = normal(rng);
      importance[i] = std::exp(normal(rng));
    }
    const QuantScheme scheme{3, 64, trial % 2 == 0 ? GridKind::kSymmetric : GridKind::kZeroPoint};
    bool clipped = false;
    const GroupGrid plain = choose_grid(scheme, {}, w, importance, nullptr);
    const GroupGrid best = choose_grid(scheme, {.enabled = true}, w, importance, &clipped);
    double plain_error = 0;
    double best_error = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      plain_error += importance[i] * std::pow(plain.round(scheme, w[i]) - w[i], 2);
      best_error += importance[i] * std::pow(best.round(scheme, w[i]) - w[i], 2);
    }
    EXPECT_LE(best_error, plain_error);
    EXPECT_EQ(clipped, best.scale != plain.scale);
    num_clipped += clipped ? 1 : 0;
  }
  EXPECT_GT(num_clipped, 25);
}

TEST(QuantizedWeights, ShortLastGroupAndWholeRowKeepTheirOwnGrids) {
  const auto team = team_of(2);
  std::vector<float> w(5 * 80);
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = (i % 80 < 64 ? 0.01F : 100.0F) * std::sin(static_cast<float>(i));
  }
  const QuantizedWeights groups =
      round_to_nearest(*team, {4, 64, GridKind::kSymmetric}, {}, w, 5, 80, {}, nullptr);
  EXPECT_EQ(groups.num_groups(), 2);
  std::vector<float> row(80);
  groups.dequantize_row(3, row);
  for (std::size_t c = 0; c < 64; ++c) {
    EXPECT_NEAR(row[c], w[3 * 80 + c], 0.0015);
  }
  const QuantizedWeights rows =
      round_to_nearest(*team, {8, 0, GridKind::kSymmetric}, {}, w, 5, 80, {}, nullptr);
  EXPECT_EQ(rows.num_groups(), 1);
  EXPECT_EQ(rows.code_bytes(), 400);
  EXPECT_EQ(rows.scale_bytes(), 10);
  EXPECT_EQ(rows.zero_bytes(), 0);
  EXPECT_EQ(groups.code_bytes(), 200);
  EXPECT_EQ(groups.scale_bytes(), 20);
}

TEST(InverseFactor, IsTheInverseAndSurvivesRankDeficiency) {
  const test::SyntheticLayer layer(4, 0.3, 1.0F, 1, 48, 400);
  const auto team = team_of(1);
  const Moments moments = moments_of(*team, layer.x, 48, 400);
  const InverseFactor factor = inverse_factor(moments.h, 48, 0.01);
  ASSERT_EQ(factor.transposed.size(), 48U * 48U);
  EXPECT_EQ(factor.damping, 0.01);
  double mean = 0;
  for (std::size_t i = 0; i < 48; ++i) {
    mean += moments.h[i * 48 + i] / 48;
  }
  // (H + d I) U^T U = I.
  for (std::size_t i = 0; i < 48; ++i) {
    for (std::size_t j = 0; j < 48; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 48; ++k) {
        double inverse = 0;
        for (std::size_t m = 0; m <= std::min(k, j); ++m) {
          inverse += static_cast<double>(factor.transposed[k * 48 + m]) *
                     static_cast<double>(factor.transposed[j * 48 + m]);
        }
        sum += (moments.h[i * 48 + k] + (i == k ? 0.01 * mean : 0.0)) * inverse;
      }
      EXPECT_NEAR(sum, i == j ? 1.0 : 0.0, 1e-4);
    }
  }
  // Ten tokens for 48 channels: damping alone makes it invertible, and more when there is none.
  const Moments few = moments_of(*team, layer.x, 48, 10);
  EXPECT_FALSE(inverse_factor(few.h, 48, 0.01).transposed.empty());
  std::vector<float> indefinite(4, 1.0F);
  indefinite[1] = indefinite[2] = 1.3F;
  const InverseFactor grown = inverse_factor(indefinite, 2, 0.01);
  EXPECT_FALSE(grown.transposed.empty()) << "more damping makes it definite";
  EXPECT_GT(grown.damping, 0.05);
  indefinite[1] = indefinite[2] = 100.0F;
  EXPECT_TRUE(inverse_factor(indefinite, 2, 0.01).transposed.empty());
}

struct Case {
  double exponent;
  float outlier;
  int bits;
  unsigned seed;
};

// Errors on held-out inputs, as shares of plain rounding's.
struct Shares {
  double gptq, ordered, awq;
};

Shares shares_of(const Case& c) {
  const auto team = team_of(2);
  const test::SyntheticLayer layer(c.seed, c.exponent, c.outlier);
  const Moments seen = moments_of(*team, layer.x, layer.cols, layer.tokens);
  const Moments other = moments_of(*team, layer.held_out, layer.cols, layer.tokens);
  const QuantScheme scheme{c.bits, 128, GridKind::kZeroPoint};
  const auto error = [&](const QuantizedWeights& q) {
    return output_error(*team, q, layer.w, other.h);
  };
  const double rtn =
      error(round_to_nearest(*team, scheme, {}, layer.w, layer.rows, layer.cols, {}, nullptr));
  GptqOptions options;
  options.act_order = false;
  Shares out{};
  out.gptq =
      error(gptq(*team, scheme, options, layer.w, layer.rows, layer.cols, seen.h).weights) / rtn;
  options.act_order = true;
  out.ordered =
      error(gptq(*team, scheme, options, layer.w, layer.rows, layer.cols, seen.h).weights) / rtn;
  const ScaledConsumer consumer{layer.w, layer.rows, scheme};
  const AwqScales awq =
      search_awq_scales(*team, {&consumer, 1}, layer.cols, {seen.h, seen.mean_abs, {}});
  EXPECT_LE(awq.loss, awq.plain_loss);
  std::vector<float> scaled = layer.w;
  const auto cols = static_cast<std::size_t>(layer.cols);
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] *= awq.scales[i % cols];
  }
  const QuantizedWeights q =
      round_to_nearest(*team, scheme, {}, scaled, layer.rows, layer.cols, {}, nullptr);
  std::vector<float> d(scaled.size());
  for (std::int64_t r = 0; r < layer.rows; ++r) {
    const auto row = std::span(d).subspan(static_cast<std::size_t>(r) * cols, cols);
    q.dequantize_row(r, row);
    for (std::size_t i = 0; i < cols; ++i) {
      row[i] = row[i] / awq.scales[i] - layer.w[static_cast<std::size_t>(r) * cols + i];
    }
  }
  out.awq = output_energy(*team, d, layer.rows, layer.cols, other.h) / rtn;
  return out;
}

TEST(Quantizers, HeldOutErrorsKeepTheRatiosOfTheReference) {
  for (const double exponent : {0.0, 0.3, 0.6}) {
    for (const float outlier : {1.0F, 12.0F}) {
      for (const int bits : {3, 4}) {
        const Shares s = shares_of({exponent, outlier, bits, 11});
        SCOPED_TRACE(fmt::format("exponent {}, outliers {}x, {} bits: {:.2f} {:.2f} {:.2f}",
                                 exponent, outlier, bits, s.gptq, s.ordered, s.awq));
        EXPECT_LT(s.gptq, 0.8);
        EXPECT_LT(s.ordered, 0.6);
        EXPECT_LE(s.ordered, s.gptq);
        EXPECT_LE(s.awq, 1.02);
        if (outlier > 1) {
          EXPECT_LT(s.awq, 0.75);
        }
      }
    }
  }
}

TEST(Gptq, IsRoundingWhenInputsAreIndependentAndAlike) {
  const auto team = team_of(1);
  const test::SyntheticLayer layer(5, 0, 1.0F, 8, 96, 1);
  std::vector<float> identity(96 * 96, 0.0F);
  for (std::size_t i = 0; i < 96; ++i) {
    identity[i * 97] = 1.0F;
  }
  const QuantScheme scheme{4, 32, GridKind::kSymmetric};
  for (const bool ordered : {false, true}) {
    GptqOptions options;
    options.act_order = ordered;
    const GptqResult result = gptq(*team, scheme, options, layer.w, 8, 96, identity);
    EXPECT_EQ(result.weights.codes,
              round_to_nearest(*team, scheme, {}, layer.w, 8, 96, {}, nullptr).codes);
    EXPECT_FALSE(result.fell_back);
  }
}

TEST(Gptq, DoesNotDependOnTheThreadsAndTreatsDeadColumnsAndBadMoments) {
  const auto one = team_of(1);
  const auto three = team_of(3);
  test::SyntheticLayer layer(6, 0.3, 12.0F, 70, 300, 900);
  for (std::size_t t = 0; t < 900; ++t) {
    layer.x[t * 300 + 17] = 0.0F;
    layer.x[t * 300 + 299] = 0.0F;
  }
  const Moments moments = moments_of(*three, layer.x, 300, 900);
  const QuantScheme scheme{4, 128, GridKind::kZeroPoint};
  const GptqResult a = gptq(*one, scheme, {}, layer.w, 70, 300, moments.h);
  const GptqResult b = gptq(*three, scheme, {}, layer.w, 70, 300, moments.h);
  EXPECT_EQ(a.weights.codes, b.weights.codes);
  EXPECT_EQ(a.weights.scales, b.weights.scales);
  EXPECT_EQ(a.weights.zeros, b.weights.zeros);
  EXPECT_EQ(a.dead_columns, 2);
  std::vector<float> row(300);
  a.weights.dequantize_row(9, row);
  EXPECT_EQ(row[17], 0.0F);
  EXPECT_EQ(row[299], 0.0F);
  std::vector<float> impossible(300 * 300, 1e6F);
  for (std::size_t i = 0; i < 300; ++i) {
    impossible[i * 301] = 1.0F;
  }
  const GptqResult fallen = gptq(*three, scheme, {}, layer.w, 70, 300, impossible);
  EXPECT_TRUE(fallen.fell_back);
  EXPECT_EQ(fallen.weights.codes,
            round_to_nearest(*one, scheme, {}, layer.w, 70, 300, {}, nullptr).codes);
}

TEST(Gptq, EverySchemeBeatsRounding) {
  const auto team = team_of(2);
  const test::SyntheticLayer layer(7, 0.3, 4.0F, 32, 160, 1600);
  const Moments moments = moments_of(*team, layer.x, 160, 1600);
  for (const int bits : {2, 3, 4, 8}) {
    for (const std::int32_t group : {0, 32, 64, 128, 256}) {
      for (const GridKind kind : {GridKind::kSymmetric, GridKind::kZeroPoint, GridKind::kMin}) {
        const QuantScheme scheme{bits, group, kind};
        const double rtn =
            output_error(*team, round_to_nearest(*team, scheme, {}, layer.w, 32, 160, {}, nullptr),
                         layer.w, moments.h);
        for (const bool ordered : {false, true}) {
          GptqOptions options;
          options.act_order = ordered;
          const double error =
              output_error(*team, gptq(*team, scheme, options, layer.w, 32, 160, moments.h).weights,
                           layer.w, moments.h);
          EXPECT_LT(error, 0.9 * rtn) << scheme.text() << (ordered ? " ordered" : "");
        }
      }
    }
  }
}

TEST(Awq, TiedChannelsShareOneScale) {
  const auto team = team_of(2);
  const test::SyntheticLayer layer(8, 0.3, 20.0F, 16, 64, 600);
  const Moments moments = moments_of(*team, layer.x, 64, 600);
  std::vector<std::int32_t> tied(64);
  for (std::size_t i = 0; i < 64; ++i) {
    tied[i] = static_cast<std::int32_t>(i / 32 * 16 + i % 16);  // two heads of 16 on each of two
  }
  const ScaledConsumer consumer{layer.w, 16, {3, 32, GridKind::kZeroPoint}};
  const AwqScales result =
      search_awq_scales(*team, {&consumer, 1}, 64, {moments.h, moments.mean_abs, tied});
  EXPECT_LT(result.loss, result.plain_loss);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(result.scales[i], result.scales[i / 32 * 32 + i % 16]);
  }
}

TEST(Smooth, FindsTheOutliersAndNeverLoses) {
  const auto team = team_of(2);
  const std::vector<float> alphas{0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F};
  for (const float outlier : {1.0F, 60.0F}) {
    const test::SyntheticLayer layer(9, 0.0, outlier, 48, 128, 600);
    const Moments moments = moments_of(*team, layer.x, 128, 600);
    const ScaledConsumer consumer{layer.w, 48, {8, 0, GridKind::kSymmetric}};
    const SmoothScales result = search_smooth_scales(
        *team, {&consumer, 1}, 128,
        {moments.max_abs, std::span(layer.held_out).first(64 * 128), 64}, alphas);
    EXPECT_LE(result.loss, result.plain_loss);
    EXPECT_LE(result.weight_loss, result.loss);
    if (outlier > 1) {
      EXPECT_LT(result.loss, 0.2 * result.plain_loss);
      EXPECT_GE(result.alpha, 0.4F);
    }
  }
}

}  // namespace
}  // namespace trine
