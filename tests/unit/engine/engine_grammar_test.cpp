// Answers held to a grammar: with every sampler, at their end, in conflict with other fields.
#include <array>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/compile.h"
#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

std::shared_ptr<const grammar::CompiledGrammar> bound(grammar::Notation notation,
                                                      const std::string& text) {
  auto made = grammar::compile(notation, text);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return grammar::CompiledGrammar::create(*std::move(made), grammar::TokenTrie::build(*letters()));
}

GenerationRequest held_to(const std::string& pattern,
                          sampling::SamplingParams sampling = {.temperature = 0.0}) {
  return {.prompt = ids("hi"),
          .sampling = std::move(sampling),
          .max_tokens = 40,
          .grammar = bound(grammar::Notation::kRegex, pattern)};
}

// 40 rows more than the tokenizer has tokens.
std::shared_ptr<FakeModel> noise() {
  return std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 72});
}

RecordedAnswer answer_of(const std::shared_ptr<const Model>& model, GenerationRequest request) {
  return generate(model, std::move(request)).answers.at(0);
}

TEST(EngineGrammar, EverySamplerKeepsToIt) {
  const std::vector<sampling::SamplingParams> samplers = {
      {.temperature = 0.0},
      {.temperature = 1.0},
      {.temperature = 5.0, .top_k = 3},
      {.top_p = 0.3},
      {.min_p = 0.5},
      {.typical_p = 0.4},
      {.repetition_penalty = 1.5, .frequency_penalty = 1.0, .top_k = 20, .top_p = 0.9},
      {.logit_bias = {{.token = 25, .bias = 100.0F}}},
  };
  for (std::size_t s = 0; s < samplers.size(); ++s) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      sampling::SamplingParams params = samplers[s];
      params.seed = seed;
      const RecordedAnswer answer = answer_of(noise(), held_to("[a-f]{4,9} (xyz|é)", params));
      EXPECT_TRUE(std::regex_match(answer.text, std::regex("[a-f]{4,9} (xyz|\xc3\xa9)")))
          << "sampler " << s << ": " << answer.text << " " << answer.error;
      EXPECT_EQ(answer.finish, FinishReason::kStop);
    }
  }
}

TEST(EngineGrammar, WithoutOneTheSameModelDrawsPaddingRows) {
  GenerationRequest request{.prompt = ids("hi"), .sampling = {.seed = 1}, .max_tokens = 40};
  request.ignore_eos = true;
  const RecordedAnswer answer = answer_of(noise(), request);
  EXPECT_TRUE(std::any_of(answer.tokens.begin(), answer.tokens.end(),
                          [](std::int32_t id) { return id >= 32; }));
}

TEST(EngineGrammar, LogprobsAreThoseOfTheRawLogits) {
  // "a" is all but certain and not allowed.
  const RecordedAnswer answer =
      answer_of(scripted(2, ids("aaaa")), held_to("b{3}", {.temperature = 0.0, .logprobs = 1}));
  EXPECT_EQ(answer.text, "bbb");
  ASSERT_EQ(answer.logprobs.size(), 3u);
  EXPECT_EQ(answer.top[0][0].token, 0);
  EXPECT_LT(answer.logprobs[0], -30.0);
}

TEST(EngineGrammar, AnEndTokenIsPossibleOnlyWhereTheTextMayEnd) {
  const RecordedAnswer answer = answer_of(scripted(2, ids("$$$$$$")), held_to("(ab){2}[x-z]*"));
  EXPECT_EQ(answer.text, "abab");
  EXPECT_EQ(answer.tokens, ids("abab$"));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  // The same for a token of the request that has a text of its own.
  GenerationRequest request = held_to("(ab){2}[x-z]*");
  request.stop_ids = ids("b");
  const RecordedAnswer none = answer_of(scripted(2, ids("abab")), request);
  EXPECT_THAT(none.error, HasSubstr("position 3: a dead end, no token of the vocabulary"));
  request.stop_ids = ids("q");
  EXPECT_EQ(answer_of(scripted(2, ids("ababq")), request).tokens, ids("ababq"));
}

