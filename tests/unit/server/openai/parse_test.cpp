#include "server/openai/parse.h"

#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "unit/server/openai/parse_any.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A chat body with more fields.
std::string chat(std::string_view more,
                 std::string_view messages = R"([{"role": "user", "content": "Hi"}])") {
  return fmt::format(R"({{"messages": {}{}{}}})", messages, more.empty() ? "" : ", ", more);
}

template <typename T>
T take(ApiResult<T> result) {
  EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().message);
  return result.has_value() ? std::move(*result) : T();
}

TEST(ParseChat, EveryFieldArrives) {
  const ChatRequest r = take(parse_chat(
      chat(R"("model": "m", "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
        "typical_p": 0.75, "repetition_penalty": 1.5, "presence_penalty": -1,
        "frequency_penalty": 2, "logit_bias": {"17": -100, "3": 1.5}, "bad_words": ["no"],
        "seed": 9223372036854775807, "stop": ["a", "b"], "stop_token_ids": [5],
        "include_stop_str_in_output": true, "min_tokens": 2, "max_tokens": 30, "n": 3,
        "ignore_eos": true, "skip_special_tokens": false, "logprobs": true, "top_logprobs": 4,
        "priority": -5, "cache_salt": "s", "timeout_ms": 2.5, "stream": true,
        "stream_options": {"include_usage": true}, "metadata": {"k": "v"},
        "return_tokens_as_token_ids": true, "return_token_ids": true)"),
      {}));
  EXPECT_EQ(r.model, "m");
  const auto& s = r.generation.sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.25);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.125);
  EXPECT_EQ(s.typical_p, 0.75);
  EXPECT_EQ(s.repetition_penalty, 1.5);
  EXPECT_EQ(s.presence_penalty, -1);
  EXPECT_EQ(s.frequency_penalty, 2);
  ASSERT_EQ(s.logit_bias.size(), 2u);
  EXPECT_EQ(s.logit_bias[0].token, 17);
  EXPECT_EQ(s.logit_bias[0].bias, -100);
  EXPECT_EQ(s.seed, 9223372036854775807u);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.logprobs, 4);
  EXPECT_THAT(r.bad_words, ElementsAre("no"));
  EXPECT_THAT(r.generation.stop, ElementsAre("a", "b"));
  EXPECT_THAT(r.generation.stop_ids, ElementsAre(5));
  EXPECT_TRUE(r.generation.include_stop);
  EXPECT_EQ(r.generation.max_tokens, 30);
  EXPECT_EQ(r.generation.n, 3);
  EXPECT_TRUE(r.generation.ignore_eos);
  EXPECT_FALSE(r.generation.skip_special);
  EXPECT_EQ(r.generation.priority, -5);
  EXPECT_EQ(r.generation.cache_salt, "s");
  EXPECT_EQ(r.generation.timeout_ms, 2.5);
  EXPECT_TRUE(r.stream && r.include_usage && r.logprobs && r.tokens_as_ids && r.return_token_ids);
  EXPECT_EQ(r.metadata->dump(), R"({"k":"v"})");
  EXPECT_TRUE(r.warnings.empty());
}

TEST(ParseChat, DefaultsAreTheModels) {
  Limits limits;
  limits.default_sampling.temperature = 0.25;
  limits.default_sampling.top_k = 9;
  limits.default_max_tokens = 77;
  const ChatRequest r = take(parse_chat(chat(R"("top_k": -1)"), limits));
  EXPECT_EQ(r.generation.sampling.temperature, 0.25);
  EXPECT_EQ(r.generation.sampling.top_k, 0);
  EXPECT_EQ(r.generation.max_tokens, 77);
  EXPECT_TRUE(r.max_tokens_by_default);
  EXPECT_FALSE(take(parse_chat(chat(R"("max_tokens": 77)"), limits)).max_tokens_by_default);
  const auto completion = [&](std::string_view more) {
    return take(parse_completion(fmt::format(R"({{"prompt": "a"{}}})", more), limits));
  };
  EXPECT_EQ(completion("").generation.max_tokens, 77);
  EXPECT_TRUE(completion("").max_tokens_by_default);
  EXPECT_FALSE(completion(R"(, "max_tokens": 3)").max_tokens_by_default);
  const ResponsesRequest response = take(parse_responses(R"({"input": "a"})", limits));
  EXPECT_TRUE(response.max_tokens_by_default);
  EXPECT_EQ((*response.repeated)["temperature"], 0.25);  // the answer says what was used
  EXPECT_EQ(take(parse_chat(chat(""), {})).generation.max_tokens, std::nullopt);
}

