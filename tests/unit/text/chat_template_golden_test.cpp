// Goldens of tools/golden/chat_templates.py: what the transformers package renders, we render.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace trine::text {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(TRINE_SOURCE_DIR "/tests/golden/chat_templates/") + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The cases of that name, or those of a larger set made by hand with --held-out.
Json read_cases(const std::string& name) {
  const char* held_out = std::getenv("TRINE_GOLDEN_CHAT");
  if (held_out == nullptr) {
    return Json::parse(read_file(name));
  }
  std::ifstream file(std::string(held_out) + "/" + name, std::ios::binary);
  return Json::parse(file);
}

std::string joined(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) {
    text += part.text;
  }
  return text;
}

Result<std::string> render(std::string_view source, const Json& messages, const Json& tools,
                           const Json& extra, bool prompt) {
  TRINE_TRY_ASSIGN(const auto parsed, ChatTemplate::parse(source));
  ChatTemplateInput input;
  input.messages = &messages;
  input.tools = &tools;
  input.extra = &extra;
  input.add_generation_prompt = prompt;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix_s = 1'753'693'503;  // the script's fixed clock
  TRINE_TRY_ASSIGN(const auto parts, parsed->render(input));
  return joined(parts);
}

// Compares with the golden text, null meaning an error. Empty when equal.
std::string difference(const Result<std::string>& ours, const Json& golden) {
  if (golden.is_null()) {
    return ours.has_value() ? "renders <" + *ours + ">, an error is expected" : "";
  }
  if (!ours.has_value()) {
    return "fails with <" + ours.error().message + ">, expected <" + golden.get<std::string>() +
           ">";
  }
  return *ours == golden.get<std::string>()
             ? ""
             : "gives <" + *ours + ">, expected <" + golden.get<std::string>() + ">";
}

TEST(ChatTemplateGolden, Conversations) {
  const Json golden = read_cases("conversations.json");
  std::map<std::string, std::string> sources;
  for (const Json& c : golden["cases"]) {
    const auto name = c["template"].get<std::string>();
    if (!sources.contains(name)) {
      sources[name] = read_file("templates/" + name);
    }
    const Json& conversation = golden["conversations"][c["conversation"].get<std::string>()];
    const auto ours =
        render(sources[name], conversation["messages"], conversation.value("tools", Json()),
               conversation.value("extra", Json()), c["prompt"].get<bool>());
    const std::string diff = difference(ours, c["text"]);
    EXPECT_EQ(diff, "") << name << " with " << c["conversation"];
  }
  EXPECT_GT(golden["cases"].size(), 100U);
}

TEST(ChatTemplateGolden, RandomTemplates) {
  const Json golden = read_cases("random.json");
  const Json no_messages = Json::array();
  std::size_t wrong = 0;
  for (const Json& c : golden["cases"]) {
    const auto source = c[1].get<std::string>();
    const auto ours =
        render(source, no_messages, nullptr, golden["contexts"][c[0].get<std::size_t>()], true);
    const std::string diff = difference(ours, c[2]);
    if (!diff.empty() && ++wrong <= 40) {
      ADD_FAILURE() << "context " << c[0] << ", template <" << source << "> " << diff;
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(golden["cases"].size(), 2000U);
}

}  // namespace
}  // namespace trine::text
