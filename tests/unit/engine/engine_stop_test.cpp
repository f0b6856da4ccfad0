// What ends an answer, and what of it is shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerationRequest greedy(const std::string& prompt, std::int32_t max_tokens) {
  return {.prompt = ids(prompt), .sampling = {.temperature = 0.0}, .max_tokens = max_tokens};
}

TEST(EngineStop, EndTokenEndsTheAnswer) {
  const Record record = generate(scripted(2, ids("abc$d")), greedy("hi", 20));
  const RecordedAnswer& answer = record.answers.at(0);
  EXPECT_EQ(answer.tokens, ids("abc$"));
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(record.stats->generated_tokens, 4);
  EXPECT_EQ(record.stats->prompt_tokens, 2);
}

TEST(EngineStop, IgnoreEosGoesOn) {
  GenerationRequest request = greedy("hi", 5);
  request.ignore_eos = true;
  const RecordedAnswer answer = generate(scripted(2, ids("abc$d")), request).answers.at(0);
  EXPECT_EQ(answer.tokens, ids("abc$d"));
  EXPECT_EQ(answer.text, "abcd");
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(EngineStop, StopIdsOfTheRequestCountBesidesTheModels) {
  GenerationRequest request = greedy("hi", 20);
  request.stop_ids = ids("c");
  RecordedAnswer answer = generate(scripted(2, ids("abcd$")), request).answers.at(0);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  request.include_stop = true;
  answer = generate(scripted(2, ids("abcd$")), request).answers.at(0);
  EXPECT_EQ(answer.text, "abc");
}

TEST(EngineStop, MaxTokensIsExact) {
  const Record record = generate(scripted(2, ids("abcdef")), greedy("hi", 3));
  EXPECT_EQ(record.answers.at(0).text, "abc");
  EXPECT_EQ(record.answers.at(0).finish, FinishReason::kLength);
  EXPECT_EQ(record.stats->generated_tokens, 3);
}

TEST(EngineStop, StopWithinTheBudgetWinsOverLength) {
  EXPECT_EQ(generate(scripted(2, ids("ab$")), greedy("hi", 3)).answers.at(0).finish,
            FinishReason::kStop);
  GenerationRequest request = greedy("hi", 3);
  request.stop = {"bc"};
  EXPECT_EQ(generate(scripted(2, ids("abc")), request).answers.at(0).finish, FinishReason::kStop);
}

TEST(EngineStop, StopStringIsHeldBackAcrossTokensAndCutOff) {
  GenerationRequest request = greedy("hi", 20);
  request.stop = {"cde", "zz"};
  const RecordedAnswer answer = generate(scripted(2, ids("abcdxcdefgh")), request).answers.at(0);
  EXPECT_EQ(answer.text, "abcdx");
  EXPECT_THAT(answer.pieces, ElementsAre("a", "b", "", "", "cdx", "", "", ""));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.matched_stop, "cde");
  request.include_stop = true;
  EXPECT_EQ(generate(scripted(2, ids("abcdxcdefgh")), request).answers.at(0).text, "abcdxcde");
}

TEST(EngineStop, StopInsideATokenCutsItsText) {
  GenerationRequest request = greedy("hi", 20);
  request.stop = {"y"};
  const RecordedAnswer answer = generate(scripted(2, ids("ab#")), request).answers.at(0);
  EXPECT_EQ(answer.text, "abx");
  EXPECT_EQ(answer.tokens.size(), 3u);
}

TEST(EngineStop, HeldBackTextComesOutWhenTheAnswerEnds) {
  GenerationRequest request = greedy("hi", 4);
  request.stop = {"cdz"};
  EXPECT_EQ(generate(scripted(2, ids("abcd")), request).answers.at(0).text, "abcd");
  EXPECT_EQ(generate(scripted(2, ids("acd$")), request).answers.at(0).text, "acd");
}

