// /v1/responses: items become messages, and the request's own parts are kept for the answer.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/openai/body.h"
#include "server/openai/parse.h"

namespace trine::server::openai {

namespace {

ApiStatus need(const Json& item, std::string_view field, const std::string& path,
               std::string_view type) {
  if (find(item, field) == nullptr) {
    return tl::unexpected(bad_field(fmt::format("{}.{}", path, field),
                                    fmt::format("is missing: items of type {} have it", type)));
  }
  return {};
}

// Calls that follow each other belong to one message of the assistant.
void add_call(const Json& item, Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back(Json{{"role", "assistant"}});
  }
  Json& calls = messages.back()["tool_calls"];
  if (calls.is_null()) {
    calls = Json::array();
  }
  calls.push_back(Json{{"id", item["call_id"]},
                       {"type", "function"},
                       {"function", {{"name", item["name"]}, {"arguments", item["arguments"]}}}});
}

ApiStatus add_item(Json item, const std::string& path, Json& messages,
                   std::vector<std::string>& warnings) {
  if (!item.is_object()) {
    return tl::unexpected(bad_field(path, "must be an object"));
  }
  TRINE_TRY(check_object(Shape::kResponsesItem, path, item, warnings));
  const std::string type = find(item, "type") == nullptr ? "message" : get_string(item, "type");
  if (type == "reasoning") {
    return {};
  }
  if (type == "function_call") {
    TRINE_TRY(need(item, "call_id", path, type));
    TRINE_TRY(need(item, "name", path, type));
    TRINE_TRY(need(item, "arguments", path, type));
    TRINE_TRY(check_arguments(item["arguments"], path + ".arguments"));
    add_call(item, messages);
    return {};
  }
  if (type == "function_call_output") {
    TRINE_TRY(need(item, "call_id", path, type));
    TRINE_TRY(need(item, "output", path, type));
    TRINE_TRY_ASSIGN(Json content,
                     read_content(std::move(item["output"]), path + ".output", warnings));
    messages.push_back(
        Json{{"role", "tool"}, {"tool_call_id", item["call_id"]}, {"content", std::move(content)}});
    return {};
  }
  TRINE_TRY(need(item, "role", path, type));
  TRINE_TRY(need(item, "content", path, type));
  TRINE_TRY_ASSIGN(Json content,
                   read_content(std::move(item["content"]), path + ".content", warnings));
  messages.push_back(Json{{"role", item["role"]}, {"content", std::move(content)}});
  return {};
}

ApiResult<Json> read_input(const Json& body, const Limits& limits,
                           std::vector<std::string>& warnings) {
  Json messages = Json::array();
  if (const Json* instructions = find(body, "instructions")) {
    messages.push_back(Json{{"role", "system"}, {"content", *instructions}});
  }
  const Json& input = body["input"];
  if (input.empty() || input == "") {
    return tl::unexpected(bad_field("input", "is empty"));
  }
  if (input.is_string()) {
    messages.push_back(Json{{"role", "user"}, {"content", input}});
    return messages;
  }
  if (input.size() > static_cast<std::size_t>(limits.max_messages)) {
    return tl::unexpected(bad_field(
        "input", fmt::format("has {} items, at most {}", input.size(), limits.max_messages)));
  }
  for (std::size_t i = 0; i < input.size(); ++i) {
    TRINE_TRY(add_item(input[i], fmt::format("input[{}]", i), messages, warnings));
  }
  if (messages.empty()) {
    return tl::unexpected(bad_field("input", "has no messages"));
  }
  return messages;
}

ApiStatus read_logprobs(const Json& body, ResponsesRequest& out) {
  bool included = false;
  if (const Json* include = find(body, "include")) {
    for (std::size_t i = 0; i < include->size(); ++i) {
      if ((*include)[i] != "message.output_text.logprobs") {
        return tl::unexpected(
            bad_field(fmt::format("include[{}]", i), "must be \"message.output_text.logprobs\""));
      }
      included = true;
    }
  }
  const std::int32_t top = get_int(body, "top_logprobs", 0);
  if (top > 0 && !included) {
    return tl::unexpected(
        bad_field("top_logprobs", "needs include: [\"message.output_text.logprobs\"]"));
  }
  out.logprobs = included;
  if (included) {
    out.generation.sampling.logprobs = top;
  }
  return {};
}

// The tools as /v1/responses shows them.
Json flat_tools(const Json& tools) {
  Json out = Json::array();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json flat{{"type", "function"}, {"name", function["name"]}};
    const Json* description = find(function, "description");
    flat["description"] = description == nullptr ? Json(nullptr) : *description;
    const Json* parameters = find(function, "parameters");
    flat["parameters"] = parameters == nullptr ? Json(nullptr) : *parameters;
    flat["strict"] = get_bool(function, "strict", false);
    out.push_back(std::move(flat));
  }
  return out;
}

