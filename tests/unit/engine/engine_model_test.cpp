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

}  // namespace
}  // namespace trine
