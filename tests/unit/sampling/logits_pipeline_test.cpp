#include "sampling/logits_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace trine::sampling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

// One evaluation over a fresh history.
struct Eval {
  explicit Eval(const SamplingParams& params, std::int32_t vocab_size,
                std::vector<std::int32_t> stop_ids = {})
      : pipeline(*LogitsPipeline::create(params, vocab_size, stop_ids)) {
    history.reset({}, vocab_size, pipeline.needs_counts(), 16);
  }

  void prompt(std::vector<std::int32_t> tokens) {
    history.reset(tokens, pipeline.vocab_size(), pipeline.needs_counts(), 16);
  }

  std::vector<float> adjusted(const std::vector<float>& raw) {
    const auto out = pipeline.adjust(raw, history, scratch);
    EXPECT_TRUE(out.has_value());
    return {out->begin(), out->end()};
  }

  std::vector<std::int32_t> support(const std::vector<float>& raw) {
    const Status status = pipeline.law(raw, history, scratch);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    std::vector<std::int32_t> out;
    for (const Candidate& candidate : scratch.law.candidates) {
      out.push_back(candidate.token);
    }
    return out;
  }

  LogitsPipeline pipeline;
  TokenHistory history;
  Scratch scratch;
};

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, double spread = 8.0) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto block = philox(seed, i, RngPurpose::kTest, 1);
    out[i] = static_cast<float>(spread * (uniform_open(block, 0) + uniform_open(block, 1) - 1.0));
  }
  return out;
}

std::vector<float> log_of(const std::vector<double>& law) {
  std::vector<float> out;
  for (const double p : law) {
    out.push_back(static_cast<float>(std::log(p)));
  }
  return out;
}

TEST(LogitsPipeline, NothingAskedForGivesTheRawLogitsInPlace) {
  Eval eval({}, 3);
  const std::vector<float> raw{1.0f, -2.0f, 0.5f};
  const auto out = eval.pipeline.adjust(raw, eval.history, eval.scratch);
  EXPECT_EQ(out->data(), raw.data());
}

TEST(LogitsPipeline, PenaltiesFollowTheirDefinitions) {
  Eval eval({.repetition_penalty = 2.0, .presence_penalty = 0.5, .frequency_penalty = 0.25}, 5);
  eval.prompt({0, 1, 1});
  eval.history.append(2);
  eval.history.append(1);
  eval.history.append(2);
  // 0: prompt only. 1: prompt and once in the output. 2: twice in the output. 3: nowhere. 4:
  // nowhere.
  EXPECT_THAT(eval.adjusted({4.0f, -1.0f, 3.0f, 3.0f, -1.0f}),
              ElementsAre(2.0f, -2.0f - 0.5f - 0.25f, 1.5f - 0.5f - 0.5f, 3.0f, -1.0f));
  eval.history.rollback(3);
  EXPECT_THAT(eval.adjusted({4.0f, -1.0f, 3.0f, 3.0f, -1.0f}),
              ElementsAre(2.0f, -2.0f, 3.0f, 3.0f, -1.0f));
}

TEST(LogitsPipeline, BiasComesAfterPenalties) {
  Eval eval({.repetition_penalty = 2.0, .logit_bias = {{0, 1.0}}}, 2);
  eval.prompt({0});
  EXPECT_THAT(eval.adjusted({4.0f, 1.0f}), ElementsAre(3.0f, 1.0f));
}

TEST(LogitsPipeline, BadWordsCannotBeCompleted) {
  Eval eval({.bad_words = {{3}, {1, 2}, {0, 1, 0}}}, 4);
  const std::vector<float> raw(4, 1.0f);
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(1.0f, 1.0f, 1.0f, -kInf));
  eval.prompt({0});
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(1.0f, 1.0f, 1.0f, -kInf));
  eval.history.append(1);  // a sequence may begin in the prompt
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(-kInf, 1.0f, -kInf, -kInf));
  eval.history.append(1);
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(1.0f, 1.0f, -kInf, -kInf));
}

TEST(LogitsPipeline, BadWordsBeatBias) {
  Eval eval({.logit_bias = {{1, 100.0}}, .bad_words = {{1}}}, 2);
  EXPECT_THAT(eval.adjusted({0.0f, 0.0f}), ElementsAre(0.0f, -kInf));
}

TEST(LogitsPipeline, MinTokensHoldsStopIdsBack) {
  Eval eval({.min_tokens = 2}, 3, {0, 2});
  eval.prompt({1, 1, 1});
  const std::vector<float> raw(3, 1.0f);
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(-kInf, 1.0f, -kInf));
  eval.history.append(1);
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(-kInf, 1.0f, -kInf));
  eval.history.append(1);
  EXPECT_THAT(eval.adjusted(raw), ElementsAre(1.0f, 1.0f, 1.0f));
}