TEST(ParseChat, RefusalsNameTheFieldAndTheReason) {
  const std::vector<std::tuple<std::string, std::string>> cases = {
      {chat(R"("temperature": -0.5)"), "temperature is -0.5, must be in [0, 100]"},
      {chat(R"("top_p": 0)"), "top_p is 0, must be in (0, 1]"},
      {chat(R"("n": 129)"), "n is 129, must be in [1, 128]"},
      {chat(R"("seed": -1)"), "seed is -1, must be in [0, 2^63 - 1]"},
      {chat(R"("max_tokens": 2.5)"), "max_tokens is 2.5, must be integer"},
      {chat(R"("max_tokens": 5, "max_completion_tokens": 5)"),
       "max_completion_tokens is another name of max_tokens, which is there too"},
      {chat(R"("max_completion_tokens": 5, "n_predict": 5)"),
       "n_predict is another name of max_completion_tokens, which is there too"},
      {chat(R"("stop": "")"), "stop[0] must be a text of 1 to 1024 bytes"},
      {chat(R"("stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
       "stop has 17 texts, at most 16"},
      {chat(R"("logit_bias": {"x": 1})"), "logit_bias.x is no token id"},
      {chat(R"("logit_bias": {"99999999999": 1})"), "is no token id"},
      {chat(R"("logit_bias": {"1": 101})"), "logit_bias.1 must be a number in [-100, 100]"},
      {chat(R"("min_tokens": 5, "max_tokens": 4)"),
       "min_tokens is 5, must be at most max_tokens (4)"},
      {chat(R"("min_tokens": 5, "n_predict": 4)"), "must be at most n_predict (4)"},
      {chat(R"("n": 128, "max_tokens": 2147483647)"), "lower n or max_tokens,"},
      {chat(R"("top_logprobs": 3)"), "top_logprobs needs logprobs"},
      {chat(R"("stream_options": {})"), "stream_options is given without stream"},
      {chat(R"("metadata": {"a": 1})"), "metadata.a must be a text"},
      {chat(R"("chat_template": "x")"), "a request cannot bring one"},
      {chat(R"("chat_template_kwargs": {"messages": []})"),
       "chat_template_kwargs.messages is a name that the template owns"},
      {chat(R"("chat_template_kwargs": {"__class__": 1})"), "is a name that the template owns"},
      {chat(R"("reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": 1})"),
       "reasoning_effort is also in chat_template_kwargs"},
      {chat(R"("continue_final_message": true, "add_generation_prompt": true)"),
       "cannot both be true"},
      {chat(R"("echo": true)"), "echo needs continue_final_message"},
      {chat(R"("speculative": {"num_tokens": 65})"), "speculative.num_tokens is 65"},
      {chat("", "[]"), "messages has 0 messages"},
      {chat("", "[3]"), "messages[0] must be an object"},
      {chat("", R"([{"content": "a"}])"), "messages[0].role is missing"},
      {chat("", R"([{"role": "bot", "content": "a"}])"), "messages[0].role is \"bot\""},
      {chat("", R"([{"role": "user"}])"), "messages[0].content is missing"},
      {chat("", R"([{"role": "user", "content": null}])"), "messages[0].content is missing"},
      {chat("", R"([{"role": "tool", "content": "a"}])"), "messages[0].tool_call_id is missing"},
      {chat("", R"([{"role": "user", "content": "a", "tool_calls": []}])"),
       "messages[0].tool_calls belongs to messages of role assistant"},
      {chat("", R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
       "messages[0].content[0].type is \"image_url\": this server reads text only"},
      {chat("", R"([{"role": "user", "content": [{"type": "input_audio"}]}])"),
       "is \"input_audio\": this server reads text only"},
      {chat("", R"([{"role": "user", "content": [{"type": "text"}]}])"),
       "messages[0].content[0].text is missing"},
      {chat("", R"([{"role": "assistant", "tool_calls":
         [{"function": {"name": "f", "arguments": "{"}}]}])"),
       "messages[0].tool_calls[0].function.arguments must be a JSON object as text"},
      {chat("", R"([{"role": "assistant", "tool_calls":
         [{"function": {"name": "f", "arguments": "[]"}}]}])"),
       "arguments must be a JSON object as text"},
      {"[]", "the body must be a JSON object"},
      {"{", "the body: JSON:"},
      {"", "the body: JSON:"},
      {R"({"messages": [], "messages": []})", "duplicate key"},
  };
  for (const auto& [body, text] : cases) {
    const auto result = parse_chat(body, {});
    ASSERT_FALSE(result.has_value()) << body;
    EXPECT_EQ(result.error().status, 400) << body;
    EXPECT_THAT(result.error().message, HasSubstr(text)) << body;
  }
  EXPECT_EQ(parse_chat("[]", {}).error().param, std::nullopt);
}

