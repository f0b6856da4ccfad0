// From a conversation to the parts that are tokenized, and how the model writes tool calls.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/openai/request.h"
#include "server/openai/tool_calls.h"
#include "text/chat_template.h"

namespace trine::server::openai {

// What templates see beside the request.
struct TemplateContext {
  const text::ChatTemplate* chat_template = nullptr;
  std::string bos_token;
  std::string eos_token;
  std::int64_t now_unix_s = 0;
};

// The rendered conversation; with continue_final_message it ends in the last message's text.
// `forced_prefix` (ToolForcing::prefix) is put behind as the template's own text. Errors: those of
// the template, invalid_argument when it does not end in the last message.
Result<std::vector<text::TextPart>> render_prompt(const Conversation& conversation,
                                                  const TemplateContext& context,
                                                  std::string_view forced_prefix = {});

// What the request gives to the template and the template leaves out, one text for each.
std::vector<std::string> template_warnings(const Conversation& conversation,
                                           const text::ChatTemplate& chat_template);

// The text of the last message, as templates are given it. Messages are checked and not empty.
std::string final_text(const nlohmann::ordered_json& messages);

// Adds the ids of request.bad_words to its sampling. Errors: those of the tokenizer.
Status add_bad_words(const text::Tokenizer& tokenizer, CommonRequest& request);

// How the model behind a template writes calls: seen by rendering a conversation with one. Generic
// when the template shows no notation known here.
ToolFamily detect_tool_family(const TemplateContext& context);

}  // namespace trine::server::openai
