// Chat templates: our Jinja subset rendered to parts, so that user text can never become a control
// token.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "text/tokenizer.h"

namespace trine::text {

struct ChatTemplateInput {
  // messages, tools, documents and further template variables, as JSON in the OpenAI shape. Held by
  // pointer to keep the JSON header out of this one; messages must be an array, tools null or an
  // array, extra an object.
  const nlohmann::ordered_json* messages = nullptr;
  const nlohmann::ordered_json* tools = nullptr;
  const nlohmann::ordered_json* extra = nullptr;
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::int64_t now_unix_s = 0;  // clock for strftime_now, injected
};

// What a template can do, found by probing it at load.
struct ChatTemplateCaps {
  bool system_role = false;
  bool tools = false;
  bool tool_results = false;
  bool developer_role = false;
};

class ChatTemplate {
 public:
  // Errors: corrupt_data with line and column.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source);
  virtual ~ChatTemplate() = default;
  // The rendered conversation. Text that came from messages' contents (or tools, arguments) carries
  // from_user = true through every filter and concatenation. Errors: invalid_argument for
  // raise_exception and bad input shapes, exhausted for a limit (steps, output bytes, depth),
  // corrupt_data for template faults; with line and column.
  virtual Result<std::vector<TextPart>> render(const ChatTemplateInput& input) const = 0;
  virtual const ChatTemplateCaps& caps() const = 0;
  // Whether the template names a variable at all. One that it does not name has no effect.
  virtual bool names(std::string_view variable) const = 0;
};

}  // namespace trine::text