TEST(LogitsPipeline, GreedyTakesTheLowestIdAmongEquals) {
  Eval eval({.temperature = 0.0}, 4);
  EXPECT_THAT(eval.support({1.0f, 3.0f, 3.0f, -kInf}), ElementsAre(1));
  EXPECT_THAT(eval.support({-0.0f, 0.0f, -1.0f, -2.0f}), ElementsAre(0));
}

TEST(LogitsPipeline, TopKKeepsExactlyKWithTiesById) {
  Eval eval({.top_k = 3}, 5);
  EXPECT_THAT(eval.support({1.0f, 2.0f, 2.0f, 2.0f, 2.0f}), ElementsAre(1, 2, 3));
  EXPECT_THAT(eval.support({0.0f, -kInf, -0.0f, -kInf, 5.0f}), ElementsAre(4, 0, 2));
  EXPECT_THAT(eval.support({-kInf, -kInf, -kInf, -kInf, 5.0f}), ElementsAre(4));
}

TEST(LogitsPipeline, TopPKeepsTheTokenThatCrosses) {
  const std::vector<float> raw = log_of({0.1, 0.5, 0.1, 0.3});
  EXPECT_THAT(Eval({.top_p = 0.45}, 4).support(raw), ElementsAre(1));
  EXPECT_THAT(Eval({.top_p = 0.6}, 4).support(raw), ElementsAre(1, 3));
  EXPECT_THAT(Eval({.top_p = 0.85}, 4).support(raw), ElementsAre(1, 3, 0));
  EXPECT_THAT(Eval({.top_p = 1e-12}, 4).support(raw), ElementsAre(1));
}

TEST(LogitsPipeline, TopPWorksOnWhatTopKLeft) {
  // After top-k 2 the laws are 5/8 and 3/8.
  const std::vector<float> raw = log_of({0.1, 0.5, 0.1, 0.3});
  EXPECT_THAT(Eval({.top_k = 2, .top_p = 0.6}, 4).support(raw), ElementsAre(1));
  EXPECT_THAT(Eval({.top_k = 2, .top_p = 0.7}, 4).support(raw), ElementsAre(1, 3));
}

TEST(LogitsPipeline, MinPComparesWithTheBest) {
  const std::vector<float> raw = log_of({0.1, 0.5, 0.1001, 0.3});
  EXPECT_THAT(Eval({.min_p = 0.5}, 4).support(raw), ElementsAre(1, 3));
  EXPECT_THAT(Eval({.min_p = 0.2001}, 4).support(raw), ElementsAre(1, 2, 3));
  EXPECT_THAT(Eval({.min_p = 1.0}, 4).support({1.0f, 3.0f, 3.0f, 2.0f}), ElementsAre(1, 2));
  EXPECT_THAT(Eval({.min_p = 1e-310}, 4).support(raw), ElementsAre(0, 1, 2, 3));
}

TEST(LogitsPipeline, TypicalPrefersTheExpectedSurprise) {
  // Entropy 1.28 nats; surprises 0.69, 1.61, 2.30, 2.30: 0.2 is nearest, then 0.5.
  const std::vector<float> raw = log_of({0.5, 0.2, 0.1, 0.1, 0.1});
  EXPECT_THAT(Eval({.typical_p = 0.15}, 5).support(raw), ElementsAre(1));
  EXPECT_THAT(Eval({.typical_p = 0.6}, 5).support(raw), ElementsAre(1, 0));
}

TEST(LogitsPipeline, TemperatureScalesBeforeTheCuts) {
  const std::vector<float> raw = log_of({0.1, 0.5, 0.1, 0.3});
  // At T = 0.5 the law is proportional to squares: 1, 25, 1, 9 of 36.
  Eval eval({.temperature = 0.5, .top_p = 0.69}, 4);
  EXPECT_THAT(eval.support(raw), ElementsAre(1));
  Eval all({.temperature = 0.5}, 4);
  EXPECT_THAT(all.support(raw), ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(all.scratch.law.probability(1), 25.0 / 36.0, 1e-6);
  EXPECT_NEAR(all.scratch.law.probability(3), 9.0 / 36.0, 1e-6);
}

TEST(LogitsPipeline, TinyTemperatureIsFiniteAndNearlyGreedy) {
  Eval eval({.temperature = 1e-300}, 3);
  EXPECT_THAT(eval.support({1.0f, 1.0f, 0.999f}), ElementsAre(0, 1));
  EXPECT_EQ(eval.scratch.law.probability(0), 0.5);
}

TEST(LogitsPipeline, ImpossibleTokensNeverEnterTheLaw) {
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.999},
        SamplingParams{.min_p = 1e-9}, SamplingParams{.typical_p = 0.999}}) {
    auto tokens = Eval(params, 4).support({-kInf, 1.0f, -kInf, 0.0f});
    std::sort(tokens.begin(), tokens.end());
    EXPECT_THAT(tokens, ElementsAre(1, 3));
  }
}

