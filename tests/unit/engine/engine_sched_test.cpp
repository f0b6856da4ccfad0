// What the scheduler and the prefix cache do to requests: nothing to their answers.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

std::shared_ptr<FakeModel> hash_model() {
  return std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32});
}

GenerationRequest sampled(std::size_t prompt, std::int32_t start, std::uint64_t seed,
                          std::int32_t max_tokens) {
  GenerationRequest out{.sampling = {.repetition_penalty = 1.1,
                                     .temperature = 1.5,
                                     .top_p = 0.95,
                                     .seed = seed,
                                     .logprobs = 2},
                        .max_tokens = max_tokens,
                        .ignore_eos = true};
  for (std::size_t i = 0; i < prompt; ++i) {
    out.prompt.push_back((start + static_cast<std::int32_t>(i) * 7) % 26);
  }
  return out;
}

void expect_same(const Record& got, const Record& want, const std::string& what) {
  ASSERT_EQ(got.answers.size(), want.answers.size()) << what;
  for (const auto& [index, answer] : want.answers) {
    EXPECT_EQ(got.answers.at(index).tokens, answer.tokens) << what;
    EXPECT_EQ(got.answers.at(index).logprobs, answer.logprobs) << what;  // bit for bit
    EXPECT_EQ(got.answers.at(index).text, answer.text) << what;
  }
}

std::vector<GenerationRequest> storm() {
  std::vector<GenerationRequest> out;
  for (std::size_t i = 0; i < 12; ++i) {
    // Three beginnings, so that some share pages.
    out.push_back(sampled(20 + 9 * i, static_cast<std::int32_t>(i % 3), i,
                          40 + static_cast<std::int32_t>(i)));
    out.back().n = i % 4 == 0 ? 3 : 1;
    out.back().stop_ids = i % 8 == 0 ? ids("a") : ids("");  // answers end at different times
    out.back().priority = i % 5 == 0 ? -1 : 0;
    out.back().tenant = i % 2 == 0 ? "a" : "b";
  }
  return out;
}

// The same requests alone, cold, and then twice over (so that the second time hits the cache) in a
// storm on a pool of `kv_tokens`.
void expect_invariant(const EngineOptions& options, bool wants_preemptions) {
  const std::vector<GenerationRequest> requests = storm();
  std::vector<Record> alone;
  for (const GenerationRequest& request : requests) {
    alone.push_back(generate(hash_model(), request, {.prefix_cache = false}));
  }
  const auto engine = make_engine(hash_model(), options);
  engine->pool().set_placement(PagePool::Placement::kShuffled, 3);
  engine->pool().set_poison(true);
  for (int round = 0; round < 2; ++round) {
    std::vector<Record> records(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->submit(requests[i], records[i].callback()).has_value());
    }
    const EngineMetrics before = engine->metrics();
    engine->run_to_end();
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    std::int64_t generated_tokens = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      expect_same(records[i], alone[i], std::to_string(round) + "/" + std::to_string(i));
      prompt_tokens += records[i].stats->prompt_tokens;
      cached_tokens += records[i].stats->cached_tokens;
      generated_tokens += records[i].stats->generated_tokens;
    }
    // Whatever was computed again counts once.
    EXPECT_EQ(engine->metrics().prompt_tokens - before.prompt_tokens, prompt_tokens);
    EXPECT_EQ(engine->metrics().cached_tokens - before.cached_tokens, cached_tokens);
    EXPECT_EQ(engine->metrics().generated_tokens - before.generated_tokens, generated_tokens);
    expect_all_given_back(*engine);
  }
  const EngineMetrics now = engine->metrics();
  EXPECT_EQ(now.requests.preempted > 0, wants_preemptions);
  EXPECT_EQ(now.prefix_hit_tokens > 0, options.prefix_cache);
}

TEST(EngineScheduling, NoAnswerDependsOnCachedPages) {
  expect_invariant({}, false);
}

TEST(EngineScheduling, NoAnswerDependsOnPreemption) {
  expect_invariant({.kv_tokens = 512, .prefix_cache = false}, true);
}

TEST(EngineScheduling, NoAnswerDependsOnBoth) {
  expect_invariant({.kv_tokens = 512}, true);
  expect_invariant({.num_threads = 2, .kv_tokens = 544, .step_tokens = 9}, true);
}

TEST(EngineScheduling, WhoGivesWayHoldsNoPage) {
  const auto engine =
      make_engine(hash_model(), {.kv_tokens = 128, .max_sequences = 2, .prefix_cache = false});
  Record first;
  Record second;
  ASSERT_TRUE(engine->submit(sampled(31, 1, 1, 60), first.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(31, 1, 2, 60), second.callback()).has_value());
  while (engine->metrics().requests.preempted == 0) {
    ASSERT_TRUE(engine->step());
  }
  EXPECT_EQ(engine->metrics().kv_pages_free, 2);  // of four, two were its
  EXPECT_EQ(engine->metrics().requests.waiting, 1);
  engine->run_to_end();
  EXPECT_EQ(first.stats->num_preemptions, 0);
  EXPECT_EQ(second.stats->num_preemptions, 1);
}

