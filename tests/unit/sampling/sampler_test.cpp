#include "sampling/sampler.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, double spread) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(spread * uniform_open(philox(seed, i, RngPurpose::kTest, 2), 0));
  }
  return out;
}

// Upper tail of the chi-square law by Wilson and Hilferty's cube-root approximation, as a normal
// deviate.
double chi_square_deviate(double statistic, double degrees) {
  const double v = 2.0 / (9.0 * degrees);
  return (std::cbrt(statistic / degrees) - (1.0 - v)) / std::sqrt(v);
}

// The draw follows the law: many positions of one seed against the exact probabilities. Fixed
// seeds, so a pass is a pass for ever; 4.5 standard deviations is a false alarm of 3e-6 when
// constants change.
TEST(Sampler, DrawsFollowTheLaw) {
  const std::vector<std::pair<std::string, SamplingParams>> cases = {
      {"plain", {}},
      {"hot", {.temperature = 2.5}},
      {"cold", {.temperature = 0.3}},
      {"top_k", {.top_k = 5}},
      {"top_p", {.temperature = 1.3, .top_p = 0.8}},
      {"min_p", {.min_p = 0.2}},
      {"typical", {.typical_p = 0.6}},
      {"all", {.temperature = 1.5, .top_k = 12, .top_p = 0.95, .min_p = 0.02, .typical_p = 0.9}},
  };
  constexpr std::int32_t kVocab = 16;
  constexpr int kDraws = 200000;
  std::uint64_t seed = 1000;
  for (const auto& [name, params] : cases) {
    const auto pipeline = *LogitsPipeline::create(params, kVocab, {});
    const std::vector<float> raw = random_logits(kVocab, ++seed, 3.0);
    TokenHistory history;
    history.reset({}, kVocab, false, 0);
    Scratch scratch;
    ASSERT_TRUE(pipeline.law(raw, history, scratch).has_value());
    const Law law = scratch.law;
    std::vector<int> seen(kVocab, 0);
    for (int position = 0; position < kDraws; ++position) {
      ++seen[static_cast<std::size_t>(draw(law, seed, static_cast<std::uint64_t>(position)))];
    }
    double statistic = 0.0;
    int total = 0;
    for (std::size_t i = 0; i < law.candidates.size(); ++i) {
      const double expected = law.probability(i) * kDraws;
      const int count = seen[static_cast<std::size_t>(law.candidates[i].token)];
      ASSERT_GT(expected, 5.0) << name;
      statistic += (count - expected) * (count - expected) / expected;
      total += count;
    }
    EXPECT_EQ(total, kDraws) << name << ": a token outside the support was drawn";
    if (law.candidates.size() > 1) {
      const double degrees = static_cast<double>(law.candidates.size() - 1);
      EXPECT_LT(chi_square_deviate(statistic, degrees), 4.5) << name;
    }
  }
}

// Draws at neighbouring positions, and of neighbouring seeds, are independent.
TEST(Sampler, NeighboursAreIndependent) {
  constexpr std::int32_t kVocab = 6;
  const auto pipeline = *LogitsPipeline::create({}, kVocab, {});
  const std::vector<float> raw = random_logits(kVocab, 77, 2.0);
  TokenHistory history;
  history.reset({}, kVocab, false, 0);
  Scratch scratch;
  ASSERT_TRUE(pipeline.law(raw, history, scratch).has_value());
  const Law& law = scratch.law;
  constexpr int kPairs = 100000;
  for (const bool by_seed : {false, true}) {
    std::vector<int> seen(kVocab * kVocab, 0);
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      const std::int32_t a = draw(law, by_seed ? 2 * i : 5, by_seed ? 3 : 2 * i);
      const std::int32_t b = draw(law, by_seed ? 2 * i + 1 : 5, by_seed ? 3 : 2 * i + 1);
      ++seen[static_cast<std::size_t>(a * kVocab + b)];
    }
    double statistic = 0.0;
    for (std::size_t a = 0; a < kVocab; ++a) {
      for (std::size_t b = 0; b < kVocab; ++b) {
        const double expected = law.probability(a) * law.probability(b) * kPairs;
        const double off = seen[a * kVocab + b] - expected;
        statistic += off * off / expected;
      }
    }
    EXPECT_LT(chi_square_deviate(statistic, kVocab * kVocab - 1), 4.5) << by_seed;
  }
}