TEST(LogitsPipeline, OnlyAllowedTokensArePossible) {
  // A clear word, a mixed one, a full one that ends within the row; tokens past the words.
  const std::vector<std::uint64_t> words = {0, std::uint64_t{5} << 40, ~std::uint64_t{0}};
  for (const std::int32_t vocab_size : {150, 192, 300}) {
    const std::vector<float> raw = random_logits(static_cast<std::size_t>(vocab_size), 3);
    for (const SamplingParams& params :
         {SamplingParams{}, SamplingParams{.logit_bias = {{.token = 3, .bias = 100.0}}}}) {
      Eval eval(params, vocab_size);
      const auto out = eval.pipeline.adjust(raw, eval.history, eval.scratch, words);
      ASSERT_TRUE(out.has_value());
      for (std::int32_t i = 0; i < vocab_size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool allowed = i == 104 || i == 106 || (i >= 128 && i < 192);
        EXPECT_EQ((*out)[at], allowed ? raw[at] : -kInf) << i << " of " << vocab_size;
      }
      ASSERT_TRUE(eval.pipeline.law(raw, eval.history, eval.scratch, words).has_value());
      EXPECT_LE(eval.scratch.law.candidates.size(), 66u);
    }
  }
}

TEST(LogitsPipeline, BadLogitsAreErrorsThatNameThePosition) {
  Eval eval({}, 3);
  eval.prompt({1, 2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, kInf}) {
    const Status status =
        eval.pipeline.law(std::vector<float>{0.0f, bad, bad}, eval.history, eval.scratch);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_THAT(status.error().message, HasSubstr("position 2: the model gave 2 logits"));
    EXPECT_THAT(status.error().message, HasSubstr("at token 1"));
  }
  const Status none = eval.pipeline.law(std::vector<float>(3, -kInf), eval.history, eval.scratch);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(none.error().message, HasSubstr("position 2: no token is possible"));
  Eval all_bad({.bad_words = {{0}, {1}}}, 2);
  EXPECT_FALSE(all_bad.pipeline.law(std::vector<float>(2, 0.0f), all_bad.history, all_bad.scratch));
  Eval overflow({.repetition_penalty = 0.01}, 2);
  overflow.prompt({0});
  const Status infinite =
      overflow.pipeline.law(std::vector<float>{3e38f, 0.0f}, overflow.history, overflow.scratch);
  ASSERT_FALSE(infinite.has_value());
  EXPECT_THAT(infinite.error().message, HasSubstr("logit of token 0 infinite"));
}

TEST(LogitsPipeline, RefusesStopIdsOutsideTheVocabulary) {
  const std::vector<std::int32_t> stop_ids{7};
  const auto pipeline = LogitsPipeline::create({}, 7, stop_ids);
  ASSERT_FALSE(pipeline.has_value());
  EXPECT_THAT(pipeline.error().message, HasSubstr("stop_ids: token 7"));
}

// The lazy selections against a full sort, over sizes that cross the buffer borders, with many
// equal logits.
TEST(LogitsPipeline, SelectTopEqualsAFullSort) {
  std::vector<std::uint64_t> keys;
  for (const std::size_t vocab : {1u, 65u, 1000u, 20000u}) {
    std::vector<float> raw = random_logits(vocab, vocab);
    for (float& logit : raw) {
      logit = std::round(logit * 20.0f) / 20.0f;
    }
    std::vector<std::int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return raw[static_cast<std::size_t>(a)] > raw[static_cast<std::size_t>(b)];
    });
    for (const std::size_t k : {0u, 1u, 2u, 63u, 64u, 500u, 30000u}) {
      select_top(raw, k, keys);
      ASSERT_EQ(keys.size(), std::min(k, vocab));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(key_token(keys[i]), order[i]) << "vocab " << vocab << " k " << k << " rank " << i;
      }
    }
  }
}

TEST(LogitsPipeline, TopPEqualsAFullSort) {
  for (const double spread : {0.01, 4.0, 40.0}) {
    const std::vector<float> raw = random_logits(20000, 5, spread);
    for (const double top_p : {0.01, 0.5, 0.95, 0.9999}) {
      const std::vector<std::int32_t> got = Eval({.top_p = top_p}, 20000).support(raw);
      // top-k of all but one token sorts everything first and cuts afterwards; the missing one
      // weighs too little.
      std::vector<std::int32_t> want = Eval({.top_k = 19999, .top_p = top_p}, 20000).support(raw);
      if (spread > 1.0 || top_p < 0.99) {
        EXPECT_NEAR(static_cast<double>(got.size()), static_cast<double>(want.size()), 1.0);
      }
      const std::size_t common = std::min(got.size(), want.size());
      EXPECT_TRUE(
          std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(common), want.begin()));
    }
  }
}

}  // namespace
}  // namespace trine::sampling
