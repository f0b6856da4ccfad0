// Messages and tools, from the shapes clients send to the one that templates take.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "server/openai/body.h"

namespace trine::server::openai {

namespace {

ApiResult<Json> read_tool_calls(const Json& calls, const std::string& path,
                                std::vector<std::string>& warnings) {
  Json out = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", path, i);
    Json call = calls[i];
    if (!call.is_object()) {
      return tl::unexpected(bad_field(where, "must be an object"));
    }
    TRINE_TRY(check_object(Shape::kToolCall, where, call, warnings));
    Json function = call["function"];
    const std::string inside = where + ".function";
    TRINE_TRY(check_object(Shape::kToolCallFunction, inside, function, warnings));
    if (find(function, "arguments") == nullptr ||
        (function["arguments"].is_string() &&
         function["arguments"].get_ref<const std::string&>().empty())) {
      function["arguments"] = "{}";
    }
    TRINE_TRY(check_arguments(function["arguments"], inside + ".arguments"));
    Json made = Json::object();
    if (const Json* id = find(call, "id")) {
      made["id"] = *id;
    }
    made["type"] = "function";
    made["function"] = std::move(function);
    out.push_back(std::move(made));
  }
  return out;
}

// What a role must and may have, beyond the table.
ApiStatus check_role(const Json& message, const std::string& path) {
  const std::string role = get_string(message, "role");
  const auto only_for = [&](std::string_view field, std::string_view owner) -> ApiStatus {
    if (role != owner && find(message, field) != nullptr) {
      return tl::unexpected(bad_field(
          fmt::format("{}.{}", path, field),
          fmt::format("belongs to messages of role {}, this is of role {}", owner, role)));
    }
    return {};
  };
  TRINE_TRY(only_for("tool_call_id", "tool"));
  TRINE_TRY(only_for("tool_calls", "assistant"));
  TRINE_TRY(only_for("reasoning_content", "assistant"));
  TRINE_TRY(only_for("refusal", "assistant"));
  if (role == "tool" && find(message, "tool_call_id") == nullptr) {
    return tl::unexpected(
        bad_field(path + ".tool_call_id", "is missing: a tool message says which call it answers"));
  }
  if (find(message, "content") == nullptr && find(message, "tool_calls") == nullptr &&
      find(message, "refusal") == nullptr) {
    return tl::unexpected(bad_field(path + ".content", "is missing"));
  }
  return {};
}

}  // namespace

ApiStatus check_arguments(const Json& arguments, std::string_view path) {
  if (arguments.is_object()) {
    return {};
  }
  const auto parsed = parse_json(arguments.get_ref<const std::string&>(),
                                 {.max_depth = 32, .refuse_big_integers = true});
  if (!parsed.has_value()) {
    return tl::unexpected(
        bad_field(path, fmt::format("must be a JSON object as text: {}", parsed.error().message)));
  }
  if (!parsed->is_object()) {
    return tl::unexpected(bad_field(path, "must be a JSON object as text"));
  }
  return {};
}

ApiResult<Json> read_content(Json content, const std::string& path,
                             std::vector<std::string>& warnings) {
  if (content.is_string()) {
    return content;
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", path, i);
    if (!content[i].is_object()) {
      return tl::unexpected(bad_field(where, "must be an object with a type"));
    }
    // The kind first: a part that cannot be read is refused as what it is.
    const Json* type = find(content[i], "type");
    const std::string name =
        type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
    const bool is_text = name == "text" || name == "input_text" || name == "output_text";
    if (!name.empty() && !is_text && name != "refusal") {
      return tl::unexpected(
          bad_field(where + ".type",
                    fmt::format("is \"{}\": this server reads text only", printable(name, 60))));
    }
    Json part = std::move(content[i]);
    TRINE_TRY(check_object(Shape::kContentPart, where, part, warnings));
    const std::string_view field = is_text ? "text" : "refusal";
    const Json* text = find(part, field);
    if (text == nullptr) {
      return tl::unexpected(bad_field(fmt::format("{}.{}", where, field), "is missing"));
    }
    out.push_back(Json{{"type", "text"}, {"text", *text}});
  }
  return out;
}

ApiResult<Json> read_messages(Json messages, const Limits& limits,
                              std::vector<std::string>& warnings) {
  if (messages.empty() || messages.size() > static_cast<std::size_t>(limits.max_messages)) {
    return tl::unexpected(bad_field("messages", fmt::format("has {} messages, must be 1 to {}",
                                                            messages.size(), limits.max_messages)));
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    Json message = std::move(messages[i]);
    if (!message.is_object()) {
      return tl::unexpected(bad_field(path, "must be an object with role and content"));
    }
    TRINE_TRY(check_object(Shape::kMessage, path, message, warnings));
    TRINE_TRY(check_role(message, path));
    const Json* refusal = find(message, "refusal");
    if (refusal != nullptr) {
      if (find(message, "content") == nullptr) {
        message["content"] = *refusal;
      }
      message.erase("refusal");
    }
    if (find(message, "content") != nullptr) {
      TRINE_TRY_ASSIGN(message["content"],
                       read_content(std::move(message["content"]), path + ".content", warnings));
    }
    if (const Json* calls = find(message, "tool_calls")) {
      TRINE_TRY_ASSIGN(Json made, read_tool_calls(*calls, path + ".tool_calls", warnings));
      if (made.empty()) {
        message.erase("tool_calls");
      } else {
        message["tool_calls"] = std::move(made);
      }
    }
    out.push_back(std::move(message));
  }
  return out;
}

