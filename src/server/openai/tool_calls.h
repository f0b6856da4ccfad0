// Tool calls: from the text a model writes to calls, and from tool_choice to a grammar.
// Thread rule: a parser belongs to one answer; the rest is pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/openai/error.h"
#include "server/openai/request.h"

namespace trine::server::openai {

enum class ToolFamily : std::uint8_t {
  kHermes,       // <tool_call>{"name": .., "arguments": {..}}</tool_call>  (Hermes, Qwen)
  kLlama3,       // {"name": .., "parameters": {..}}, perhaps after <|python_tag|>, divided by ;
  kMistral,      // [TOOL_CALLS] [{"name": .., "arguments": {..}}, ..]
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{..}
  kPhi,          // <|tool_call|>[{..}]<|/tool_call|> or functools[{..}]
  kGemma,        // <start_function_call>call:name{key:<escape>text<escape>}<end_function_call>
  kGeneric,      // {"name": .., "arguments": {..}} or a list of them, perhaps in a ``` block
};

std::string_view tool_family_name(ToolFamily family);
std::optional<ToolFamily> parse_tool_family(std::string_view name);
// By the markers in a template's source or in what it made of a call.
std::optional<ToolFamily> tool_family_of(std::string_view template_text);

// What a piece of text adds to the answer.
struct ToolDelta {
  enum class Kind : std::uint8_t {
    kContent,    // text outside calls
    kCallBegin,  // a call with its name
    kArguments,  // more of its arguments, JSON text
    kCallEnd,
  };

  Kind kind = Kind::kContent;
  std::int32_t call = 0;
  std::string text;  // content, name or arguments
};

// Reads an answer's text piece by piece. The sum of the contents and calls is the same however the
// text is cut. What may be the begin of a marker is held back; what turns out not to be a call is
// content. Arguments of a finished call are valid JSON objects; a call that breaks off or is not
// JSON is given as content, exactly as the model wrote it.
class ToolCallParser {
 public:
  // `begun`: the answer starts inside a call, behind ToolForcing::prefix.
  explicit ToolCallParser(ToolFamily family, bool begun = false);
  ~ToolCallParser();
  ToolCallParser(ToolCallParser&&) noexcept;
  ToolCallParser& operator=(ToolCallParser&&) noexcept;
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  // Appends to `out`.
  void push(std::string_view text, std::vector<ToolDelta>& out);
  // The end of the answer.
  void finish(std::vector<ToolDelta>& out);
  // Calls finished so far.
  std::int32_t num_calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What makes the model call: text put behind the prompt, as if it had begun the call itself, and
// the schema of what it writes from there on.
struct ToolForcing {
  std::string prefix;
  Constraint constraint;
};

// For tool_choice required or a name; empty otherwise. Errors: 400 when the tool's parameters
// cannot be put into the family's notation.
ApiResult<std::optional<ToolForcing>> force_tool_call(const ToolRequest& request,
                                                      const nlohmann::ordered_json& tools,
                                                      ToolFamily family);

}  // namespace trine::server::openai
