// Tools, grammars, /v1/responses and the small endpoints.
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "unit/server/openai/parse_any.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using grammar::Notation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string chat(std::string_view more) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "Hi"}}], {}}})", more);
}

template <typename T>
T take(ApiResult<T> result) {
  EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().message);
  return result.has_value() ? std::move(*result) : T();
}

constexpr std::string_view kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
                 {"type": "function", "function": {"name": "g", "strict": true}}])";

TEST(ParseTools, ChoicesOfEveryKind) {
  const auto parsed = [](std::string_view choice) {
    return take(parse_chat(chat(fmt::format("{}{}", kTools, choice)), {}));
  };
  const ChatRequest automatic = parsed("");
  EXPECT_EQ(automatic.tools.choice, ToolChoice::kAuto);
  EXPECT_TRUE(automatic.tools.parallel);
  EXPECT_EQ(automatic.conversation.tools->size(), 2u);
  EXPECT_FALSE(automatic.generation.skip_special);
  ASSERT_EQ(automatic.warnings.size(), 1u);
  EXPECT_THAT(automatic.warnings[0], HasSubstr("strict"));
  const ChatRequest none = parsed(R"(, "tool_choice": "none")");
  EXPECT_EQ(none.tools.choice, ToolChoice::kNone);
  EXPECT_EQ(none.conversation.tools, nullptr);
  EXPECT_TRUE(none.generation.skip_special);
  EXPECT_EQ(parsed(R"(, "tool_choice": "required")").tools.choice, ToolChoice::kRequired);
  const ChatRequest named =
      parsed(R"(, "tool_choice": {"type": "function", "function": {"name": "g"}},
              "parallel_tool_calls": false)");
  EXPECT_EQ(named.tools.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.tools.named, "g");
  EXPECT_FALSE(named.tools.parallel);
  EXPECT_TRUE(named.warnings.empty());
}

TEST(ParseTools, Refusals) {
  const std::vector<std::tuple<std::string, std::string>> cases = {
      {R"("tool_choice": "required")", "tool_choice asks for a call, but there are no tools"},
      {fmt::format(R"({}, "tool_choice": "any")", kTools), "tool_choice is \"any\""},
      {fmt::format(R"({}, "tool_choice": {{"type": "function", "function": {{"name": "h"}}}})",
                   kTools),
       "tool_choice names \"h\""},
      {fmt::format(R"({}, "tool_choice": {{"type": "allowed_tools"}})", kTools),
       "tool_choice must be none"},
      {R"("tools": [{"type": "custom"}])", "tools[0].type is \"custom\""},
      {R"("tools": [3])", "tools[0] must be an object"},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])",
       "tools[0].function.name is \"a b\""},
      {R"("tools": [{"type": "function", "function": {"name": "a"}},
                    {"type": "function", "function": {"name": "a"}}])",
       "tools[1].function.name \"a\" is there twice"},
      {R"("functions": [{"name": "f"}])", "functions is not supported: use tools"},
      {fmt::format(R"({}, "response_format": {{"type": "json_object"}})", kTools),
       "cannot be used together with tools"},
      {fmt::format(R"({}, "continue_final_message": true)", kTools), "cannot be used with tools"},
  };
  for (const auto& [more, text] : cases) {
    const auto result = parse_chat(chat(more), {});
    ASSERT_FALSE(result.has_value()) << more;
    EXPECT_THAT(result.error().message, HasSubstr(text));
  }
}

