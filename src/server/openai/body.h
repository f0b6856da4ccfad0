// Reading of JSON objects that check_object() has been over. For the parsers of this folder.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/openai/error.h"
#include "server/openai/limits.h"
#include "server/openai/request.h"
#include "server/openai/schema.h"

namespace trine::server::openai {

using Json = nlohmann::ordered_json;

// The body as an object whose fields are checked against the table.
ApiResult<Json> open_body(Shape shape, std::string_view body, const Limits& limits,
                          std::vector<std::string>& warnings, Spelling* spelling = nullptr);

inline const Json* find(const Json& object, std::string_view name) {
  const auto at = object.find(name);
  return at == object.end() ? nullptr : &*at;
}

inline bool get_bool(const Json& object, std::string_view name, bool fallback) {
  const Json* value = find(object, name);
  return value == nullptr ? fallback : value->get<bool>();
}

inline std::string get_string(const Json& object, std::string_view name) {
  const Json* value = find(object, name);
  return value == nullptr ? std::string() : value->get<std::string>();
}

inline std::int32_t get_int(const Json& object, std::string_view name, std::int32_t fallback) {
  const Json* value = find(object, name);
  return value == nullptr ? fallback : value->get<std::int32_t>();
}

inline double get_number(const Json& object, std::string_view name, double fallback) {
  const Json* value = find(object, name);
  return value == nullptr ? fallback : value->get<double>();
}

// A list of texts, each of [min_bytes, max_bytes].
ApiResult<std::vector<std::string>> get_texts(const Json& list, std::string_view path,
                                              std::size_t min_bytes, std::size_t max_bytes);
// A list of token ids, at least 0; the vocabulary is checked where it is known.
ApiResult<std::vector<std::int32_t>> get_ids(const Json& list, std::string_view path);
// A text, a list of texts, a list of ids or a list of lists of ids. Sizes are checked first.
ApiResult<std::vector<Prompt>> get_prompts(const Json& value, std::string_view path,
                                           const Limits& limits);
// The sum over the prompts of n x (prompt + max_tokens), known before anything is copied.
// `max_name` is what the body calls max_tokens.
ApiStatus check_cost(std::int64_t prompts, std::int64_t prompt_tokens, std::int64_t n,
                     std::optional<std::int32_t> max_tokens, std::string_view max_name,
                     const Limits& limits);
// Upper bound of the tokens of a prompt value, each prompt at most the context.
std::int64_t count_prompt_tokens(const Json& value, const Limits& limits);

// The fields of CommonRequest, but for max_tokens, n and logprobs.
ApiStatus read_common(const Json& body, const Limits& limits, const Spelling& spelling,
                      CommonRequest& out);
// response_format, structured_outputs and the other ways to ask for a grammar; at most one.
ApiStatus read_constraint(const Json& body, const Spelling& spelling, CommonRequest& out);
ApiResult<std::optional<Constraint>> read_format(Json format, std::string_view path,
                                                 bool schema_inside,
                                                 std::vector<std::string>& warnings);

// Messages in chat shape, checked and normalised.
ApiResult<Json> read_messages(Json messages, const Limits& limits,
                              std::vector<std::string>& warnings);
// Parts of a message's content in chat shape.
ApiResult<Json> read_content(Json content, const std::string& path,
                             std::vector<std::string>& warnings);
// A JSON object given as text or as itself.
ApiStatus check_arguments(const Json& arguments, std::string_view path);
// Tools in chat shape.
ApiResult<Json> read_tools(Json tools, bool responses_shape, const Limits& limits,
                           std::vector<std::string>& warnings);
ApiResult<ToolRequest> read_tool_choice(const Json& body, const Json& tools,
                                        std::vector<std::string>& warnings);
// tools of the conversation, template_kwargs, add_generation_prompt, continue_final_message.
ApiStatus read_conversation_options(const Json& body, const Json& messages, Conversation& out);

}  // namespace trine::server::openai