TEST(ParseChat, MessagesAreNormalised) {
  const ChatRequest r = take(parse_chat(
      chat("", R"([{"role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        {"role": "assistant", "content": null, "refusal": "no", "audio": null},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "index": 0,
           "function": {"name": "f", "arguments": ""}}], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": "4"}])"),
      {}));
  EXPECT_EQ(r.conversation.messages->dump(),
            R"([{"role":"developer","content":[{"type":"text","text":"x"}]},)"
            R"({"role":"assistant","content":"no"},)"
            R"({"role":"assistant","tool_calls":[{"id":"c","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}],"reasoning_content":"hm"},)"
            R"({"role":"tool","tool_call_id":"c","content":"4"}])");
  EXPECT_EQ(r.warnings.size(), 1u);  // index
  EXPECT_TRUE(r.conversation.add_generation_prompt);
  EXPECT_EQ(r.conversation.tools, nullptr);
}

TEST(ParseChat, TemplateVariablesArrive) {
  const ChatRequest r = take(parse_chat(
      chat(R"("chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low",
        "documents": [{"text": "d"}], "continue_final_message": true)"),
      {}));
  EXPECT_EQ(r.conversation.template_kwargs->dump(),
            R"({"enable_thinking":false,"documents":[{"text":"d"}],"reasoning_effort":"low"})");
  EXPECT_TRUE(r.conversation.continue_final_message);
  EXPECT_FALSE(r.conversation.add_generation_prompt);
}

TEST(Parse, BodiesOverTheLimitAre413) {
  Limits limits;
  limits.max_body_bytes = 10;
  const auto result = parse_chat(chat(""), limits);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().status, 413);
}

TEST(ParseCompletion, PromptsOfEveryForm) {
  const auto prompts = [](std::string_view text) {
    return take(parse_completion(fmt::format(R"({{"prompt": {}}})", text), {})).prompts;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_THAT(prompts(R"("a b")"), ElementsAre(Prompt("a b")));
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1, 2]"), ElementsAre(Prompt(Ids{1, 2})));
  EXPECT_THAT(prompts("[[1], [2, 3]]"), ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
  EXPECT_THAT(prompts(R"([[1], "b"])"), ElementsAre(Prompt(Ids{1}), Prompt("b")));
  for (const std::string_view text :
       {R"("")", "[]", "[[]]", R"([""])", "[-1]", "[1, 2.5]", "[2147483648]", "[true]",
        R"([1, "a"])", "[[[1]]]", "3", "{}", "null", R"(["a", 1])"}) {
    const auto result = parse_completion(fmt::format(R"({{"prompt": {}}})", text), {});
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().status, 400);
    EXPECT_THAT(result.error().message, HasSubstr("prompt"));
  }
}

