// The step loop's promise: once warm, a decode step allocates nothing.
#include <gtest/gtest.h>

#include "grammar/compile.h"
#include "support/alloc_counter.h"
#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(EngineAllocations, NonePerDecodeStep) {
  for (const sampling::SamplingParams& params :
       {sampling::SamplingParams{.temperature = 0.0},
        sampling::SamplingParams{
            .repetition_penalty = 1.2, .top_k = 10, .top_p = 0.9, .seed = 1, .logprobs = 3},
        sampling::SamplingParams{
            .frequency_penalty = 0.5, .min_p = 0.01, .typical_p = 0.9, .seed = 1}}) {
    const auto engine =
        make_engine(std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32}));
    std::size_t text_bytes = 0;
    for (int i = 0; i < 3; ++i) {
      GenerationRequest request{.prompt = ids("abc"),
                                .sampling = params,
                                .n = 2,
                                .max_tokens = 200,
                                .stop = {"zzzzz"},
                                .ignore_eos = true};
      ASSERT_TRUE(engine
                      ->submit(std::move(request),
                               [&](const TokenEvent& event) { text_bytes += event.text.size(); })
                      .has_value());
    }
    for (int i = 0; i < 40; ++i) {
      engine->step();
    }
    const std::int64_t before = test::num_allocations();
    for (int i = 0; i < 100; ++i) {
      engine->step();
    }
    EXPECT_EQ(test::num_allocations() - before, 0);
    EXPECT_GT(text_bytes, 0u);
    engine->run_to_end();
  }
}

// Masks are remembered, so a grammar whose places repeat costs no allocation either.
TEST(EngineAllocations, NonePerDecodeStepWithAGrammar) {
  const auto grammar = grammar::CompiledGrammar::create(
      grammar::compile(grammar::Notation::kRegex, "([a-m][n-y] ?)*").value(),
      grammar::TokenTrie::build(*letters()));
  for (const double temperature : {0.0, 1.0}) {
    const auto engine =
        make_engine(std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 72}));
    for (int i = 0; i < 3; ++i) {
      GenerationRequest request{.prompt = ids("abc"),
                                .sampling = {.temperature = temperature, .seed = 1},
                                .n = 2,
                                .max_tokens = 200,
                                .ignore_eos = true,
                                .grammar = grammar};
      ASSERT_TRUE(engine->submit(std::move(request), [](const TokenEvent&) {}).has_value());
    }
    for (int i = 0; i < 40; ++i) {
      engine->step();
    }
    const std::int64_t before = test::num_allocations();
    for (int i = 0; i < 100; ++i) {
      engine->step();
    }
    EXPECT_EQ(test::num_allocations() - before, 0);
    engine->run_to_end();
  }
}

TEST(EngineAllocations, TheCounterCounts) {
  const std::int64_t before = test::num_allocations();
  const std::vector<std::int32_t> numbers(1000, 3);
  EXPECT_EQ(numbers[999], 3);
  EXPECT_GE(test::num_allocations() - before, 1);
}

}  // namespace
}  // namespace trine
