// Steps, batches, answers, cancellation and statistics.
#include "engine/engine.h"

#include <limits>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

std::shared_ptr<FakeModel> hash_model() {
  return std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32});
}

GenerationRequest sampled(std::vector<std::int32_t> prompt, std::uint64_t seed,
                          std::int32_t max_tokens) {
  return {.prompt = std::move(prompt),
          .sampling = {.repetition_penalty = 1.1,
                       .temperature = 1.5,
                       .top_p = 0.95,
                       .seed = seed,
                       .logprobs = 2},
          .max_tokens = max_tokens,
          .ignore_eos = true};
}

std::vector<std::int32_t> prompt_of(std::size_t size, std::int32_t start) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < size; ++i) {
    out.push_back((start + static_cast<std::int32_t>(i) * 7) % 26);
  }
  return out;
}

TEST(Engine, AnswersDoNotDependOnTheCompany) {
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 9; ++i) {
    requests.push_back(sampled(prompt_of(1 + 13 * i, static_cast<std::int32_t>(i)), i,
                               10 + static_cast<std::int32_t>(i)));
    requests.back().n = i % 3 == 0 ? 3 : 1;
  }
  std::vector<Record> alone;
  for (const GenerationRequest& request : requests) {
    alone.push_back(generate(hash_model(), request));
  }
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.step_tokens = 1},
        EngineOptions{.step_tokens = 7, .max_sequences = 3},
        EngineOptions{.num_threads = 3, .kv_tokens = 512, .step_tokens = 20}}) {
    const auto engine = make_engine(hash_model(), options);
    engine->pool().set_placement(PagePool::Placement::kShuffled, 3);
    engine->pool().set_poison(true);
    std::vector<Record> records(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->submit(requests[i], records[i].callback()).has_value());
    }
    engine->run_to_end();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(records[i].answers.size(), static_cast<std::size_t>(requests[i].n));
      for (const auto& [answer, recorded] : records[i].answers) {
        EXPECT_EQ(recorded.tokens, alone[i].answers.at(answer).tokens) << i << "/" << answer;
        EXPECT_EQ(recorded.logprobs, alone[i].answers.at(answer).logprobs);
        EXPECT_EQ(recorded.text, alone[i].answers.at(answer).text);
      }
    }
    expect_all_given_back(*engine);
    EXPECT_TRUE(engine->pool().check_integrity().has_value());
  }
}

TEST(Engine, AnswersDoNotDependOnTheTargetBetweenTokens) {
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 6; ++i) {
    requests.push_back(sampled(prompt_of(20 + 50 * i, static_cast<std::int32_t>(i)), i, 150));
  }
  for (const std::optional<double> target : {std::optional<double>(), std::optional(3.0)}) {
    std::uint64_t reads = 0;
    double now = 0.0;
    // Steps take random times, so chunks have random lengths.
    EngineOptions options{.target_itl_ms = target, .now_ms = [&] {
                            now += 0.1 * (philox(5, reads++, RngPurpose::kTest, 0)[0] % 100);
                            return now;
                          }};
    const auto engine = make_engine(hash_model(), options);
    std::vector<Record> records(requests.size());
    std::vector<std::int32_t> chunks;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->submit(requests[i], records[i].callback()).has_value());
      for (int steps = 0; steps < 20; ++steps) {
        const StepPlan& plan = engine->schedule();
        if (plan.num_decoding > 0 && plan.num_tokens > plan.num_decoding) {
          chunks.push_back(plan.num_tokens - plan.num_decoding);
        }
        engine->run();
        engine->commit();
      }
    }
    engine->run_to_end();
    EXPECT_GT(std::set(chunks.begin(), chunks.end()).size(), 3u);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Record alone = generate(hash_model(), requests[i]);
      EXPECT_EQ(records[i].answers.at(0).tokens, alone.answers.at(0).tokens) << i;
      EXPECT_EQ(records[i].answers.at(0).logprobs, alone.answers.at(0).logprobs) << i;
    }
  }
}