TEST(EngineScheduling, TheLastAnswerOfSeveralComesBackAlone) {
  GenerationRequest several = sampled(20, 1, 5, 90);
  several.n = 2;
  several.priority = 1;
  // A token that ends answer 0 early, and answer 1 late.
  const Record free_run = generate(hash_model(), several);
  const auto& other = free_run.answers.at(1).tokens;
  for (std::size_t i = 0; i < 30 && several.stop_ids.empty(); ++i) {
    const std::int32_t token = free_run.answers.at(0).tokens[i];
    if (std::find(other.begin(), other.begin() + 70, token) == other.begin() + 70) {
      several.stop_ids = {token};
    }
  }
  ASSERT_FALSE(several.stop_ids.empty());
  const auto engine = make_engine(hash_model(), {.kv_tokens = 256, .prefix_cache = false});
  Record got;
  Record company;
  Record more_company;
  ASSERT_TRUE(engine->submit(several, got.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(20, 2, 6, 180), company.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(20, 3, 7, 180), more_company.callback()).has_value());
  engine->run_to_end();
  EXPECT_GT(got.stats->num_preemptions, 0);
  expect_same(got, generate(hash_model(), several, {.prefix_cache = false}), "several");
}

TEST(EngineScheduling, AConversationIsNotComputedAgain) {
  const auto model = hash_model();
  const auto engine = make_engine(model);
  GenerationRequest turn = sampled(100, 1, 5, 60);
  Record first;
  ASSERT_TRUE(engine->submit(turn, first.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(first.stats->cached_tokens, 0);
  const auto& answer = first.answers.at(0).tokens;
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  turn.prompt.insert(turn.prompt.end(), {1, 2, 3});
  turn.max_tokens = 1;
  const std::int64_t before = model->num_tokens_run;
  Record second;
  ASSERT_TRUE(engine->submit(turn, second.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(second.stats->cached_tokens, 4 * kPageTokens);  // of 163, the answer's among them
  EXPECT_EQ(model->num_tokens_run - before, 163 - 4 * kPageTokens);
  expect_same(second, generate(hash_model(), turn), "second turn");
}

TEST(EngineScheduling, TenantsAndSaltsShareNoPages) {
  const auto engine = make_engine(hash_model());
  const auto cached = [&](std::string tenant, std::string salt) {
    GenerationRequest request = sampled(70, 1, 1, 1);
    request.tenant = std::move(tenant);
    request.cache_salt = std::move(salt);
    Record record;
    EXPECT_TRUE(engine->submit(request, record.callback()).has_value());
    engine->run_to_end();
    return record.stats->cached_tokens;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("a", ""), 64);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("a", "salt"), 0);
  engine->clear_prefix_cache();
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(engine->metrics().prefix_hit_tokens, 64);
}

TEST(EngineScheduling, AFullQueueRefusesWithTheNumbers) {
  const auto engine = make_engine(hash_model(), {.max_sequences = 1, .max_waiting = 1});
  ASSERT_TRUE(engine->submit(sampled(5, 1, 1, 3), {}).has_value());
  const auto refused = engine->submit(sampled(5, 1, 1, 3), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("the queue is full: 1 requests (at most 1)"));
  ASSERT_TRUE(engine->refusal().has_value());
  EXPECT_GE(engine->refusal()->retry_after_s, 1.0);
  EXPECT_EQ(engine->metrics().requests.rejected, 1);
  EXPECT_EQ(engine->metrics().requests.waiting, 1);
  engine->step();
  EXPECT_EQ(engine->metrics().requests.running, 1);
  EXPECT_TRUE(engine->submit(sampled(5, 1, 1, 3), {}).has_value());
  EXPECT_FALSE(engine->refusal().has_value());
  engine->run_to_end();
}

TEST(EngineScheduling, PastItsTimeARequestEndsWithAnError) {
  double now = 0.0;
  const auto engine =
      make_engine(hash_model(), {.max_sequences = 1, .now_ms = [&now] { return now += 10.0; }});
  GenerationRequest hurried = sampled(5, 1, 1, 400);
  hurried.timeout_ms = 100.0;
  Record at_work;
  Record in_queue;
  ASSERT_TRUE(engine->submit(hurried, at_work.callback()).has_value());
  hurried.timeout_ms = 50.0;
  ASSERT_TRUE(engine->submit(hurried, in_queue.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(at_work.answers.at(0).finish, FinishReason::kError);
  EXPECT_THAT(at_work.answers.at(0).error, HasSubstr("timeout_ms is 100"));
  EXPECT_GT(at_work.answers.at(0).tokens.size(), 2u);
  EXPECT_THAT(in_queue.answers.at(0).error, HasSubstr("timeout_ms is 50"));
  EXPECT_TRUE(in_queue.answers.at(0).tokens.empty());
  EXPECT_EQ(engine->metrics().requests.expired, 2);
  expect_all_given_back(*engine);
  hurried.timeout_ms = 0.0;
  EXPECT_THAT(engine->submit(hurried, {}).error().message, HasSubstr("timeout_ms is 0"));
}

}  // namespace
}  // namespace trine