TEST(EngineStop, BeforeMinTokensNothingStops) {
  GenerationRequest request = greedy("hi", 8);
  request.stop = {"b"};
  request.sampling.min_tokens = 4;
  const RecordedAnswer answer = generate(scripted(2, ids("ab$ababab")), request).answers.at(0);
  // The end token is impossible at its place, so another one follows; "b" counts from the fourth
  // token on.
  EXPECT_EQ(answer.tokens.size() >= 4u, true);
  EXPECT_EQ(answer.tokens[0], 0);
  EXPECT_EQ(answer.tokens[1], 1);
  EXPECT_NE(answer.tokens[2], 28);
  EXPECT_EQ(answer.tokens[3], 0);
  EXPECT_EQ(answer.tokens[4], 1);
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

TEST(EngineStop, TheTokenThatFillsMinTokensMayStop) {
  GenerationRequest request = greedy("hi", 8);
  request.stop = {"b"};
  request.sampling.min_tokens = 4;
  RecordedAnswer answer = generate(scripted(2, ids("aaabbb")), request).answers.at(0);
  EXPECT_EQ(answer.tokens, ids("aaab"));
  EXPECT_EQ(answer.text, "aaa");
  // As many as max_tokens is no contradiction.
  request.max_tokens = 4;
  request.stop = {};
  answer = generate(scripted(2, ids("aaaaaa")), request).answers.at(0);
  EXPECT_EQ(answer.tokens.size(), 4u);
}

TEST(EngineStop, HeldBackTextComesOutWhenTheRequestIsCancelled) {
  GenerationRequest request = greedy("hi", 20);
  request.stop = {"cdz"};
  const auto engine = make_engine(scripted(2, ids("abcdabcdabcd")));
  Record record;
  const auto id = engine->submit(request, record.callback());
  ASSERT_TRUE(id.has_value());
  for (int i = 0; i < 4; ++i) {
    engine->step();
  }
  EXPECT_EQ(record.answers.at(0).text, "ab");
  engine->cancel(*id);
  engine->run_to_end();
  EXPECT_EQ(record.answers.at(0).finish, FinishReason::kCancelled);
  EXPECT_EQ(record.answers.at(0).text, "abcd");
}

TEST(EngineStop, TheTextBeginsWhereThePromptEnds) {
  // Like SentencePiece: every token has a leading blank, which decoding drops at the start of a
  // text. An answer does not start one.
  class Blanks : public FakeTokenizer {
   public:
    using FakeTokenizer::FakeTokenizer;

    void append_bytes(text::DecodeState& state, std::int32_t id, bool /*skip_special*/,
                      std::string& bytes) const override {
      bytes += (state.first ? "" : " ") + token_bytes(id);
      state.first = false;
    }
  };

  std::vector<std::string> pieces;
  for (std::int32_t i = 0; i < 32; ++i) {
    pieces.emplace_back(letters()->piece(i));
  }
  const auto engine = Engine::create(
      scripted(2, ids("abc")), std::make_shared<Blanks>(pieces, std::vector<std::int32_t>{28}),
      {.num_threads = 1});
  ASSERT_TRUE(engine.has_value());
  Record record;
  ASSERT_TRUE((*engine)->submit(greedy("hi", 3), record.callback()).has_value());
  (*engine)->run_to_end();
  EXPECT_EQ(record.answers.at(0).text, " a b c");
}

TEST(EngineStop, CharactersAreNeverBroken) {
  GenerationRequest request = greedy("hi", 4);
  const RecordedAnswer answer = generate(scripted(2, {0, 29, 30, 1}), request).answers.at(0);
  EXPECT_THAT(answer.pieces, ElementsAre("a", "", "\xc3\xa9", "b"));
  // Cut in the middle of a character: the replacement character, at the end.
  request.max_tokens = 2;
  EXPECT_EQ(generate(scripted(2, {0, 29, 30, 1}), request).answers.at(0).text, "a\xef\xbf\xbd");
}

TEST(EngineStop, RefusalsNameTheField) {
  const auto engine = make_engine(scripted(2, {}), {.max_sequences = 4});
  const auto expect_refused = [&](GenerationRequest request, ErrorCode code,
                                  const std::string& text, std::string_view field = {}) {
    const auto id = engine->submit(std::move(request), {});
    ASSERT_FALSE(id.has_value()) << text;
    EXPECT_EQ(id.error().code, code);
    EXPECT_THAT(id.error().message, HasSubstr(text));
    EXPECT_EQ(engine->refused_field(),
              field.empty() ? text.substr(0, text.find_first_of(" :[")) : field);
  };
  GenerationRequest request = greedy("", 4);
  expect_refused(request, ErrorCode::kInvalidArgument, "prompt has no tokens");
  request.prompt = {1, 32};
  expect_refused(request, ErrorCode::kInvalidArgument, "prompt: token 32 at position 1");
  request = greedy("hi", -1);
  expect_refused(request, ErrorCode::kInvalidArgument, "max_tokens is -1");
  request = greedy("hi", 4);
  request.n = 5;
  expect_refused(request, ErrorCode::kInvalidArgument, "n is 5, must be in [1, 4]");
  request = greedy("hi", 4);
  request.stop = {"a", ""};
  expect_refused(request, ErrorCode::kInvalidArgument, "stop[1] is empty");
  request = greedy("hi", 4);
  request.sampling.min_tokens = 5;
  expect_refused(request, ErrorCode::kInvalidArgument, "min_tokens is 5");
  request = greedy("hi", 4);
  request.sampling.top_p = 2.0;
  expect_refused(request, ErrorCode::kInvalidArgument, "top_p is 2");
  request = greedy("hi", 4);
  request.stop_ids = {99};
  expect_refused(request, ErrorCode::kInvalidArgument, "stop_ids: token 99");
  request = greedy("hi", 511);
  expect_refused(request, ErrorCode::kExhausted,
                 "2 prompt tokens and 511 max_tokens need 513 tokens, the context holds 512",
                 "max_tokens");
  request = {.prompt = std::vector<std::int32_t>(512, 1)};
  expect_refused(request, ErrorCode::kExhausted,
                 "prompt has 512 tokens and an answer needs one, the context holds 512");
  request = greedy("hi", 4);
  request.sampling.logit_bias = {{.token = 99, .bias = 1.0}};
  expect_refused(request, ErrorCode::kInvalidArgument, "logit_bias: token 99");
  // As the caller calls them.
  request = greedy("hi", 511);
  request.names = {.prompt = "messages", .max_tokens = "max_output_tokens", .stop_ids = "ends"};
  expect_refused(request, ErrorCode::kExhausted, "and 511 max_output_tokens need 513 tokens",
                 "max_output_tokens");
  request.max_tokens = 4;
  request.stop_ids = {99};
  expect_refused(request, ErrorCode::kInvalidArgument, "ends: token 99");
  request.prompt = {32};
  expect_refused(request, ErrorCode::kInvalidArgument, "messages: token 32");
  request = greedy("hi", 4);
  request.n = 4;
  request.max_tokens = 500;
  const auto narrow = make_engine(scripted(2, {}), {.kv_tokens = 1024, .max_sequences = 4});
  EXPECT_FALSE(narrow->submit(request, {}).has_value());
  EXPECT_EQ(narrow->refused_field(), "n");
  // One that is taken leaves nothing behind.
  EXPECT_TRUE(narrow->submit(greedy("hi", 1), {}).has_value());
  EXPECT_EQ(narrow->refused_field(), "");
  narrow->run_to_end();
  EXPECT_TRUE(engine->idle());
  const auto no_text = make_engine(scripted(2, {}), {}, false);
  request = greedy("hi", 4);
  request.stop = {"a"};
  EXPECT_FALSE(no_text->submit(request, {}).has_value());
}

TEST(EngineStop, WithoutMaxTokensTheContextIsTheEnd) {
  GenerationRequest request{
      .prompt = ids("hi"), .sampling = {.temperature = 0.0}, .ignore_eos = true};
  const Record record = generate(scripted(2, ids("a")), request, {.context_tokens = 50});
  EXPECT_EQ(record.answers.at(0).tokens.size(), 48u);
  EXPECT_EQ(record.answers.at(0).finish, FinishReason::kLength);
}

}  // namespace
}  // namespace trine
