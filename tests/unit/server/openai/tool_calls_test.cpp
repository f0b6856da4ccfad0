#include "server/openai/tool_calls.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/compile.h"
#include "support/tool_call_text.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::parse_cut;
using testing::ParsedText;

struct Case {
  ToolFamily family;
  std::string text;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool begun = false;
};

std::vector<Case> cases() {
  using enum ToolFamily;
  const std::string call = R"({"name": "f", "arguments": {"a": 1.50, "b": "}<"}})";
  const std::string args = R"({"a": 1.50, "b": "}<"})";
  return {
      {kHermes, "Hello <b>", "Hello <b>", {}},
      {kHermes, "<tool_call>\n" + call + "\n</tool_call>", "", {{"f", args}}},
      {kHermes,
       "One moment.\n\n<tool_call>" + call + "</tool_call>\n<tool_call>\n" + call +
           "\n</tool_call>  ",
       "One moment.",
       {{"f", args}, {"f", args}}},
      {kHermes, "<tool_call>" + call + "</tool_call> Done.", "Done.", {{"f", args}}},
      {kHermes, "<tool_call>" + call, "", {{"f", args}}},  // the stop came before the end mark
      {kHermes, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "", {{"f", "{}"}}},
      {kHermes,
       R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)",
       "",
       {{"f", R"({"a": 1})"}}},
      // Not calls: as the model wrote them.
      {kHermes, "a <tool_call> b", "a <tool_call> b", {}},
      {kHermes,
       "\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"",
       "\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"",
       {}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
       {}},
      {kHermes, "<tool_call>{nonsense}</tool_call>", "<tool_call>{nonsense}</tool_call>", {}},
      {kHermes, "<tool_call><tool_call>" + call + "</tool_call>", "<tool_call>", {{"f", args}}},
      {kHermes, "<tool_c", "<tool_c", {}},
      {kHermes, call, call, {}},  // without its mark it is text
      {kHermes, call + "\n</tool_call>", "", {{"f", args}}, true},
      {kLlama3, R"({"name": "f", "parameters": {"a": 1}})", "", {{"f", R"({"a": 1})"}}},
      {kLlama3,
       R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}})",
       "",
       {{"f", "{}"}, {"g", "{}"}}},
      {kLlama3, R"({"name": "f", "parameters": {}}<|eom_id|>)", "", {{"f", "{}"}}},
      {kLlama3, R"({"answer": 42})", R"({"answer": 42})", {}},
      {kLlama3,
       R"(It is {"name": "f", "parameters": {}})",
       R"(It is {"name": "f", "parameters": {}})",
       {}},
      {kMistral, "[TOOL_CALLS] [" + call + ", " + call + "]", "", {{"f", args}, {"f", args}}},
      {kMistral, "Well. [TOOL_CALLS] [" + call + "]", "Well.", {{"f", args}}},
      {kMistral, "[TOOL_CALLS] []", "[TOOL_CALLS] []", {}},
      {kMistral, "[" + call + "]", "", {{"f", args}}, true},
      {kMistralArgs,
       R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{})",
       "",
       {{"f", R"({"a": 1})"}, {"g", "{}"}}},
      {kMistralArgs, R"([TOOL_CALLS]f{"a": 1})", "", {{"f", R"({"a": 1})"}}},
      {kMistralArgs, "[TOOL_CALLS]f[ARG", "[TOOL_CALLS]f[ARG", {}},
      {kPhi, "<|tool_call|>[" + call + "]<|/tool_call|>", "", {{"f", args}}},
      {kPhi, "functools[" + call + "]", "", {{"f", args}}},
      {kPhi, "functools are tools", "functools are tools", {}},
      {kGemma,
       "<start_function_call>call:f{city:<escape>a}, \"b\"<escape>,n:2,l:[1,<escape>x<escape>],"
       "o:{t:true}}<end_function_call>",
       "",
       {{"f", R"({"city":"a}, \"b\"","n":2,"l":[1,"x"],"o":{"t":true}})"}}},
      {kGemma,
       "<start_function_call>call:f{}<end_function_call><start_function_call>call:g{}",
       "",
       {{"f", "{}"}, {"g", "{}"}}},
      {kGemma,
       "<start_function_call>call:f{a:word}<end_function_call>",
       "<start_function_call>call:f{a:word}<end_function_call>",
       {}},
      {kGemma, call, "", {{"f", args}}, true},
      {kGeneric, "  " + call, "", {{"f", args}}},
      {kGeneric, "[" + call + "]", "", {{"f", args}}},
      {kGeneric, "```json\n" + call + "\n```", "", {{"f", args}}},
      {kGeneric, "```python\nprint(1)\n```", "```python\nprint(1)\n```", {}},
      {kGeneric, "", "", {}},
      {kGeneric, " \n ", " \n ", {}},
      {kGeneric, "[1, 2]", "[1, 2]", {}},
      {kGeneric, "Grüße 😀 ", "Grüße 😀 ", {}},
  };
}