Json repeated_parts(const Json& body, const ResponsesRequest& request, const Json& tools) {
  const auto or_null = [&](std::string_view name) {
    const Json* value = find(body, name);
    return value == nullptr ? Json(nullptr) : *value;
  };
  Json out;
  out["instructions"] = or_null("instructions");
  out["max_output_tokens"] = or_null("max_output_tokens");
  out["metadata"] = request.metadata == nullptr ? Json::object() : *request.metadata;
  out["parallel_tool_calls"] = request.tools.parallel;
  out["previous_response_id"] = nullptr;
  out["reasoning"] = Json{{"effort", nullptr}, {"summary", nullptr}};
  out["store"] = false;
  out["temperature"] = request.generation.sampling.temperature;
  const Json* text = find(body, "text");
  const bool has_format = text != nullptr && text->contains("format");
  out["text"] = Json{{"format", has_format ? (*text)["format"] : Json{{"type", "text"}}}};
  switch (request.tools.choice) {
    case ToolChoice::kNone:
      out["tool_choice"] = tools.empty() ? "auto" : "none";
      break;
    case ToolChoice::kAuto:
      out["tool_choice"] = "auto";
      break;
    case ToolChoice::kRequired:
      out["tool_choice"] = "required";
      break;
    case ToolChoice::kNamed:
      out["tool_choice"] = Json{{"type", "function"}, {"name", request.tools.named}};
      break;
  }
  out["tools"] = flat_tools(tools);
  out["top_logprobs"] = request.generation.sampling.logprobs.value_or(0);
  out["top_p"] = request.generation.sampling.top_p;
  out["truncation"] = "disabled";
  out["background"] = false;
  return out;
}

ApiStatus read_limits(const Json& body, const Limits& limits, const Spelling& spelling,
                      ResponsesRequest& out) {
  std::optional<std::int32_t> max_tokens = limits.default_max_tokens;
  if (find(body, "max_output_tokens") != nullptr) {
    max_tokens = get_int(body, "max_output_tokens", 0);
  }
  TRINE_TRY(check_cost(
      1, std::min(count_prompt_tokens(body["input"], limits), std::int64_t{limits.context_tokens}),
      1, max_tokens, "max_output_tokens", limits));
  TRINE_TRY(read_common(body, limits, spelling, out));
  out.generation.max_tokens = max_tokens;
  out.generation.names.prompt = "input";
  out.generation.names.max_tokens = "max_output_tokens";
  out.max_tokens_by_default = find(body, "max_output_tokens") == nullptr && max_tokens.has_value();
  if (max_tokens && out.generation.sampling.min_tokens > *max_tokens) {
    return tl::unexpected(bad_field("min_tokens", "is above max_output_tokens"));
  }
  return read_logprobs(body, out);
}

// The tools in the form of /v1/chat/completions.
ApiResult<Json> read_tool_request(const Json& body, const Limits& limits, ResponsesRequest& out) {
  Json tools = Json::array();
  if (const Json* given = find(body, "tools")) {
    TRINE_TRY_ASSIGN(tools, read_tools(*given, true, limits, out.warnings));
  }
  TRINE_TRY_ASSIGN(out.tools, read_tool_choice(body, tools, out.warnings));
  if (out.constraint && out.tools.choice != ToolChoice::kNone) {
    return tl::unexpected(bad_field(
        out.constraint->field,
        "cannot be used together with tools; set tool_choice to none, or leave one of them out"));
  }
  return tools;
}

}  // namespace

ApiResult<ResponsesRequest> parse_responses(std::string_view body_text, const Limits& limits) {
  ResponsesRequest out;
  Spelling spelling;
  TRINE_TRY_ASSIGN(const Json body,
                   open_body(Shape::kResponses, body_text, limits, out.warnings, &spelling));
  TRINE_TRY(read_limits(body, limits, spelling, out));
  TRINE_TRY_ASSIGN(Json messages, read_input(body, limits, out.warnings));
  TRINE_TRY_ASSIGN(Json tools, read_tool_request(body, limits, out));
  TRINE_TRY(read_conversation_options(body, messages, out.conversation));
  out.repeated = std::make_shared<const Json>(repeated_parts(body, out, tools));
  out.conversation.messages = std::make_shared<const Json>(std::move(messages));
  if (out.tools.choice != ToolChoice::kNone) {
    out.conversation.tools = std::make_shared<const Json>(std::move(tools));
    out.generation.skip_special = false;
  }
  return out;
}

}  // namespace trine::server::openai
