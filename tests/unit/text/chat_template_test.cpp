#include "text/chat_template.h"

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
}

}  // namespace
}  // namespace trine::text