TEST(ParseConstraint, EveryWay) {
  const std::vector<std::tuple<std::string, Notation, std::string, std::string>> cases = {
      {R"("response_format": {"type": "json_object"})", Notation::kJsonObject, "",
       "response_format"},
      {R"("response_format": {"type": "json_object", "schema": {"type": "array"}})",
       Notation::kJsonSchema, R"({"type":"array"})", "response_format.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
          "schema": {"b": 1, "a": 2}}})",
       Notation::kJsonSchema, R"({"b":1,"a":2})", "response_format.json_schema.schema"},
      {R"("guided_json": {"type": "object"})", Notation::kJsonSchema, R"({"type":"object"})",
       "guided_json"},
      {R"("guided_json": "{\"type\": \"object\"}")", Notation::kJsonSchema, R"({"type": "object"})",
       "guided_json"},
      {R"("json_schema": {})", Notation::kJsonSchema, "{}", "json_schema"},
      {R"("guided_regex": "a+")", Notation::kRegex, "a+", "guided_regex"},
      {R"("guided_choice": ["x", "y"])", Notation::kChoice, R"(["x","y"])", "guided_choice"},
      {R"("grammar": "root ::= \"a\"")", Notation::kGbnf, R"(root ::= "a")", "grammar"},
      {R"("structured_outputs": {"regex": "b"})", Notation::kRegex, "b",
       "structured_outputs.regex"},
      {R"("structured_outputs": {"json_object": true})", Notation::kJsonObject, "",
       "structured_outputs.json_object"},
  };
  for (const auto& [more, notation, text, field] : cases) {
    const ChatRequest r = take(parse_chat(chat(more), {}));
    ASSERT_TRUE(r.constraint.has_value()) << more;
    EXPECT_EQ(r.constraint->notation, notation) << more;
    EXPECT_EQ(r.constraint->text, text) << more;
    EXPECT_EQ(r.constraint->field, field) << more;
  }
  for (const std::string_view more :
       {R"("response_format": {"type": "text"})", R"("structured_outputs": {})",
        R"("structured_outputs": {"json_object": false})"}) {
    EXPECT_FALSE(take(parse_chat(chat(more), {})).constraint.has_value()) << more;
  }
  for (
      const std::string_view more :
      {R"("response_format": {"type": "json_schema"})",
       R"("response_format": {"type": "json_schema", "json_schema": {}})",
       R"("response_format": {"type": "text", "json_schema": {"schema": {}}})",
       R"("response_format": {"type": "text", "schema": {}})",
       R"("response_format": {"type": "text", "strict": true})",
       R"("response_format": {"type": "json_object", "name": "n"})",
       R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}, "schema": {}})",
       R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}, "name": "n"})",
       R"("response_format": {"type": "json_object"}, "guided_regex": "a")",
       R"("structured_outputs": {"regex": "a", "choice": ["b"]})", R"("guided_choice": [1])",
       R"("guided_choice": [""])"}) {
    EXPECT_FALSE(parse_chat(chat(more), {}).has_value()) << more;
  }
}

TEST(ParseResponses, ItemsBecomeMessages) {
  const ResponsesRequest r = take(parse_responses(
      R"({"instructions": "Be brief", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"a\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "no"},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1", "content":
          [{"type": "output_text", "text": "None.", "annotations": [], "logprobs": []}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": 9,
        "include": ["message.output_text.logprobs"], "top_logprobs": 2})",
      {}));
  EXPECT_EQ(r.conversation.messages->dump(),
            R"([{"role":"system","content":"Be brief"},)"
            R"({"role":"user","content":[{"type":"text","text":"Rain?"}]},)"
            R"({"role":"assistant","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{\"a\": 1}"}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"no"},)"
            R"({"role":"assistant","content":[{"type":"text","text":"None."}]}])");
  EXPECT_EQ(r.conversation.tools->dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(r.tools.choice, ToolChoice::kNamed);
  EXPECT_TRUE(r.logprobs);
  EXPECT_EQ(r.generation.sampling.logprobs, 2);
  EXPECT_EQ(r.generation.max_tokens, 9);
  EXPECT_EQ((*r.repeated)["instructions"], "Be brief");
  EXPECT_EQ((*r.repeated)["tools"][0]["name"], "f");
  EXPECT_GE(r.warnings.size(), 4u);  // ids, status, annotations, logprobs
}

