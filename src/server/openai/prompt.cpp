#include "server/openai/prompt.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"

namespace trine::server::openai {

namespace {

using Json = nlohmann::ordered_json;

text::ChatTemplateInput input_of(const TemplateContext& context) {
  text::ChatTemplateInput out;
  out.bos_token = context.bos_token;
  out.eos_token = context.eos_token;
  out.now_unix_s = context.now_unix_s;
  return out;
}

// Cuts what stands behind the last place of `text` in the parts' user text. Templates may trim a
// message, so its own ends are taken off first.
Status cut_behind(std::string_view text, std::vector<text::TextPart>& parts) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t end = text.find_last_not_of(kSpace);
  if (end == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "continue_final_message: the last message is only white space");
  }
  const std::string_view trailing = text.substr(end + 1);
  text = text.substr(0, end + 1);
  const std::size_t begin = text.find_first_not_of(kSpace);
  text = text.substr(begin);
  std::string all;
  for (const text::TextPart& part : parts) {
    all += part.text;
  }
  const std::size_t at = all.rfind(text);
  if (at == std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "continue_final_message: the template changes the last message, so it cannot be "
                "gone on with");
  }
  std::size_t keep = at + text.size();
  // What the message ends with, where the template kept it.
  std::size_t kept_space = 0;
  while (kept_space < trailing.size() && keep + kept_space < all.size() &&
         all[keep + kept_space] == trailing[kept_space]) {
    ++kept_space;
  }
  if (kept_space == trailing.size()) {
    keep += kept_space;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (keep <= parts[i].text.size()) {
      parts[i].text.resize(keep);
      parts.resize(i + 1);
      break;
    }
    keep -= parts[i].text.size();
  }
  return {};
}

}  // namespace

std::string final_text(const Json& messages) {
  const Json& content = messages.back()["content"];
  if (content.is_string()) {
    return content.get<std::string>();
  }
  std::string out;
  for (const Json& part : content) {
    out += out.empty() ? "" : "\n";
    out += part["text"].get<std::string>();
  }
  return out;
}

Result<std::vector<text::TextPart>> render_prompt(const Conversation& conversation,
                                                  const TemplateContext& context,
                                                  std::string_view forced_prefix) {
  TRINE_CHECK(context.chat_template != nullptr && conversation.messages != nullptr);
  text::ChatTemplateInput input = input_of(context);
  input.messages = conversation.messages.get();
  input.tools = conversation.tools.get();
  input.extra = conversation.template_kwargs.get();
  input.add_generation_prompt = conversation.add_generation_prompt;
  TRINE_TRY_ASSIGN(auto parts, context.chat_template->render(input));
  if (conversation.continue_final_message) {
    TRINE_TRY(cut_behind(final_text(*conversation.messages), parts));
  }
  if (!forced_prefix.empty()) {
    parts.push_back({.text = std::string(forced_prefix), .from_user = false});
  }
  return parts;
}

std::vector<std::string> template_warnings(const Conversation& conversation,
                                           const text::ChatTemplate& chat_template) {
  TRINE_CHECK(conversation.messages != nullptr);
  std::vector<std::string> out;
  const text::ChatTemplateCaps& caps = chat_template.caps();
  if (conversation.tools != nullptr && !conversation.tools->empty() && !caps.tools) {
    out.emplace_back(
        "tools are not shown to the model: its chat template has no place for them; describe them "
        "in a message");
  }
  const auto has_role = [&](std::string_view role) {
    return std::any_of(conversation.messages->begin(), conversation.messages->end(),
                       [role](const Json& message) { return message["role"] == role; });
  };
  for (const auto& [role, shown] : {std::pair<std::string_view, bool>("system", caps.system_role),
                                    {"developer", caps.developer_role},
                                    {"tool", caps.tool_results}}) {
    if (!shown && has_role(role)) {
      out.push_back(fmt::format(
          "messages of the role {} are not shown to the model: its chat template leaves them out",
          role));
    }
  }
  if (conversation.template_kwargs != nullptr) {
    for (const auto& [name, value] : conversation.template_kwargs->items()) {
      if (!chat_template.names(name)) {
        out.push_back(fmt::format("{} is ignored: the chat template of the model does not use it",
                                  printable(name, 80)));
      }
    }
  }
  return out;
}

Status add_bad_words(const text::Tokenizer& tokenizer, CommonRequest& request) {
  for (const std::string& word : request.bad_words) {
    // At the begin of a text and, as most words stand, behind a space.
    for (const std::string& form : {word, " " + word}) {
      TRINE_TRY_ASSIGN(auto ids,
                       tokenizer.encode(form, {.add_special = false, .parse_special = false}));
      if (!ids.empty()) {
        request.generation.sampling.bad_words.push_back(std::move(ids));
      }
    }
  }
  return {};
}

ToolFamily detect_tool_family(const TemplateContext& context) {
  TRINE_CHECK(context.chat_template != nullptr);
  const Json parameters{{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
  const Json tools = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "weather"}, {"description", "Of a city"}, {"parameters", parameters}}}}});
  const Json call{{"id", "abcdefghi"},
                  {"type", "function"},
                  {"function", {{"name", "weather"}, {"arguments", "{\"city\": \"Bern\"}"}}}};
  const Json messages = Json::array({{{"role", "user"}, {"content", "Rain?"}},
                                     {{"role", "assistant"}, {"tool_calls", Json::array({call})}}});
  text::ChatTemplateInput input = input_of(context);
  input.messages = &messages;
  input.add_generation_prompt = false;
  // The call alone first: what a template says about calls to the model may name other notations.
  for (const Json* offered : {static_cast<const Json*>(nullptr), &tools}) {
    input.tools = offered;
    const auto parts = context.chat_template->render(input);
    if (!parts.has_value()) {
      continue;
    }
    std::string all;
    for (const text::TextPart& part : *parts) {
      all += part.text;
    }
    if (const auto family = tool_family_of(all)) {
      return *family;
    }
  }
  return ToolFamily::kGeneric;
}

}  // namespace trine::server::openai
