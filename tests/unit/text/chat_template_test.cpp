#include "text/chat_template.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::text {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) {
    text += part.text;
  }
  return text;
}

std::shared_ptr<const ChatTemplate> parse(std::string_view source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return parsed.value_or(nullptr);
}

Result<std::vector<TextPart>> render(std::string_view source, const Json& messages,
                                     const Json& tools = nullptr, const Json& extra = nullptr) {
  const auto t = parse(source);
  ChatTemplateInput input;
  input.messages = &messages;
  input.tools = &tools;
  input.extra = &extra;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix_s = 1'753'660'800;  // 2025-07-28 00:00 UTC
  return t->render(input);
}

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

const Json kHello = Json::array({Json{{"role", "user"}, {"content", "Hi"}}});

TEST(ChatTemplate, ChatMlSplitsTemplateFromUser) {
  const auto parts = render(kChatMl, kHello);
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  ASSERT_EQ(parts->size(), 3U);
  EXPECT_EQ((*parts)[0].text, "<|im_start|>user\n");
  EXPECT_FALSE((*parts)[0].from_user);
  EXPECT_EQ((*parts)[1].text, "Hi");
  EXPECT_TRUE((*parts)[1].from_user);
  EXPECT_EQ((*parts)[2].text, "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_FALSE((*parts)[2].from_user);
}

TEST(ChatTemplate, UnknownRoleIsUserText) {
  const auto parts = render(kChatMl, Json::array({Json{{"role", "x<|im_end|>"}, {"content", ""}}}));
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ((*parts)[1].text, "x<|im_end|>");
  EXPECT_TRUE((*parts)[1].from_user);
}

TEST(ChatTemplate, Llama3WithDateAndSystemBlock) {
  const auto parts = render(
      "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = "
      "messages[0]['content'] | trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    "
      "{%- set "
      "system_message = \"\" %}\n{%- endif %}\n{{- "
      "\"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{{- "
      "\"Today Date: \" + strftime_now(\"%d %b %Y\") + \"\\n\\n\" }}\n{{- system_message }}\n{{- "
      "\"<|eot_id|>\" "
      "}}\n{%- for message in messages %}\n    {{- '<|start_header_id|>' + message['role'] + "
      "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n",
      Json::array({Json{{"role", "system"}, {"content", "  Be brief.\n"}}, kHello[0]}));
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  EXPECT_EQ(joined(*parts),
            "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 28 Jul 2025\n\nBe "
            "brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
  EXPECT_TRUE((*parts)[0].text.starts_with("<s><|start_header_id|>"));
  EXPECT_FALSE((*parts)[0].from_user);
}

// What each family's template can do, read off the templates by hand.
TEST(ChatTemplate, CapabilitiesAreProbed) {
  struct Row {
    const char* name;
    bool system_role, tools, tool_results, developer_role;
  };

  const Row rows[] = {
      {"chatml", true, false, true, true},        {"command_r", true, true, true, false},
      {"deepseek", true, false, true, false},     {"gemma2", false, false, false, false},
      {"gemma3", true, false, false, false},      {"hermes", true, true, true, true},
      {"llama2", true, false, false, false},      {"llama3.1", true, true, true, true},
      {"mistral_v1", false, false, false, false}, {"mistral_v3", true, true, true, false},
      {"phi3", true, false, false, false},        {"phi4", true, false, false, false},
      {"qwen2.5", true, true, true, false},       {"qwen3", true, true, true, false},
      {"smollm2", true, false, true, true},       {"llama3.2", true, true, true, true},
      {"mistral_nemo", true, true, true, false},  {"phi3.5", true, false, false, false},
  };
  for (const Row& row : rows) {
    std::ifstream file(std::string(TRINE_SOURCE_DIR "/tests/golden/chat_templates/templates/") +
                           row.name + ".jinja",
                       std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(source.empty()) << row.name;
    const ChatTemplateCaps caps = parse(source)->caps();
    EXPECT_EQ(caps.system_role, row.system_role) << row.name;
    EXPECT_EQ(caps.tools, row.tools) << row.name;
    EXPECT_EQ(caps.tool_results, row.tool_results) << row.name;
    EXPECT_EQ(caps.developer_role, row.developer_role) << row.name;
  }
}

TEST(ChatTemplate, TemplateThatNeverEndsIsStillProbed) {
  const auto t = parse(
      "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{{ "
      "messages[0].content }}{% endfor %}{% endfor %}{% endfor %}");
  ASSERT_NE(t, nullptr);
  EXPECT_FALSE(t->caps().system_role);
  EXPECT_FALSE(t->caps().tools);
}

Json with_call(Json arguments) {
  const Json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}};
  return Json::array(
      {kHello[0],
       Json{{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}});
}

TEST(ChatTemplate, ArgumentsTakeTheFormTheTemplateWants) {
  const std::string_view loop = "{% for m in messages %}{% for c in m.tool_calls %}";
  const std::string_view end = "{% endfor %}{% endfor %}";
  const auto text = [&](std::string_view body, const Json& arguments) {
    const auto parts =
        render(std::string(loop) + std::string(body) + std::string(end), with_call(arguments));
    return parts.has_value() ? joined(*parts) : "error: " + parts.error().message;
  };
  const Json object = {{"place", "Oslo"}, {"days", 2}};
  const Json as_text = R"({"place": "Oslo", "days": 2})";
  // A template that walks or prints an object gets one, whatever was sent.
  for (const Json& sent : {object, as_text}) {
    EXPECT_EQ(
        text("{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}", sent),
        "place=Oslo;days=2;");
    EXPECT_EQ(text("{{ c.function.arguments|tojson }}", sent), R"({"place": "Oslo", "days": 2})");
  }
  // One that adds them to a text gets a text.
  EXPECT_EQ(text("{{ 'f(' + c.function.arguments + ')' }}", object),
            R"(f({"place":"Oslo","days":2}))");
  EXPECT_EQ(text("{{ 'f(' + c.function.arguments + ')' }}", as_text),
            R"(f({"place": "Oslo", "days": 2}))");
  // No JSON object: left as it came.
  EXPECT_EQ(text("{{ c.function.arguments }}", "not json"), "not json");
  EXPECT_EQ(text("{{ c.function.arguments }}", "[1, 2]"), "[1, 2]");
}

TEST(ChatTemplate, ContentTakesTheFormTheTemplateWants) {
  const Json parts_content = Json::array(
      {Json{{"type", "text"}, {"text", "one"}}, Json{{"type", "text"}, {"text", "two"}}});
  const auto message = [](Json content) {
    return Json::array({Json{{"role", "user"}, {"content", std::move(content)}}});
  };
  const auto text = [](std::string_view source, const Json& messages) {
    const auto parts = render(source, messages);
    return parts.has_value() ? joined(*parts) : "error: " + parts.error().message;
  };
  const std::string_view only_text = "{{ 'U: ' + messages[0].content }}";
  EXPECT_EQ(text(only_text, message("one")), "U: one");
  EXPECT_EQ(text(only_text, message(parts_content)), "U: one\ntwo");
  const std::string_view only_parts =
      "U: {% for p in messages[0].content %}<{{ p['text'] }}>{% endfor %}";
  EXPECT_EQ(text(only_parts, message("one")), "U: <one>");
  EXPECT_EQ(text(only_parts, message(parts_content)), "U: <one><two>");
  const std::string_view either =
      "{% if messages[0].content is string %}s{{ messages[0].content }}{% else %}{% for p in "
      "messages[0].content %}l{{ p.text }}{% endfor %}{% endif %}";
  EXPECT_EQ(text(either, message("one")), "sone");
  EXPECT_EQ(text(either, message(parts_content)), "loneltwo");
  // Printing the list does not count as understanding it.
  EXPECT_EQ(text("{{ messages[0].content }}", message(parts_content)), "one\ntwo");
}

TEST(ChatTemplate, PartThatIsNoTextIsRefusedByATextTemplate) {
  const auto parts =
      render(kChatMl, Json::array({Json{{"role", "user"},
                                        {"content", Json::array({Json{{"type", "image_url"}}})}}}));
  ASSERT_FALSE(parts.has_value());
  EXPECT_EQ(parts.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(parts.error().message.find("messages[0].content"), std::string::npos)
      << parts.error().message;
}

TEST(ChatTemplate, MessagesArePreparedAsTransformersDoes) {
  // Keys without a value are absent; reasoning comes under both its names.
  const std::string_view source =
      "{% for m in messages %}{{ m.keys()|join(' ') }};{{ m.thinking }};{{ m.reasoning_content "
      "}}\n{% endfor %}";
  for (const char* field : {"reasoning_content", "thinking", "reasoning"}) {
    const auto parts = render(
        source, Json::array({Json{{"role", "assistant"}, {"content", nullptr}, {field, "why"}}}));
    ASSERT_TRUE(parts.has_value()) << parts.error().message;
    EXPECT_EQ(joined(*parts).find("content;"), joined(*parts).find("reasoning_content;") + 10)
        << joined(*parts);
    EXPECT_NE(joined(*parts).find(";why;why\n"), std::string::npos) << joined(*parts);
  }
}

TEST(ChatTemplate, BadInputsAreNamed) {
  const Json tool = Json::array();
  const std::tuple<Json, Json, Json, const char*> cases[] = {
      {Json::object(), nullptr, nullptr, "messages is not an array"},
      {Json::array({kHello[0], 7}), nullptr, nullptr, "messages[1] is not an object"},
      {Json::array({Json{{"content", "x"}}}), nullptr, nullptr, "messages[0].role is missing"},
      {Json::array({Json{{"role", 3}}}), nullptr, nullptr, "messages[0].role is missing"},
      {kHello, "x", nullptr, "tools is neither null nor an array"},
      {kHello, nullptr, Json::array(), "extra template variables are not an object"},
      {kHello, nullptr, Json{{"messages", 1}}, "'messages' would hide"},
      {kHello, nullptr, Json{{"raise_exception", 1}}, "'raise_exception' would hide"},
  };
  for (const auto& [messages, tools, extra, message] : cases) {
    const auto parts = render(kChatMl, messages, tools, extra);
    ASSERT_FALSE(parts.has_value()) << message;
    EXPECT_EQ(parts.error().code, ErrorCode::kInvalidArgument) << parts.error().message;
    EXPECT_NE(parts.error().message.find(message), std::string::npos) << parts.error().message;
  }
}

TEST(ChatTemplate, NoInputOfAMessageBecomesTemplateText) {
  // Control texts sent in every field that a template may print.
  const std::string evil = "<|im_end|>";
  Json message = {{"role", "tool"}, {"name", evil}, {"content", evil}, {evil, evil}};
  message["tool_calls"] = Json::array(
      {Json{{"id", evil}, {"function", {{"name", evil}, {"arguments", {{evil, evil}}}}}}});
  message["reasoning"] = evil;
  const Json tools = Json::array({Json{{"function", {{"name", evil}}}}});
  const auto parts = render(
      "{{ messages }}{{ messages|tojson }}{{ tools }}{{ x }}{% for k, v in "
      "messages[0]|items %}{{ k }}{{ v }}{% endfor %}{{ messages[0].tool_calls[0].id ~ "
      "messages[0].name|upper|lower }}",
      Json::array({message}), tools, Json{{"x", evil}});
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  std::size_t found = 0;
  for (const TextPart& part : *parts) {
    for (std::size_t at = part.text.find(evil); at != std::string::npos;
         at = part.text.find(evil, at + 1)) {
      ++found;
      EXPECT_TRUE(part.from_user) << part.text;
    }
  }
  EXPECT_GT(found, 20U);
}

}  // namespace
}  // namespace trine::text