TEST(ParseResponses, TextFormatIsAGrammar) {
  const ResponsesRequest r = take(parse_responses(
      R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
          "schema": {"type": "object"}}}})",
      {}));
  ASSERT_TRUE(r.constraint.has_value());
  EXPECT_EQ(r.constraint->text, R"({"type":"object"})");
  EXPECT_EQ(r.constraint->field, "text.format.schema");
  EXPECT_EQ(r.conversation.messages->dump(), R"([{"role":"user","content":"x"}])");
}

TEST(ParseResponses, StateIsRefusedByName) {
  const std::vector<std::tuple<std::string, std::string>> cases = {
      {R"("previous_response_id": "resp_1")", "previous_response_id is not supported"},
      {R"("conversation": "c")", "conversation is not supported"},
      {R"("background": true)", "background is not supported"},
      {R"("store": true)", "store is not supported"},
      {R"("prompt": {"id": "p"})", "prompt is not supported"},
      {R"("truncation": "auto")", "truncation is not supported: nothing is cut off"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type is \"web_search\""},
      {R"("include": ["file_search_call.results"])", "include[0] must be"},
      {R"("top_logprobs": 2)", "top_logprobs needs include"},
      {R"("n": 2)", "n is not supported"},
  };
  for (const auto& [more, text] : cases) {
    const auto result = parse_responses(fmt::format(R"({{"input": "a", {}}})", more), {});
    ASSERT_FALSE(result.has_value()) << more;
    EXPECT_THAT(result.error().message, HasSubstr(text));
  }
  for (const std::string_view input :
       {R"("")", "[]", R"([{"type": "item_reference", "id": "x"}])", R"([{"role": "user"}])",
        R"([{"content": "a"}])", R"([{"type": "function_call", "name": "f", "arguments": "{}"}])",
        R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
        R"([{"type": "reasoning", "summary": []}])", "[null]"}) {
    EXPECT_FALSE(parse_responses(fmt::format(R"({{"input": {}}})", input), {}).has_value())
        << input;
  }
}

TEST(ParseEmbeddings, Fields) {
  const auto r = take(parse_embeddings(
      R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4, "pooling": "mean",
          "normalize": false, "user": "u"})",
      {}));
  EXPECT_THAT(r.inputs, ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_TRUE(r.base64);
  EXPECT_EQ(r.dimensions, 4);
  EXPECT_EQ(r.pooling, Pooling::kMean);
  EXPECT_FALSE(r.normalize);
  EXPECT_EQ(r.warnings.size(), 1u);
  EXPECT_FALSE(parse_embeddings(R"({"input": "a", "pooling": "cls"})", {}).has_value());
}

TEST(ParseTokenize, TextOrMessages) {
  const auto text = take(parse_tokenize(R"({"content": "a", "add_special": false})", {}));
  EXPECT_EQ(text.text, "a");
  EXPECT_FALSE(text.add_special_tokens);
  const auto talk = take(parse_tokenize(
      R"({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false})", {}));
  EXPECT_NE(talk.conversation.messages, nullptr);
  EXPECT_FALSE(talk.conversation.add_generation_prompt);
  EXPECT_FALSE(talk.add_special_tokens);
  EXPECT_FALSE(parse_tokenize("{}", {}).has_value());
  EXPECT_FALSE(parse_tokenize(R"({"prompt": "a", "tools": []})", {}).has_value());
  EXPECT_THAT(take(parse_detokenize(R"({"tokens": [3, 4]})", {})).tokens, ElementsAre(3, 4));
  EXPECT_FALSE(parse_detokenize(R"({"tokens": [-1]})", {}).has_value());
}

TEST(ParseSpeculative, IsCheckedAndWarnsThatItHasNoEffect) {
  const auto r =
      take(parse_chat(chat(R"("speculative": {"num_tokens": 4, "method": "ngram"})"), {}));
  EXPECT_EQ(r.speculative->num_tokens, 4);
  EXPECT_EQ(r.warnings.size(), 1u);
  EXPECT_TRUE(take(parse_chat(chat(R"("speculative": {"enabled": false})"), {})).warnings.empty());
}

}  // namespace
}  // namespace trine::server::openai