TEST(ParseCompletion, WhatLmEvaluationHarnessSends) {
  const auto r = take(parse_completion(
      R"({"model": "m", "prompt": [[1, 2, 3], [4, 5]], "temperature": 0, "max_tokens": 1,
          "logprobs": 1, "seed": 1234, "echo": true})",
      {}));
  EXPECT_EQ(r.prompts.size(), 2u);
  EXPECT_TRUE(r.echo && r.logprobs);
  EXPECT_EQ(r.generation.prompt_logprobs, 1);
  EXPECT_EQ(r.generation.sampling.logprobs, 1);
  EXPECT_EQ(r.generation.max_tokens, 1);
}

TEST(ParseCompletion, MaxTokensOfZeroNeedsEcho) {
  const auto r = take(parse_completion(R"({"prompt": "a", "max_tokens": 0, "echo": true})", {}));
  EXPECT_EQ(r.generation.max_tokens, 0);
  EXPECT_FALSE(parse_completion(R"({"prompt": "a", "max_tokens": 0})", {}).has_value());
  EXPECT_EQ(take(parse_completion(R"({"prompt": "a"})", {})).generation.max_tokens, 16);
}

TEST(ParseCompletion, BestOf) {
  const auto r = take(parse_completion(R"({"prompt": "a", "best_of": 4, "n": 2})", {}));
  EXPECT_EQ(r.generation.n, 4);
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.generation.sampling.logprobs, 0);
  EXPECT_FALSE(r.logprobs);
  EXPECT_FALSE(parse_completion(R"({"prompt": "a", "best_of": 1, "n": 2})", {}).has_value());
  EXPECT_FALSE(
      parse_completion(R"({"prompt": "a", "best_of": 2, "stream": true})", {}).has_value());
}

TEST(ParseCompletion, TheCostIsCheckedBeforeAnythingIsCopied) {
  Limits limits;
  limits.context_tokens = 1000;
  limits.max_cost_tokens = 10000;
  // 2 prompts x 3 answers x (100 tokens + 1 byte) fits, x 50 does not.
  EXPECT_TRUE(
      parse_completion(R"({"prompt": ["a", "b"], "n": 3, "max_tokens": 100})", limits).has_value());
  const auto over =
      parse_completion(R"({"prompt": ["a", "b"], "n": 50, "max_tokens": 100})", limits);
  ASSERT_FALSE(over.has_value());
  EXPECT_EQ(over.error().status, 400);
  EXPECT_EQ(over.error().code, "limit_exceeded");
  EXPECT_EQ(over.error().param, "n");
  EXPECT_THAT(over.error().message, HasSubstr("make 10100, at most 10000"));
  // Without max_tokens an answer may go on to the end of the context.
  EXPECT_TRUE(parse_chat(chat(R"("n": 9)"), limits).has_value());
  EXPECT_FALSE(parse_chat(chat(R"("n": 10)"), limits).has_value());
  // best_of is what is drawn.
  EXPECT_FALSE(parse_completion(R"({"prompt": "a", "best_of": 101, "max_tokens": 100})", limits)
                   .has_value());
  // The largest request there can be does not overflow.
  std::string prompts;
  for (int i = 0; i < 2049; ++i) {
    prompts += i == 0 ? "\"a\"" : ",\"a\"";
  }
  const auto most = parse_completion(
      fmt::format(R"({{"prompt": [{}], "n": 128, "max_tokens": 2147483647}})", prompts), {});
  ASSERT_FALSE(most.has_value());
  EXPECT_EQ(most.error().code, "limit_exceeded");
  const auto many =
      parse_completion(fmt::format(R"({{"prompt": [{}], "max_tokens": 1}})", prompts), {});
  ASSERT_FALSE(many.has_value());
  EXPECT_THAT(many.error().message, HasSubstr("prompt has 2049 prompts, at most 2048"));
}

}  // namespace
}  // namespace trine::server::openai
