// The engine over a real small model: the invariance contract and reproducible text.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/verify_invariance.h"

namespace trine {
namespace {

std::shared_ptr<const Model> docs_model() {
  auto model = Model::load(TRINE_SOURCE_DIR "/assets/models/docs-1m");
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return *model;
}

TEST(EngineWithModel, KeepsTheInvarianceContract) {
  const auto model = docs_model();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto report = verify_invariance(*model, {.seed = 7,
                                                   .num_mixed = dtype == DType::kF32 ? 4 : 1,
                                                   .max_threads = 3,
                                                   .kv_dtype = dtype});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_FALSE(report->difference.has_value()) << describe(*report->difference);
    EXPECT_GT(report->num_rows, 500);
  }
}

TEST(EngineWithModel, TextIsTheSameInEveryCompany) {
  const auto model = docs_model();
  std::vector<std::vector<std::int32_t>> answers;
  const auto run = [&](const EngineOptions& options, int num_requests) {
    auto engine = Engine::create(model, nullptr, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    std::vector<std::vector<std::int32_t>> tokens(static_cast<std::size_t>(num_requests));
    for (int i = 0; i < num_requests; ++i) {
      GenerationRequest request;
      for (std::int32_t t = 0; t < 20 + 15 * i; ++t) {
        request.prompt.push_back((t * 37 + i * 11 + 5) % model->config().vocab_size);
      }
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.max_tokens = 24;
      request.ignore_eos = true;
      ASSERT_TRUE((*engine)
                      ->submit(request,
                               [&tokens, i](const TokenEvent& event) {
                                 tokens[static_cast<std::size_t>(i)].push_back(event.token);
                               })
                      .has_value());
    }
    (*engine)->run_to_end();
    if (answers.empty()) {
      answers = tokens;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(tokens[i], answers[i]) << i;
    }
  };
  run({.num_threads = 1}, 5);
  run({.num_threads = 2, .step_tokens = 9}, 5);
  run({.num_threads = 3, .max_sequences = 2}, 5);
  run({.num_threads = 1, .step_tokens = 3}, 1);
}

// Log-probabilities come from whole rows of logits, so equal ones to the last bit mean equal rows.
TEST(EngineWithModel, CachedPagesAndPreemptionChangeNoBit) {
  const auto model = docs_model();
  using Draws = std::vector<std::pair<std::int32_t, double>>;
  const auto run = [&](Engine& engine, int first, int last) {
    std::vector<Draws> draws(5);
    for (int i = first; i < last; ++i) {
      GenerationRequest request;
      for (std::int32_t t = 0; t < 30 + 15 * i; ++t) {
        request.prompt.push_back((t * 37 + i % 2 * 11 + 5) % model->config().vocab_size);
      }
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.logprobs = 1;
      request.max_tokens = 40;
      request.ignore_eos = true;
      EXPECT_TRUE(engine
                      .submit(request,
                              [&draws, i](const TokenEvent& event) {
                                ASSERT_NE(event.logprobs, nullptr);
                                draws[static_cast<std::size_t>(i)].emplace_back(
                                    event.token, event.logprobs->chosen);
                              })
                      .has_value());
    }
    engine.run_to_end();
    return draws;
  };
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    std::vector<Draws> alone;
    for (int i = 0; i < 5; ++i) {
      auto engine = Engine::create(model, nullptr,
                                   {.num_threads = 1, .kv_dtype = dtype, .prefix_cache = false});
      ASSERT_TRUE(engine.has_value()) << engine.error().message;
      alone.push_back(run(**engine, i, i + 1)[static_cast<std::size_t>(i)]);
    }
    auto engine = Engine::create(
        model, nullptr, {.num_threads = 2, .kv_dtype = dtype, .kv_tokens = 288, .step_tokens = 50});
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    (*engine)->pool().set_poison(true);
    EXPECT_EQ(run(**engine, 0, 5), alone);
    EXPECT_EQ(run(**engine, 0, 5), alone);
    EXPECT_GT((*engine)->metrics().requests.preempted, 0);
    EXPECT_GT((*engine)->metrics().prefix_hit_tokens, 0);
    EXPECT_TRUE((*engine)->check_integrity().has_value());
  }
}

}  // namespace
}  // namespace trine