TEST(Engine, ACancelledAnswerIsNotCountedAsDecoding) {
  const auto engine = make_engine(hash_model(), {});
  Record first;
  Record second;
  const auto id = engine->submit(sampled(prompt_of(10, 1), 1, 20), first.callback());
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(engine->submit(sampled(prompt_of(10, 2), 1, 20), second.callback()).has_value());
  engine->step();
  engine->cancel(*id);
  const StepPlan& plan = engine->schedule();
  EXPECT_EQ(plan.num_tokens, 1);
  EXPECT_EQ(plan.num_decoding, 1);
}

TEST(Engine, AnswerIEqualsTheOnlyAnswerOfSeedPlusI) {
  GenerationRequest request =
      sampled(prompt_of(40, 1), std::numeric_limits<std::uint64_t>::max(), 12);
  request.n = 3;
  const Record together = generate(hash_model(), request);
  for (std::int32_t i = 0; i < 3; ++i) {
    GenerationRequest single = request;
    single.n = 1;
    single.sampling.seed = *request.sampling.seed + static_cast<std::uint64_t>(i);
    EXPECT_EQ(generate(hash_model(), single).answers.at(0).tokens, together.answers.at(i).tokens);
  }
  EXPECT_NE(together.answers.at(0).tokens, together.answers.at(1).tokens);
}

TEST(Engine, AnswerZeroDrawsWithTheSeedItself) {
  // Equal logits, so that the seed alone decides.
  const auto flat = std::make_shared<FakeModel>(FakeModel::Options{
      .vocab_size = 32, .spoil = [](std::span<const Span>, std::vector<float>& logits) {
        std::fill(logits.begin(), logits.end(), 0.0F);
      }});
  const std::vector<std::int32_t> prompt = prompt_of(5, 1);
  const sampling::SamplingParams params = {.temperature = 1.0, .seed = 77};
  const auto pipeline = sampling::LogitsPipeline::create(params, 32, {});
  ASSERT_TRUE(pipeline.has_value());
  sampling::TokenHistory history;
  history.reset(prompt, 32, pipeline->needs_counts(), 8);
  sampling::Scratch scratch;
  const std::vector<float> row(32, 0.0F);
  for (int i = 0; i < 8; ++i) {
    history.append(sampling::sample(*pipeline, row, history, 77, scratch).value());
  }
  const GenerationRequest request{
      .prompt = prompt, .sampling = params, .max_tokens = 8, .ignore_eos = true};
  const auto all = history.tokens();
  EXPECT_EQ(generate(flat, request).answers.at(0).tokens,
            std::vector<std::int32_t>(all.begin() + 5, all.end()));
}

TEST(Engine, AFinishedAnswerGivesItsPagesBackAtOnce) {
  // One page of the prompt is shared; the rest of the prompt and the answer fit one page more.
  const auto engine = make_engine(hash_model());
  GenerationRequest request = sampled(prompt_of(kPageTokens + 1, 1), 3, 30);
  request.n = 8;
  request.ignore_eos = false;
  request.stop_ids = ids("abcde");
  Record record;
  ASSERT_TRUE(engine->submit(request, record.callback()).has_value());
  bool some_ended = false;
  while (engine->step()) {
    std::int32_t unfinished = 0;
    for (const auto& [index, answer] : record.answers) {
      unfinished += answer.finish.has_value() ? 0 : 1;
    }
    some_ended = some_ended || (unfinished > 0 && unfinished < 8);
    EXPECT_LE(engine->pool().num_pages() - engine->pool().num_free(), 1 + unfinished);
  }
  EXPECT_TRUE(some_ended);
}

TEST(Engine, NoMoreAnswersAtOnceThanAllowed) {
  const auto engine = make_engine(hash_model(), {.max_sequences = 2});
  Record first;
  Record second;
  GenerationRequest request = sampled(ids("ab"), 1, 6);
  request.n = 2;
  ASSERT_TRUE(engine->submit(request, first.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(ids("cd"), 1, 6), second.callback()).has_value());
  while (!first.stats.has_value()) {
    EXPECT_TRUE(second.answers.empty());
    engine->step();
  }
  engine->run_to_end();
  EXPECT_EQ(second.answers.at(0).tokens.size(), 6u);
}

