// Rotary frequencies from the formulas, computed by hand; the goldens hold them to the reference as
// a whole.
#include <cmath>

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/config_sources.h"

namespace trine {
namespace {

RopeConfig plain(std::int32_t dim = 8) {
  RopeConfig rope;
  rope.rotary_dim = dim;
  return rope;
}

TEST(RopeFrequencies, AreInversePowersOfTheBase) {
  const std::vector<float> f = rope_inverse_frequencies(plain(), 100);
  ASSERT_EQ(f.size(), 4U);
  EXPECT_FLOAT_EQ(f[0], 1.0F);
  EXPECT_FLOAT_EQ(f[1], 0.1F);
  EXPECT_FLOAT_EQ(f[2], 0.01F);
  EXPECT_FLOAT_EQ(f[3], 0.001F);
}

TEST(RopeFrequencies, LinearDividesAll) {
  RopeConfig rope = plain();
  rope.scaling = RopeConfig::Scaling::kLinear;
  rope.factor = 4.0;
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 100)[1], 0.025F);
}

TEST(RopeFrequencies, StoredFactorsDivideEach) {
  RopeConfig rope = plain();
  rope.freq_factors = {1.0F, 2.0F, 4.0F, 8.0F};
  const std::vector<float> f = rope_inverse_frequencies(rope, 100);
  EXPECT_FLOAT_EQ(f[0], 1.0F);
  EXPECT_FLOAT_EQ(f[3], 0.000125F);
}

TEST(RopeFrequencies, Llama3KeepsShortWavesAndDividesLongOnes) {
  RopeConfig rope = plain();
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.factor = 8.0;
  rope.original_context = 100;  // waves under 25 are kept, over 100 divided
  const std::vector<float> f = rope_inverse_frequencies(rope, 1000);
  EXPECT_FLOAT_EQ(f[0], 1.0F);                                                  // wave 6.3
  EXPECT_FLOAT_EQ(f[2], 0.01F / 8.0F);                                          // wave 628
  const double smooth = (100.0 / (2.0 * 3.14159265358979 * 10.0) - 1.0) / 3.0;  // wave 62.8
  EXPECT_NEAR(f[1], (1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1, 1e-7);
}

TEST(RopeFrequencies, YarnKeepsFastDimensionsAndDividesSlowOnes) {
  RopeConfig rope = plain(64);
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 4.0;
  rope.original_context = 2048;
  const std::vector<float> scaled = rope_inverse_frequencies(rope, 8192);
  const std::vector<float> base = rope_inverse_frequencies(plain(64), 8192);
  EXPECT_EQ(scaled.front(), base.front());
  EXPECT_FLOAT_EQ(scaled.back(), base.back() / 4.0F);
  EXPECT_NEAR(yarn_attention_factor(4.0), 1.0 + 0.1 * std::log(4.0), 1e-12);
  EXPECT_EQ(yarn_attention_factor(0.5), 1.0);
}

TEST(RopeFrequencies, LongRopeChoosesByTheConfiguredContext) {
  RopeConfig rope = plain(4);
  rope.scaling = RopeConfig::Scaling::kLongRope;
  rope.original_context = 64;
  rope.short_factors = {1.0F, 2.0F};
  rope.long_factors = {4.0F, 8.0F};
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 64)[0], 1.0F);
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 64)[1], 0.005F);
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 65)[0], 0.25F);
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 65)[1], 0.00125F);
}

}  // namespace
}  // namespace trine
