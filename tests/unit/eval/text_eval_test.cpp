#include "eval/text_eval.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_model.h"

namespace trine::eval {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenText some_text(std::int32_t count, std::int32_t num_ids) {
  TokenText out;
  for (std::int32_t i = 0; i < count; ++i) {
    out.tokens.push_back(i * 7 % num_ids);
  }
  out.num_ids = num_ids;
  out.documents = 1;
  out.hash = "0123456789abcdef";
  return out;
}

struct Bench {
  explicit Bench(int threads = 2) : team(ThreadTeam::create(threads).value()), ops(*team) {}

  std::unique_ptr<ModelSource> source(testing::FakeModel::Options options,
                                      std::int32_t num_ids = 64) {
    return ModelSource::create(std::make_shared<testing::FakeModel>(std::move(options)), ops,
                               {.context = 32, .num_ids = num_ids})
        .value();
  }

  std::unique_ptr<ThreadTeam> team;
  ops::Context ops;
};

// Favours token `id` after every history.
testing::FakeModel::Options favours(std::int32_t id) {
  return {.script = [id](std::span<const std::int32_t>) { return id; }};
}

TEST(TextEval, AModelBesideItself) {
  Bench setup;
  const TokenText text = some_text(200, 64);
  const auto plan = plan_windows(text, 32, 512, 0, 0);
  const auto candidate = setup.source({});
  const auto reference = setup.source({});
  TextOptions options;
  std::int64_t last = 0;
  options.progress = [&](std::int64_t rows) {
    EXPECT_GT(rows, last);
    last = rows;
    return true;
  };
  const auto got = evaluate_text(text, *plan, *candidate, reference.get(), *setup.team, options);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(last, got->tokens);
  EXPECT_EQ(got->tokens, plan->num_scored());
  const TextComparison& c = *got->comparison;
  EXPECT_EQ(got->ppl.value, c.ppl.value);
  EXPECT_EQ(c.kl.max, 0.0);
  EXPECT_EQ(c.top1.value, 1.0);
  EXPECT_EQ(c.top5.interval.low, 1.0);
  EXPECT_EQ(c.ppl_change.value, 0.0);
  EXPECT_EQ(c.greedy.num_tokens, 16);
  EXPECT_THAT(c.greedy.same_tokens, Each(16));
  EXPECT_EQ(std::accumulate(c.kl_decades.begin(), c.kl_decades.end(), std::int64_t{0}),
            got->tokens);
  EXPECT_EQ(c.kl_decades[0], got->tokens);
}

TEST(TextEval, DifferentModels) {
  Bench setup;
  const TokenText text = some_text(200, 64);
  const auto plan = plan_windows(text, 32, 512, 0, 0);
  const auto candidate = setup.source(favours(5));
  const auto reference = setup.source(favours(6));
  TextOptions options{.greedy_prompts = 3, .greedy_tokens = 4};
  const auto got = evaluate_text(text, *plan, *candidate, reference.get(), *setup.team, options);
  ASSERT_TRUE(got.has_value());
  const TextComparison& c = *got->comparison;
  EXPECT_EQ(c.top1.value, 0.0);
  EXPECT_GT(c.kl.mean, 30.0);  // the reference is sure of what the model rules out
  EXPECT_NEAR(std::log(got->ppl.value), std::log(c.ppl.value), 4.0);
  EXPECT_THAT(c.greedy.same_tokens, ElementsAre(0, 0, 0));
  EXPECT_EQ(c.kl_decades[10], got->tokens);
  EXPECT_EQ(c.kl_of_windows.size(), plan->windows.size());
}

// The scripted models part at a known token.
TEST(TextEval, AgreementEndsWhereTheModelsPart) {
  Bench setup;
  const auto until = [](std::size_t length) {
    return testing::FakeModel::Options{
        .script = [length](std::span<const std::int32_t> history) -> std::int32_t {
          return history.size() < length ? 9 : 10;
        }};
  };
  const auto model = setup.source(until(12));
  const auto other = setup.source(until(100));
  const std::vector<std::vector<std::int32_t>> prompts = {{1, 2, 3}, {4, 5, 6, 7, 8}};
  const auto said = other->continue_greedily(prompts, 20);
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ((*said)[0], std::vector<std::int32_t>(20, 9));
  EXPECT_THAT(*model->agreement(prompts, *said), ElementsAre(9, 7));
  EXPECT_THAT(*other->agreement(prompts, *said), Each(20));
  EXPECT_EQ((*model->continue_greedily(prompts, 20))[1],
            (std::vector<std::int32_t>{9,  9,  9,  9,  9,  9,  9,  10, 10, 10,
                                       10, 10, 10, 10, 10, 10, 10, 10, 10, 10}));
}

TEST(TextEval, ThreadsDoNotMatter) {
  const TokenText text = some_text(300, 64);
  const auto plan = plan_windows(text, 32, 512, 8, 0);
  std::vector<double> figures;
  for (const int threads : {1, 2, 5}) {
    Bench setup(threads);
    const auto candidate = setup.source({});
    const auto reference = setup.source(favours(6));
    const auto got = evaluate_text(text, *plan, *candidate, reference.get(), *setup.team, {});
    figures.push_back(got->comparison->kl.mean);
    figures.push_back(got->comparison->kl_interval.high);
    figures.push_back(got->ppl.value);
  }
  for (std::size_t i = 3; i < figures.size(); ++i) {
    EXPECT_EQ(figures[i], figures[i - 3]);
  }
}

// Rows of a model past the tokenizer's ids are padding: they take no part in any law.
TEST(TextEval, PaddedVocabularyIsMasked) {
  Bench setup;
  const TokenText text = some_text(100, 40);
  const auto plan = plan_windows(text, 32, 512, 0, 0);
  const auto candidate = setup.source(favours(50), 40);  // would be sure of a padded row
  const auto got = evaluate_text(text, *plan, *candidate, nullptr, *setup.team, {});
  ASSERT_TRUE(got.has_value());
  EXPECT_LT(got->ppl.value, 400.0);
  EXPECT_FALSE(got->comparison.has_value());
  const auto said = candidate->continue_greedily({{1, 2}}, 5);
  for (const std::int32_t id : (*said)[0]) {
    EXPECT_LT(id, 40);
  }
}

TEST(TextEval, BrokenLogitsAreNamed) {
  Bench setup;
  const TokenText text = some_text(100, 64);
  const auto plan = plan_windows(text, 32, 512, 0, 0);
  testing::FakeModel::Options broken;
  broken.spoil = [](std::span<const Span>, std::vector<float>& logits) {
    if (!logits.empty()) {
      logits[3 * 64 + 1] = std::nanf("");
    }
  };
  const auto candidate = setup.source(broken);
  const auto got = evaluate_text(text, *plan, *candidate, nullptr, *setup.team, {});
  ASSERT_FALSE(got.has_value());
  EXPECT_THAT(got.error().message, HasSubstr("position 19 of its window: the model gave logits"));
}

TEST(TextEval, CanBeStopped) {
  Bench setup;
  const TokenText text = some_text(100, 64);
  const auto plan = plan_windows(text, 32, 512, 0, 0);
  const auto candidate = setup.source({});
  TextOptions options;
  options.progress = [](std::int64_t) { return false; };
  const auto got = evaluate_text(text, *plan, *candidate, nullptr, *setup.team, options);
  EXPECT_EQ(got.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace trine::eval