TEST(Engine, AnswersShareThePrompt) {
  const auto model = hash_model();
  GenerationRequest request = sampled(prompt_of(100, 1), 1, 5);
  request.n = 8;
  const Record record = generate(model, request);
  // The prompt once, then four fed-back tokens per answer.
  EXPECT_EQ(model->num_tokens_run, 100 + 8 * 4);
  EXPECT_EQ(record.stats->generated_tokens, 40);
  EXPECT_EQ(record.stats->decode_steps, 4);  // of the request, not of each answer
}

TEST(Engine, ContinuingAnAnswerContinuesItsText) {
  // The noise is keyed by the absolute position, so a prompt that ends in half of an answer goes on
  // with the rest.
  GenerationRequest request{
      .prompt = prompt_of(10, 0), .sampling = {.seed = 9}, .max_tokens = 20, .ignore_eos = true};
  const auto whole = generate(hash_model(), request).answers.at(0).tokens;
  request.prompt.insert(request.prompt.end(), whole.begin(), whole.begin() + 8);
  request.max_tokens = 12;
  EXPECT_EQ(generate(hash_model(), request).answers.at(0).tokens,
            std::vector<std::int32_t>(whole.begin() + 8, whole.end()));
}

TEST(Engine, SeedIsDrawnAndReported) {
  GenerationRequest request{.prompt = ids("abc"), .max_tokens = 15, .ignore_eos = true};
  const Record first = generate(hash_model(), request);
  const Record second = generate(hash_model(), request);
  EXPECT_NE(first.stats->seed, second.stats->seed);
  request.sampling.seed = first.stats->seed;
  EXPECT_EQ(generate(hash_model(), request).answers.at(0).tokens, first.answers.at(0).tokens);
}

TEST(Engine, OnlyCommitChangesState) {
  const auto engine = make_engine(hash_model(), {.step_tokens = 16});
  Record record;
  ASSERT_TRUE(engine->submit(sampled(prompt_of(50, 2), 4, 6), record.callback()).has_value());
  while (!engine->idle()) {
    // Steps that are thrown away leave no trace, and are the same each time.
    engine->schedule();
    engine->run();
    const StepPlan first = engine->schedule();
    engine->run();
    const StepPlan& again = engine->schedule();
    ASSERT_EQ(first.items.size(), again.items.size());
    for (std::size_t i = 0; i < first.items.size(); ++i) {
      EXPECT_EQ(first.items[i].first, again.items[i].first);
      EXPECT_EQ(first.items[i].count, again.items[i].count);
      EXPECT_LE(first.num_tokens, 16);
    }
    const std::size_t events = record.answers[0].pieces.size();
    engine->run();
    EXPECT_EQ(record.answers[0].pieces.size(), events);
    engine->commit();
    engine->commit();  // nothing is left to commit
  }
  EXPECT_EQ(record.answers.at(0).tokens,
            generate(hash_model(), sampled(prompt_of(50, 2), 4, 6)).answers.at(0).tokens);
}

TEST(Engine, DecodingGoesOnBesideALongPrompt) {
  const auto engine = make_engine(hash_model(), {.step_tokens = 8});
  Record short_one;
  Record long_one;
  ASSERT_TRUE(engine->submit(sampled(prompt_of(4, 0), 1, 30), short_one.callback()).has_value());
  engine->step();
  ASSERT_TRUE(engine->submit(sampled(prompt_of(70, 0), 1, 3), long_one.callback()).has_value());
  for (int i = 0; i < 9; ++i) {
    engine->step();
    EXPECT_EQ(short_one.answers.at(0).tokens.size(), static_cast<std::size_t>(i) + 2);
    EXPECT_TRUE(long_one.answers.empty());
  }
  engine->step();
  EXPECT_EQ(long_one.answers.at(0).tokens.size(), 1u);
  engine->run_to_end();
}