TEST(ToolCalls, WholeTexts) {
  for (const Case& c : cases()) {
    const ParsedText got = parse_cut(c.family, c.text, {}, c.begun);
    EXPECT_EQ(got.content, c.content) << c.text;
    ASSERT_EQ(got.calls.size(), c.calls.size()) << c.text;
    for (std::size_t i = 0; i < c.calls.size(); ++i) {
      EXPECT_EQ(got.calls[i].name, c.calls[i].first) << c.text;
      EXPECT_EQ(got.calls[i].arguments, c.calls[i].second) << c.text;
      EXPECT_TRUE(got.calls[i].ended);
    }
  }
}

TEST(ToolCalls, EveryCutGivesTheSame) {
  for (const Case& c : cases()) {
    const ParsedText whole = parse_cut(c.family, c.text, {}, c.begun);
    std::vector<std::size_t> all;
    for (std::size_t i = 1; i < c.text.size(); ++i) {
      all.push_back(i);
      for (std::size_t j = i; j < c.text.size(); ++j) {
        ASSERT_EQ(parse_cut(c.family, c.text, {i, j}, c.begun), whole) << c.text << i << ',' << j;
      }
    }
    EXPECT_EQ(parse_cut(c.family, c.text, all, c.begun), whole) << c.text;
  }
}

TEST(ToolCalls, ContentIsNotHeldBackLongerThanNeeded) {
  ToolCallParser parser(ToolFamily::kHermes);
  std::vector<ToolDelta> out;
  parser.push("Hello <", out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].text, "Hello");
  out.clear();
  parser.push("b", out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].text, " <b");
  // A call is told as soon as its last brace is there.
  out.clear();
  parser.push("<tool_call>{\"name\": \"f\"}", out);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(parser.num_calls(), 1);
}

TEST(ToolCalls, HostileNestingEndsSoon) {
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text += "<tool_call>{";
  }
  // What cannot be a call any more is not kept until the end.
  ToolCallParser parser(ToolFamily::kHermes);
  std::vector<ToolDelta> out;
  parser.push(text, out);
  ParsedText early;
  testing::collect(out, early);
  EXPECT_GT(early.content.size(), text.size() - 1000);
  const ParsedText got = parse_cut(ToolFamily::kHermes, text, {});
  EXPECT_TRUE(got.calls.empty());
  EXPECT_EQ(got.content, text);
}

TEST(ToolFamily, IsSeenInATemplate) {
  EXPECT_EQ(tool_family_of("x <tool_call>\n{"), ToolFamily::kHermes);
  EXPECT_EQ(tool_family_of("[TOOL_CALLS] [{"), ToolFamily::kMistral);
  EXPECT_EQ(tool_family_of("[TOOL_CALLS]f[ARGS]{"), ToolFamily::kMistralArgs);
  EXPECT_EQ(tool_family_of("<start_function_call>call:"), ToolFamily::kGemma);
  EXPECT_EQ(tool_family_of("<|tool_call|>["), ToolFamily::kPhi);
  EXPECT_EQ(tool_family_of("<|start_header_id|>assistant {\"name\": \"f\", \"parameters\": {"),
            ToolFamily::kLlama3);
  EXPECT_EQ(tool_family_of("plain"), std::nullopt);
  for (const ToolFamily family : {ToolFamily::kHermes, ToolFamily::kGeneric}) {
    EXPECT_EQ(parse_tool_family(tool_family_name(family)), family);
  }
  EXPECT_EQ(parse_tool_family("other"), std::nullopt);
}