TEST(EngineGrammar, AnAnswerThatNothingCanFollowEndsByItself) {
  GenerationRequest request = held_to("abc");
  EXPECT_EQ(answer_of(noise(), request).tokens, ids("abc"));
  request.ignore_eos = true;
  request.sampling.min_tokens = 10;
  request.stop = {"cd"};  // "c" is held back until the end
  const RecordedAnswer answer = answer_of(noise(), request);
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  // The last token of the budget that completes the text is an end, not a cut.
  request = held_to("abc");
  request.max_tokens = 3;
  EXPECT_EQ(answer_of(noise(), request).finish, FinishReason::kStop);
  request.max_tokens = 2;
  EXPECT_EQ(answer_of(noise(), request).finish, FinishReason::kLength);
}

TEST(EngineGrammar, MinTokensGoesOnWhereTheTextMay) {
  GenerationRequest request = held_to("a+");
  request.sampling.min_tokens = 5;
  EXPECT_EQ(answer_of(scripted(2, ids("a$$$$$$$$$")), request).tokens, ids("aaaaa$"));
  request = held_to("a+");
  request.ignore_eos = true;
  request.max_tokens = 7;
  const RecordedAnswer answer = answer_of(scripted(2, ids("a$$$$$$$$$")), request);
  EXPECT_EQ(answer.tokens, ids("aaaaaaa"));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(EngineGrammar, StopStringsCutTheText) {
  GenerationRequest request = held_to("[ab]{10}");
  request.stop = {"b"};
  const RecordedAnswer answer = answer_of(scripted(2, ids("aab")), request);
  EXPECT_EQ(answer.text, "aa");
  EXPECT_EQ(answer.matched_stop, "b");
}

TEST(EngineGrammar, ADeadEndEndsThatAnswerWithAnError) {
  // The vocabulary has no digits.
  const RecordedAnswer answer = answer_of(noise(), held_to("ab[0-9]"));
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_THAT(answer.error, HasSubstr("grammar: position 4: a dead end"));
  const RecordedAnswer empty = answer_of(noise(), [] {
    GenerationRequest request = held_to("(?:)");
    request.sampling.min_tokens = 1;
    return request;
  }());
  EXPECT_THAT(empty.error, HasSubstr("which may end here, but min_tokens"));
  // Another field that takes away the last token.
  GenerationRequest request = held_to("ab");
  request.sampling.bad_words = {ids("b")};
  EXPECT_THAT(answer_of(noise(), request).error,
              HasSubstr("no token is possible, every logit is -infinity after bias, bad_words, "
                        "min_tokens and grammar"));
}

TEST(EngineGrammar, AnExhaustedBudgetEndsThatAnswerWithAnError) {
  GenerationRequest request = held_to("");
  request.grammar = bound(grammar::Notation::kGbnf, R"(root ::= "a" root "b" | "a" root "c" | "")");
  request.sampling.min_tokens = 40;
  const RecordedAnswer answer = answer_of(scripted(2, ids(std::string(40, 'a'))), request);
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_THAT(answer.error, HasSubstr("grammar"));
  EXPECT_THAT(answer.error, HasSubstr("more than"));
}

TEST(EngineGrammar, OtherAnswersGoOnAfterOneFails) {
  const auto engine = make_engine(noise());
  Record failed;
  Record fine;
  ASSERT_TRUE(engine->submit(held_to("ab[0-9]"), failed.callback()).has_value());
  ASSERT_TRUE(engine->submit(held_to("abcdefg"), fine.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(failed.answers.at(0).finish, FinishReason::kError);
  EXPECT_EQ(fine.answers.at(0).text, "abcdefg");
  expect_all_given_back(*engine);
}

TEST(EngineGrammar, EachAnswerHasAPlaceOfItsOwn) {
  GenerationRequest request = held_to("[a-m]{1,6}( [n-y]{1,3}){2}", {.seed = 5});
  request.n = 4;
  const Record together = generate(noise(), request);
  request.n = 1;
  for (std::int32_t i = 0; i < 4; ++i) {
    request.sampling.seed = 5 + static_cast<std::uint64_t>(i);
    EXPECT_EQ(together.answers.at(i).tokens, answer_of(noise(), request).tokens);
    EXPECT_TRUE(
        std::regex_match(together.answers.at(i).text, std::regex("[a-m]{1,6}( [n-y]{1,3}){2}")));
  }
}

TEST(EngineGrammar, PreemptionKeepsThePlace) {
  GenerationRequest request = held_to("([a-m][n-y]){45}", {.seed = 3});
  request.max_tokens = 100;
  const RecordedAnswer alone = answer_of(noise(), request);
  ASSERT_EQ(alone.tokens.size(), 90u);
  // Two of these do not fit five pages.
  const auto engine = make_engine(
      noise(), {.context_tokens = 128, .kv_tokens = 5 * kPageTokens, .prefix_cache = false});
  std::array<Record, 2> records;
  for (Record& record : records) {
    ASSERT_TRUE(engine->submit(request, record.callback()).has_value());
  }
  engine->run_to_end();
  EXPECT_GT(records[0].stats->num_preemptions + records[1].stats->num_preemptions, 0);
  EXPECT_EQ(records[0].answers.at(0).tokens, alone.tokens);
  EXPECT_EQ(records[1].answers.at(0).tokens, alone.tokens);
  expect_all_given_back(*engine);
}

// Only commit() moves the place: a step that is run again, or thrown away, changes nothing.
TEST(EngineGrammar, AStepRunTwiceIsTheSameStep) {
  const GenerationRequest request = held_to("[a-m]{2}[n-y]{2}( [a-m]{2}[n-y]{2})*", {.seed = 9});
  const RecordedAnswer once = answer_of(noise(), request);
  const auto engine = make_engine(noise());
  Record twice;
  ASSERT_TRUE(engine->submit(request, twice.callback()).has_value());
  while (!engine->idle()) {
    engine->schedule();
    engine->run();
    engine->schedule();
    engine->run();
    engine->run();
    engine->commit();
  }
  EXPECT_EQ(twice.answers.at(0).tokens, once.tokens);
}

TEST(EngineGrammar, AnotherVocabularyIsRefused) {
  GenerationRequest request = held_to("a");
  request.grammar = grammar::CompiledGrammar::create(
      grammar::compile(grammar::Notation::kRegex, "a").value(),
      grammar::TokenTrie::build(std::vector<std::string>{"a", "b"}, {}));
  const auto engine = make_engine(noise());
  const auto refused = engine->submit(request, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      refused.error().message,
      HasSubstr("grammar: bound to a vocabulary of 2 tokens, this model's tokenizer has 32"));
  const auto without_text = make_engine(noise(), {}, false);
  const auto no_text = without_text->submit(held_to("a"), {});
  ASSERT_FALSE(no_text.has_value());
  EXPECT_THAT(no_text.error().message, HasSubstr("no tokenizer"));
}

// A tokenizer with more ids than the model has rows.
TEST(EngineGrammar, IdsPastTheModelsRowsAreImpossible) {
  const auto few = std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 30});
  const RecordedAnswer answer = answer_of(few, held_to("xyz|xyzxyz"));
  EXPECT_EQ(answer.text.substr(0, 3), "xyz");
  for (const std::int32_t id : answer.tokens) {
    EXPECT_LT(id, 30);
  }
  // The second half of "é" is one of them.
  EXPECT_THAT(answer_of(few, held_to("é")).error, HasSubstr("position 3: a dead end"));
}

}  // namespace
}  // namespace trine