TEST(Engine, WaitsForPagesInOrderOfArrival) {
  // Room for 4 pages: the second request has to wait for the first, the small third does not
  // overtake.
  const auto engine = make_engine(hash_model(), {.context_tokens = 128, .kv_tokens = 128});
  std::vector<int> finished;
  const auto note = [&](int which) {
    return [&finished, which](const TokenEvent& event) {
      if (event.stats != nullptr) {
        finished.push_back(which);
      }
    };
  };
  ASSERT_TRUE(engine->submit(sampled(prompt_of(60, 0), 1, 20), note(1)).has_value());
  ASSERT_TRUE(engine->submit(sampled(prompt_of(40, 0), 1, 30), note(2)).has_value());
  ASSERT_TRUE(engine->submit(sampled(prompt_of(3, 0), 1, 2), note(3)).has_value());
  engine->run_to_end();
  EXPECT_EQ(finished, (std::vector<int>{1, 3, 2}));
  GenerationRequest huge = sampled(prompt_of(40, 0), 1, 60);
  huge.n = 2;
  const auto id = engine->submit(huge, {});
  ASSERT_FALSE(id.has_value());
  EXPECT_THAT(id.error().message, HasSubstr("need 7 pages of kv cache, there are 4"));
}

TEST(Engine, CancelEndsAtTheNextStepAndFreesPages) {
  const auto engine = make_engine(hash_model());
  Record by_id;
  Record by_flag;
  Record other;
  std::atomic<bool> flag{false};
  const auto id = engine->submit(sampled(prompt_of(40, 0), 1, 100), by_id.callback());
  GenerationRequest request = sampled(prompt_of(40, 0), 1, 100);
  request.n = 2;
  request.cancel = &flag;
  ASSERT_TRUE(engine->submit(request, by_flag.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(prompt_of(5, 0), 1, 10), other.callback()).has_value());
  engine->step();
  engine->step();
  engine->cancel(*id);
  flag = true;
  engine->step();
  EXPECT_EQ(by_id.answers.at(0).finish, FinishReason::kCancelled);
  EXPECT_EQ(by_id.answers.at(0).tokens.size(), 2u);
  EXPECT_EQ(by_flag.answers.at(1).finish, FinishReason::kCancelled);
  ASSERT_TRUE(by_flag.stats.has_value());
  EXPECT_EQ(by_flag.stats->generated_tokens, 4);
  engine->cancel(*id);
  engine->run_to_end();
  EXPECT_EQ(other.answers.at(0).tokens.size(), 10u);
  expect_all_given_back(*engine);
}

TEST(Engine, CallbacksMaySubmitAndCancel) {
  const auto engine = make_engine(hash_model());
  Record second;
  RequestId second_id = 0;
  int events = 0;
  ASSERT_TRUE(engine
                  ->submit(sampled(ids("ab"), 1, 5),
                           [&](const TokenEvent&) {
                             if (++events == 1) {
                               second_id =
                                   *engine->submit(sampled(ids("cd"), 2, 50), second.callback());
                             } else if (events == 5) {
                               engine->cancel(second_id);
                             }
                           })
                  .has_value());
  engine->run_to_end();
  EXPECT_EQ(events, 5);
  EXPECT_EQ(second.answers.at(0).finish, FinishReason::kCancelled);
}