Json tools() {
  return Json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
      "properties": {"p": {"$ref": "#/$defs/P"}}, "required": ["p"], "additionalProperties": false,
      "$defs": {"P": {"type": "string", "enum": ["x"]}}}}},
    {"type": "function", "function": {"name": "g"}}])");
}

// Whether the automaton of a forced call takes a text as a whole.
bool takes(const ToolForcing& forcing, const std::string& text) {
  const auto automaton = grammar::compile(forcing.constraint.notation, forcing.constraint.text);
  EXPECT_TRUE(automaton.has_value()) << forcing.constraint.text << "\n"
                                     << (automaton.has_value() ? "" : automaton.error().message);
  if (!automaton.has_value()) {
    return false;
  }
  grammar::Stepper stepper(*automaton);
  std::vector<grammar::Config> set;
  std::vector<grammar::Config> next;
  EXPECT_TRUE(stepper.start(set).has_value());
  for (const char c : text) {
    next.clear();
    if (!stepper.step(set, static_cast<std::uint8_t>(c), next).has_value() || next.empty()) {
      return false;
    }
    set.swap(next);
  }
  return std::any_of(set.begin(), set.end(), [](const grammar::Config& config) {
    return config.state == grammar::kAcceptState;
  });
}

ToolForcing force(ToolRequest request, ToolFamily family) {
  const auto made = force_tool_call(request, tools(), family);
  EXPECT_TRUE(made.has_value() && made->has_value());
  return **made;
}

TEST(ToolForcing, SchemasTakeWhatTheParserReads) {
  for (const ToolFamily family :
       {ToolFamily::kHermes, ToolFamily::kLlama3, ToolFamily::kMistral, ToolFamily::kMistralArgs,
        ToolFamily::kPhi, ToolFamily::kGemma, ToolFamily::kGeneric}) {
    const bool list = family == ToolFamily::kMistral || family == ToolFamily::kMistralArgs ||
                      family == ToolFamily::kPhi;
    const std::string key = family == ToolFamily::kLlama3 ? "parameters" : "arguments";
    const std::string f = "{\"name\": \"f\", \"" + key + "\": {\"p\": \"x\"}}";
    const std::string g = "{\"name\": \"g\", \"" + key + "\": {}}";
    const auto wrap = [&](const std::string& text) { return list ? "[" + text + "]" : text; };
    const ToolForcing any = force({.choice = ToolChoice::kRequired, .named = {}}, family);
    EXPECT_TRUE(takes(any, wrap(f)));
    EXPECT_TRUE(takes(any, wrap(g)));
    EXPECT_EQ(takes(any, wrap(f + ", " + g)), list);
    EXPECT_FALSE(takes(any, wrap("{\"name\": \"f\", \"" + key + "\": {\"p\": \"y\"}}")));
    EXPECT_FALSE(takes(any, wrap("{\"name\": \"h\", \"" + key + "\": {}}")));
    EXPECT_FALSE(takes(any, "text"));
    const ToolForcing named = force({.choice = ToolChoice::kNamed, .named = "g"}, family);
    EXPECT_FALSE(takes(named, wrap(f)));
    EXPECT_TRUE(takes(named, wrap(g)));
    EXPECT_FALSE(takes(named, wrap(g + ", " + g)));
    const ToolForcing one =
        force({.choice = ToolChoice::kRequired, .named = {}, .parallel = false}, family);
    EXPECT_FALSE(takes(one, wrap(f + ", " + g)));
    const ParsedText parsed = parse_cut(family, wrap(f), {}, true);
    ASSERT_EQ(parsed.calls.size(), 1u);
    EXPECT_EQ(parsed.calls[0].arguments, "{\"p\": \"x\"}");
    EXPECT_EQ(parsed.content, "");
  }
}

TEST(ToolForcing, OnlyWhenAskedFor) {
  for (const ToolChoice choice : {ToolChoice::kNone, ToolChoice::kAuto}) {
    const auto made =
        force_tool_call({.choice = choice, .named = {}}, tools(), ToolFamily::kHermes);
    ASSERT_TRUE(made.has_value());
    EXPECT_FALSE(made->has_value());
  }
  const Json odd = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}])");
  const auto made =
      force_tool_call({.choice = ToolChoice::kRequired, .named = {}}, odd, ToolFamily::kHermes);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("tools[0].function.parameters"));
}

}  // namespace
}  // namespace trine::server::openai
