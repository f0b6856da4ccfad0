#include "server/openai/prompt.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/openai/parse.h"
#include "support/fake_tokenizer.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TemplateContext context_of(std::shared_ptr<const text::ChatTemplate>& keep,
                           std::string_view source) {
  keep = text::ChatTemplate::parse(source).value();
  TemplateContext out;
  out.chat_template = keep.get();
  return out;
}

Result<std::string> rendered(std::string_view body, std::string_view source,
                             std::string_view prefix = {}) {
  const auto request = parse_chat(body, {});
  EXPECT_TRUE(request.has_value());
  std::shared_ptr<const text::ChatTemplate> keep;
  const auto parts = render_prompt(request->conversation, context_of(keep, source), prefix);
  if (!parts.has_value()) {
    return tl::unexpected(parts.error());
  }
  std::string out;
  for (const auto& part : *parts) {
    out += part.text;
  }
  return out;
}

TEST(Prompt, GenerationPromptAndForcedPrefix) {
  EXPECT_EQ(
      rendered(R"({"messages": [{"role": "user", "content": "a"}]})", kChatMl, "<tool_call>\n")
          .value(),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<tool_call>\n");
}

// What a template has no place for is told, not dropped in silence.
TEST(Prompt, WhatTheTemplateLeavesOutIsWarnedAbout) {
  const auto warned = [](std::string_view more, std::string_view source, std::string_view role) {
    const auto request =
        parse_chat(fmt::format(R"({{"messages": [{{"role": "{}", "content": "a"{}}},
                        {{"role": "user", "content": "b"}}]{}}})",
                               role, role == "tool" ? R"(, "tool_call_id": "c")" : "", more),
                   {});
    EXPECT_TRUE(request.has_value()) << more;
    return template_warnings(request->conversation, *text::ChatTemplate::parse(source).value());
  };
  constexpr std::string_view kTools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  constexpr std::string_view kExtra =
      R"(, "documents": [{"text": "d"}], "reasoning_effort": "low",
         "chat_template_kwargs": {"enable_thinking": false})";
  constexpr std::string_view kAll =
      "{{ tools | tojson }}{{ documents | tojson }}{{ reasoning_effort }}{% if enable_thinking %}"
      "{% endif %}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}";
  constexpr std::string_view kUsersOnly =
      "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(warned(kTools, kChatMl, "user"),
              ElementsAre(HasSubstr("tools are not shown to the model")));
  EXPECT_THAT(
      warned(kExtra, kChatMl, "user"),
      ElementsAre(HasSubstr("enable_thinking is ignored"), HasSubstr("documents is ignored"),
                  HasSubstr("reasoning_effort is ignored")));
  EXPECT_THAT(warned(kTools, kAll, "system"), ElementsAre());
  EXPECT_THAT(warned(kExtra, kAll, "tool"), ElementsAre());
  for (const std::string_view role : {"system", "developer"}) {
    EXPECT_THAT(warned("", kUsersOnly, role), ElementsAre(HasSubstr(role)));
  }
  EXPECT_THAT(warned("", kUsersOnly, "user"), ElementsAre());
}

TEST(Prompt, ContinuesTheFinalMessage) {
  const auto text = [](std::string_view content) {
    return rendered(fmt::format(R"({{"messages": [{{"role": "user", "content": "Hello"}},
        {{"role": "assistant", "content": {}}}], "continue_final_message": true}})",
                                content),
                    kChatMl);
  };
  const std::string before = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(text(R"("Hello, I")").value(), before + "Hello, I");
  EXPECT_EQ(text(R"("H")").value(), before + "H");
  EXPECT_EQ(text(R"("Hello, I ")").value(), before + "Hello, I");  // the template trims
  EXPECT_EQ(text(R"([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}])").value(),
            before + "x\ny");
  EXPECT_FALSE(text(R"("  ")").has_value());
  const auto changed = rendered(
      R"({"messages": [{"role": "user", "content": "abc"}], "continue_final_message": true})",
      "{{ messages[0].content | upper }}");
  ASSERT_FALSE(changed.has_value());
  EXPECT_THAT(changed.error().message, HasSubstr("continue_final_message"));
}

TEST(Prompt, BadWordsStandAloneAndBehindASpace) {
  const testing::FakeTokenizer tokenizer({"a", "b", " "}, {});
  CommonRequest request;
  request.bad_words = {"ab"};
  ASSERT_TRUE(add_bad_words(tokenizer, request).has_value());
  EXPECT_THAT(request.generation.sampling.bad_words,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 0, 1)));
}

// The templates of real families, as the goldens have them.
TEST(Prompt, FamiliesOfRealTemplates) {
  const std::string folder = std::string(TRINE_SOURCE_DIR) + "/tests/golden/chat_templates/";
  const auto family = [&](const std::string& name) {
    std::ifstream in(folder + "templates/" + name + ".jinja");
    EXPECT_TRUE(in.good()) << name;
    std::stringstream source;
    source << in.rdbuf();
    std::shared_ptr<const text::ChatTemplate> keep;
    return detect_tool_family(context_of(keep, source.str()));
  };
  for (const std::string name : {"qwen2.5", "qwen3", "hermes"}) {
    EXPECT_EQ(family(name), ToolFamily::kHermes) << name;
  }
  for (const std::string name : {"llama3.1", "llama3.2"}) {
    EXPECT_EQ(family(name), ToolFamily::kLlama3) << name;
  }
  for (const std::string name : {"mistral_v3", "mistral_nemo"}) {
    EXPECT_EQ(family(name), ToolFamily::kMistral) << name;
  }
  for (const std::string name : {"chatml", "smollm2", "gemma3", "llama2"}) {
    EXPECT_EQ(family(name), ToolFamily::kGeneric) << name;
  }
}

}  // namespace
}  // namespace trine::server::openai