TEST(Engine, BadLogitsFailTheirRequestOnly) {
  auto model = std::make_shared<FakeModel>(FakeModel::Options{
      .vocab_size = 32, .spoil = [](std::span<const Span> spans, std::vector<float>& logits) {
        for (std::size_t i = 0; i < spans.size(); ++i) {
          if (spans[i].sequence->length() == 12) {
            logits[i * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
          }
        }
      }});
  const auto engine = make_engine(model);
  Record good;
  Record bad;
  ASSERT_TRUE(engine->submit(sampled(prompt_of(20, 0), 1, 9), good.callback()).has_value());
  ASSERT_TRUE(engine->submit(sampled(prompt_of(10, 0), 1, 9), bad.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(good.answers.at(0).finish, FinishReason::kLength);
  EXPECT_EQ(bad.answers.at(0).finish, FinishReason::kError);
  EXPECT_EQ(bad.answers.at(0).tokens.size(), 3u);
  EXPECT_THAT(bad.answers.at(0).error,
              HasSubstr("position 13: the model gave 1 logits that are NaN"));
}

TEST(Engine, AnErrorOfTheModelEndsTheStepsRequests) {
  class Failing : public FakeModel {
   public:
    using FakeModel::FakeModel;

    Status forward(ops::Context&, std::span<const Span>, Workspace&, std::vector<float>&,
                   LayerObserver*) const override {
      return fail(ErrorCode::kInternal, "the model is broken");
    }
  };

  const Record record = generate(std::make_shared<Failing>(FakeModel::Options{.vocab_size = 32}),
                                 sampled(ids("ab"), 1, 5));
  EXPECT_EQ(record.answers.at(0).finish, FinishReason::kError);
  EXPECT_EQ(record.answers.at(0).error, "the model is broken");
}

TEST(Engine, LogprobsComeFromTheRawLaw) {
  GenerationRequest request = sampled(ids("ab"), 1, 4);
  request.sampling.temperature = 0.0;
  request.sampling.repetition_penalty = 1.0;
  const RecordedAnswer answer = generate(hash_model(), request).answers.at(0);
  ASSERT_EQ(answer.top.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(answer.top[i].size(), 2u);
    EXPECT_EQ(answer.top[i][0].token, answer.tokens[i]);  // greedy takes the most likely one
    EXPECT_EQ(answer.top[i][0].logprob, answer.logprobs[i]);
    EXPECT_LT(answer.logprobs[i], 0.0);
  }
}

TEST(Engine, StatisticsComeFromTheClock) {
  double now = 0.0;
  EngineOptions options{.weight_bytes_per_step = 5e8, .now_ms = [&now] { return now += 10.0; }};
  const Record record = generate(hash_model(), sampled(prompt_of(30, 0), 1, 5), options);
  // The clock ticks at submit, and at the start and the end of each of the five steps.
  EXPECT_DOUBLE_EQ(record.stats->queue_ms, 10.0);
  EXPECT_DOUBLE_EQ(record.stats->ttft_ms, 20.0);
  EXPECT_DOUBLE_EQ(record.stats->prefill_ms, 10.0);
  EXPECT_DOUBLE_EQ(record.stats->decode_ms, 80.0);
  EXPECT_EQ(record.stats->decode_steps, 4);
  EXPECT_DOUBLE_EQ(record.stats->prefill_tokens_per_s(), 3000.0);
  EXPECT_DOUBLE_EQ(record.stats->decode_tokens_per_s(), 50.0);
  EXPECT_DOUBLE_EQ(record.stats->decode_gb_per_s(), 25.0);
}

TEST(Engine, RefusesOptionsByName) {
  const auto refused = [](const EngineOptions& options, const std::string& text) {
    const auto engine = Engine::create(hash_model(), nullptr, options);
    ASSERT_FALSE(engine.has_value()) << text;
    EXPECT_THAT(engine.error().message, HasSubstr(text));
  };
  refused({.context_tokens = 513}, "context_tokens is 513, must be in [0, 512]");
  refused({.kv_tokens = -1}, "kv_tokens is -1");
  refused({.step_tokens = 0}, "step_tokens is 0");
  refused({.max_sequences = 0}, "max_sequences is 0");
  refused({.max_waiting = 0}, "max_waiting is 0");
  refused({.max_waiting_tokens = 0}, "max_waiting_tokens is 0");
  refused({.target_itl_ms = -1.0}, "target_itl_ms is -1");
  refused({.kv_dtype = DType::kQ8_0}, "kv_dtype Q8_0 cannot hold");
}

}  // namespace
}  // namespace trine