ApiResult<Json> read_tools(Json tools, bool responses_shape, const Limits& limits,
                           std::vector<std::string>& warnings) {
  if (tools.size() > static_cast<std::size_t>(limits.max_tools)) {
    return tl::unexpected(bad_field(
        "tools", fmt::format("has {} tools, at most {}", tools.size(), limits.max_tools)));
  }
  Json out = Json::array();
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    std::string path = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) {
      return tl::unexpected(bad_field(path, "must be an object"));
    }
    Json function = std::move(tools[i]);
    if (responses_shape) {
      TRINE_TRY(check_object(Shape::kResponsesTool, path, function, warnings));
      function.erase("type");
    } else {
      TRINE_TRY(check_object(Shape::kTool, path, function, warnings));
      Json inner = std::move(function["function"]);
      function = std::move(inner);
      path += ".function";
      TRINE_TRY(check_object(Shape::kFunction, path, function, warnings));
    }
    const std::string name = get_string(function, "name");
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.';
    });
    if (!plain) {
      return tl::unexpected(
          bad_field(path + ".name", fmt::format("is \"{}\", may have letters, digits, '_', '-' and "
                                                "'.' only",
                                                printable(name))));
    }
    if (!names.insert(name).second) {
      return tl::unexpected(bad_field(path + ".name", fmt::format("\"{}\" is there twice", name)));
    }
    out.push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

ApiResult<ToolRequest> read_tool_choice(const Json& body, const Json& tools,
                                        std::vector<std::string>& warnings) {
  ToolRequest out;
  out.choice = tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  out.parallel = get_bool(body, "parallel_tool_calls", true);
  const auto wrong = [](std::string_view what) {
    return tl::unexpected(bad_field("tool_choice", what));
  };
  if (const Json* choice = find(body, "tool_choice")) {
    if (choice->is_object()) {
      // Chat nests the name under "function", /v1/responses does not.
      const Json* type = find(*choice, "type");
      const Json* function = find(*choice, "function");
      const Json* name = find(function != nullptr ? *function : *choice, "name");
      if (type == nullptr || *type != "function" || name == nullptr || !name->is_string() ||
          choice->size() != 2 || (function != nullptr && function->size() != 1)) {
        return wrong(
            "must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": "
            "..}} and no more; other kinds are not supported");
      }
      out.choice = ToolChoice::kNamed;
      out.named = name->get<std::string>();
    } else {
      const std::string text = choice->get<std::string>();
      if (text == "none") {
        out.choice = ToolChoice::kNone;
      } else if (text == "auto") {
        out.choice = tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
      } else if (text == "required") {
        out.choice = ToolChoice::kRequired;
      } else {
        return wrong(fmt::format("is \"{}\", must be none, auto, required or a function",
                                 printable(text, 60)));
      }
    }
  }
  const bool forced = out.choice == ToolChoice::kRequired || out.choice == ToolChoice::kNamed;
  if (forced && tools.empty()) {
    return wrong("asks for a call, but there are no tools");
  }
  bool strict = false;
  bool known = out.choice != ToolChoice::kNamed;
  for (const Json& tool : tools) {
    strict = strict || get_bool(tool["function"], "strict", false);
    known = known || get_string(tool["function"], "name") == out.named;
  }
  if (!known) {
    return wrong(fmt::format("names \"{}\", which is not among the tools", printable(out.named)));
  }
  if (strict && out.choice == ToolChoice::kAuto) {
    warnings.emplace_back(
        "tools[].function.strict is not held with tool_choice auto: arguments are JSON, but may "
        "not follow the schema; use required or name the function");
  }
  return out;
}

ApiStatus read_conversation_options(const Json& body, const Json& messages, Conversation& out) {
  out.continue_final_message = get_bool(body, "continue_final_message", false);
  out.add_generation_prompt = get_bool(body, "add_generation_prompt", !out.continue_final_message);
  if (out.continue_final_message && out.add_generation_prompt) {
    return tl::unexpected(
        bad_field("continue_final_message", "and add_generation_prompt cannot both be true"));
  }
  if (out.continue_final_message) {
    const Json* content = find(messages.back(), "content");
    if (content == nullptr || content->empty() || *content == "") {
      return tl::unexpected(
          bad_field("continue_final_message", "needs a last message with content to go on with"));
    }
  }
  Json extra = Json::object();
  if (const Json* kwargs = find(body, "chat_template_kwargs")) {
    static constexpr std::string_view kReserved[] = {"messages",
                                                     "tools",
                                                     "documents",
                                                     "add_generation_prompt",
                                                     "continue_final_message",
                                                     "bos_token",
                                                     "eos_token",
                                                     "pad_token",
                                                     "unk_token",
                                                     "chat_template",
                                                     "conversation",
                                                     "tokenize",
                                                     "tokenizer",
                                                     "return_dict",
                                                     "return_tensors",
                                                     "strftime_now",
                                                     "raise_exception"};
    for (const auto& [key, value] : kwargs->items()) {
      const std::string where = fmt::format("chat_template_kwargs.{}", printable(key, 80));
      if (std::find(std::begin(kReserved), std::end(kReserved), key) != std::end(kReserved) ||
          key.empty() || key.starts_with("_")) {
        return tl::unexpected(bad_field(where, "is a name that the template owns"));
      }
      extra[key] = value;
    }
  }
  for (const std::string_view name : {"documents", "reasoning_effort"}) {
    const Json* value = find(body, name);
    if (value == nullptr) {
      continue;
    }
    if (extra.contains(name)) {
      return tl::unexpected(bad_field(name, "is also in chat_template_kwargs; give one"));
    }
    extra[std::string(name)] = *value;
  }
  if (!extra.empty()) {
    out.template_kwargs = std::make_shared<const Json>(std::move(extra));
  }
  return {};
}

}  // namespace trine::server::openai
