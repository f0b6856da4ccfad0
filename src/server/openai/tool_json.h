// Calls out of complete pieces of an answer. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trine::server::openai {

struct ToolCallText {
  std::string name;
  std::string arguments;  // a JSON object, as the model wrote it
};

// One call object or a list of them; nothing when it is not that.
std::optional<std::vector<ToolCallText>> calls_from_json(std::string_view text);
// Arguments of a call whose name is known; nothing when they are no JSON object.
std::optional<std::string> arguments_from_json(std::string_view text);
// call:name{key:value, ..} with texts between <escape> marks.
std::optional<ToolCallText> call_from_gemma(std::string_view text);

}  // namespace trine::server::openai