TEST(Sampler, DependsOnSeedAndPositionOnly) {
  constexpr std::int32_t kVocab = 500;
  const auto pipeline = *LogitsPipeline::create({}, kVocab, {});
  Scratch fresh;
  Scratch used;
  TokenHistory history;
  int equal_positions = 0;
  int equal_seeds = 0;
  std::int32_t last = -1;
  for (std::int32_t length = 0; length < 200; ++length) {
    const std::vector<float> raw = random_logits(kVocab, 9, 1.0);
    history.reset(std::vector<std::int32_t>(static_cast<std::size_t>(length), length), kVocab,
                  false, 0);
    const std::int32_t token = *sample(pipeline, raw, history, 123, used);
    fresh = Scratch();
    EXPECT_EQ(token, *sample(pipeline, raw, history, 123, fresh));
    equal_positions += token == last ? 1 : 0;
    equal_seeds += token == *sample(pipeline, raw, history, 124, used) ? 1 : 0;
    last = token;
  }
  EXPECT_LT(equal_positions, 10);
  EXPECT_LT(equal_seeds, 10);
}

// The shortcut for uncut laws draws what the written-down law draws; the skipped logarithms change
// nothing.
TEST(Sampler, ShortcutEqualsTheRule) {
  constexpr std::int32_t kVocab = 3000;
  for (const double temperature : {0.2, 1.0, 5.0}) {
    const auto pipeline = *LogitsPipeline::create({.temperature = temperature}, kVocab, {});
    TokenHistory history;
    Scratch scratch;
    for (std::int32_t position = 0; position < 60; ++position) {
      std::vector<float> raw = random_logits(kVocab, static_cast<std::uint64_t>(position), 9.0);
      raw[static_cast<std::size_t>(position)] = -kInf;
      history.reset(std::vector<std::int32_t>(static_cast<std::size_t>(position), 0), kVocab, false,
                    0);
      const std::int32_t token = *sample(pipeline, raw, history, 5, scratch);
      ASSERT_TRUE(pipeline.law(raw, history, scratch).has_value());
      std::int32_t winner = -1;
      double best = std::numeric_limits<double>::infinity();
      for (const Candidate& candidate : scratch.law.candidates) {
        const double arrival =
            race_noise(5, static_cast<std::uint64_t>(position), candidate.token) / candidate.weight;
        if (arrival < best) {
          best = arrival;
          winner = candidate.token;
        }
      }
      EXPECT_EQ(token, winner);
      EXPECT_EQ(draw(scratch.law, 5, static_cast<std::uint64_t>(position)), winner);
    }
  }
}

// What speculation in coupled mode lives on: with shared noise two near laws mostly agree, without
// it they do not.
TEST(Sampler, NearLawsMostlyDrawTheSameToken) {
  constexpr std::int32_t kVocab = 64;
  const auto pipeline = *LogitsPipeline::create({}, kVocab, {});
  std::vector<float> p = random_logits(kVocab, 21, 3.0);
  std::vector<float> q = p;
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] += i % 2 == 0 ? 0.1f : -0.1f;
  }
  TokenHistory history;
  history.reset({}, kVocab, false, 0);
  Scratch scratch;
  ASSERT_TRUE(pipeline.law(p, history, scratch).has_value());
  const Law law_p = scratch.law;
  ASSERT_TRUE(pipeline.law(q, history, scratch).has_value());
  const Law law_q = scratch.law;
  double total_variation = 0.0;
  for (std::size_t i = 0; i < kVocab; ++i) {
    total_variation += 0.5 * std::abs(law_p.probability(i) - law_q.probability(i));
  }
  constexpr int kDraws = 20000;
  int shared = 0;
  int unrelated = 0;
  for (std::uint64_t t = 0; t < kDraws; ++t) {
    const std::int32_t token = draw(law_p, 1, t);
    shared += token == draw(law_q, 1, t) ? 1 : 0;
    unrelated += token == draw(law_q, 1, t, RngPurpose::kDraft) ? 1 : 0;
  }
  const double bound = (1.0 - total_variation) / (1.0 + total_variation);
  EXPECT_GT(shared, (bound - 0.01) * kDraws);
  EXPECT_LT(unrelated, 0.2 * kDraws);
}

TEST(Sampler, LogprobsComeFromTheRawLaw) {
  const std::vector<float> raw{1.0f, 3.0f, -kInf, 3.0f, 0.0f};
  const double total = std::exp(1.0) + 2.0 * std::exp(3.0) + 1.0;
  Scratch scratch;
  Logprobs out;
  raw_logprobs(raw, 0, 3, scratch, out);
  EXPECT_NEAR(out.chosen, 1.0 - std::log(total), 1e-14);
  ASSERT_EQ(out.top.size(), 3u);
  EXPECT_EQ(out.top[0].token, 1);
  EXPECT_EQ(out.top[1].token, 3);
  EXPECT_EQ(out.top[2].token, 0);
  EXPECT_EQ(out.top[0].logprob, out.top[1].logprob);
  raw_logprobs(raw, 2, 0, scratch, out);
  EXPECT_EQ(out.chosen, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(out.top.empty());
  raw_logprobs(raw, 1, 100, scratch, out);
  EXPECT_EQ(out.top.size(), 4u);
}

}  // namespace
}  // namespace trine::sampling
