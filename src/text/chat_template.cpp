#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/from_json.h"
#include "text/jinja/parser.h"
#include "text/jinja/print.h"
#include "text/jinja/strftime.h"

namespace trine::text {

namespace {

using Json = nlohmann::ordered_json;
using jinja::CallArgs;
using jinja::Heap;
using jinja::Limits;
using jinja::Value;

// Role names that templates write into headers. Any other role is text a user chose.
constexpr std::array<std::string_view, 9> kKnownRoles = {"system",   "user",      "assistant",
                                                         "tool",     "developer", "model",
                                                         "function", "ipython",   "tool_response"};

constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                              "reasoning"};

// How messages must look for this template; found by probing.
struct Shape {
  bool string_arguments = false;  // tool call arguments as JSON text, not as an object
  bool typed_content = false;     // lists of {"type": "text", "text": ...} are understood
  bool only_typed_content = false;
};

struct StrftimeNow final : jinja::Callable {
  Heap* heap = nullptr;
  std::int64_t now = 0;

  Result<Value> call(CallArgs& args) override {
    TRINE_TRY_ASSIGN(const auto a, jinja::bind("strftime_now", args, {"format"}, 1));
    TRINE_TRY_ASSIGN(const jinja::Str* format, jinja::str_arg(a[0], "the format of strftime_now"));
    if (format == nullptr) {
      return jinja::type_error("the format of strftime_now must be text");
    }
    TRINE_TRY(heap->text_work(format->text.size() * 16));
    TRINE_TRY(heap->charge(format->text.size() * 16));
    TRINE_TRY_ASSIGN(const std::string text, jinja::format_time(format->text, now));
    return heap->string(text, format->any_user());
  }

  std::string describe() const override { return "<function strftime_now>"; }
};

tl::unexpected<Error> bad_input(std::string_view message) {
  return fail(ErrorCode::kInvalidArgument, "{}", message);
}

// The texts of a content list as one text; null when a part is no text.
std::optional<std::string> flatten(const Json& content) {
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return std::nullopt;
    }
    if (&part != &content.front()) {
      text += '\n';
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Result<Json> shape_content(const Json& content, const Shape& shape, std::size_t index) {
  if (content.is_array() && !shape.typed_content) {
    auto text = flatten(content);
    if (!text.has_value()) {
      return fail(
          ErrorCode::kUnsupported,
          "messages[{}].content has a part that is no text, and this chat template takes only text",
          index);
    }
    return Json(std::move(*text));
  }
  if (content.is_string() && shape.only_typed_content) {
    return Json::array({Json{{"type", "text"}, {"text", content}}});
  }
  return content;
}

// Arguments in the form the template wants; a text that is no JSON object stays text.
Result<Json> shape_arguments(const Json& arguments, const Shape& shape) {
  if (arguments.is_string() && !shape.string_arguments) {
    const auto& text = arguments.get_ref<const std::string&>();
    const auto parsed = parse_json(text);
    if (!parsed.has_value() || !parsed->is_object()) {
      return arguments;
    }
    return parse_json(text,
                      {.refuse_big_integers = true});  // as a double it would be shown rounded
  }
  if (arguments.is_object() && shape.string_arguments) {
    return Json(arguments.dump());
  }
  return arguments;
}

Result<Json> shape_tool_calls(const Json& calls, const Shape& shape, std::size_t index) {
  Json out = calls;
  if (!out.is_array()) {
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    Json& call = out[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].contains("arguments")) {
      continue;
    }
    auto shaped = shape_arguments(call["function"]["arguments"], shape);
    if (!shaped.has_value()) {
      return bad_input(fmt::format("messages[{}].tool_calls[{}].function.arguments: {}", index, i,
                                   shaped.error().message));
    }
    call["function"]["arguments"] = *std::move(shaped);
  }
  return out;
}

// One message as Transformers hands it to templates: keys without value dropped, reasoning under
// both its names.
Result<Json> shape_message(const Json& message, const Shape& shape, std::size_t index) {
  if (!message.is_object()) {
    return bad_input(fmt::format("messages[{}] is not an object", index));
  }
  if (!message.contains("role") || !message["role"].is_string()) {
    return bad_input(fmt::format("messages[{}].role is missing or not a text", index));
  }
  const Json* reasoning = nullptr;
  for (const std::string_view field : kReasoningFields) {
    const auto it = message.find(field);
    if (reasoning == nullptr && it != message.end() && !it->is_null()) {
      reasoning = &*it;
    }
  }
  Json out = Json::object();
  if (reasoning != nullptr) {
    out["thinking"] = *reasoning;
  }
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) {
      continue;
    }
    if (key == "content") {
      TRINE_TRY_ASSIGN(out[key], shape_content(value, shape, index));
    } else if (key == "tool_calls") {
      TRINE_TRY_ASSIGN(out[key], shape_tool_calls(value, shape, index));
    } else {
      out[key] = value;
    }
  }
  if (reasoning != nullptr) {
    out["reasoning_content"] = *reasoning;
  }
  return out;
}

class Template final : public ChatTemplate {
 public:
  explicit Template(std::shared_ptr<const jinja::Ast> ast) : ast_(std::move(ast)) {
    for (const auto& node : ast_->nodes) {
      if (node->kind == jinja::NodeKind::kName) {
        names_.insert(node->name);
      }
    }
    probe();
  }

  Result<std::vector<TextPart>> render(const ChatTemplateInput& input) const override {
    auto parts = render_with(input, Limits{}, shape_);
    if (!parts.has_value()) {
      return tl::unexpected(std::move(parts).error().with_context("chat template"));
    }
    return parts;
  }

  const ChatTemplateCaps& caps() const override { return caps_; }

  bool names(std::string_view variable) const override { return names_.contains(variable); }

 private:
  Result<Value> messages_value(Heap& heap, const Json* messages, const Shape& shape) const;
  Result<jinja::Variables> variables(Heap& heap, const ChatTemplateInput& input,
                                     const Shape& shape) const;
  Result<std::vector<TextPart>> render_with(const ChatTemplateInput& input, const Limits& limits,
                                            const Shape& shape) const;
  // Whether the conversation renders and the result holds `mark` but not `absent`.
  bool shows(const Json& messages, const Json& tools, const Shape& shape, std::string_view mark,
             std::string_view absent = {}) const;
  void probe();

  std::shared_ptr<const jinja::Ast> ast_;
  std::set<std::string, std::less<>> names_;
  ChatTemplateCaps caps_;
  Shape shape_{.string_arguments = false, .typed_content = true, .only_typed_content = false};
};

Result<Value> Template::messages_value(Heap& heap, const Json* messages, const Shape& shape) const {
  if (messages == nullptr || !messages->is_array()) {
    return bad_input("messages is not an array");
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    TRINE_TRY_ASSIGN(const Json message, shape_message((*messages)[i], shape, i));
    auto converted = jinja::from_json(heap, message);
    if (!converted.has_value()) {
      return tl::unexpected(
          std::move(converted).error().with_context(fmt::format("messages[{}]", i)));
    }
    for (auto& [key, value] : converted->dict->items) {
      if (key.str->text == "role" &&
          std::find(kKnownRoles.begin(), kKnownRoles.end(), value.str->text) != kKnownRoles.end()) {
        TRINE_TRY_ASSIGN(value, heap.string(value.str->text));
      }
    }
    items.push_back(*converted);
  }
  return heap.list(std::move(items), true);
}

Result<jinja::Variables> Template::variables(Heap& heap, const ChatTemplateInput& input,
                                             const Shape& shape) const {
  jinja::Variables vars;
  TRINE_TRY_ASSIGN(const Value messages, messages_value(heap, input.messages, shape));
  vars.emplace_back("messages", messages);
  Value tools = Value::none();
  if (input.tools != nullptr && !input.tools->is_null()) {
    if (!input.tools->is_array()) {
      return bad_input("tools is neither null nor an array");
    }
    TRINE_TRY_ASSIGN(tools, jinja::from_json(heap, *input.tools));
  }
  vars.emplace_back("tools", tools);
  vars.emplace_back("documents", Value::none());
  vars.emplace_back("add_generation_prompt", Value::of_bool(input.add_generation_prompt));
  for (const auto& [name, text] :
       {std::pair("bos_token", &input.bos_token), std::pair("eos_token", &input.eos_token)}) {
    TRINE_TRY_ASSIGN(const Value v, heap.string(*text));
    vars.emplace_back(name, v);
  }
  auto* clock = heap.make<StrftimeNow>();
  clock->heap = &heap;
  clock->now = input.now_unix_s;
  vars.emplace_back("strftime_now", Value::of(clock));
  if (input.extra != nullptr && !input.extra->is_null()) {
    if (!input.extra->is_object()) {
      return bad_input("the extra template variables are not an object");
    }
    for (const auto& [name, json] : input.extra->items()) {
      if (name == "messages" || name == "tools" || name == "strftime_now" ||
          name == "raise_exception") {
        return bad_input(
            fmt::format("the extra template variable '{}' would hide a built-in one", name));
      }
      auto converted = jinja::from_json(heap, json);
      if (!converted.has_value()) {
        return tl::unexpected(std::move(converted).error().with_context(name));
      }
      vars.emplace_back(name, *converted);
    }
  }
  return vars;
}

Result<std::vector<TextPart>> Template::render_with(const ChatTemplateInput& input,
                                                    const Limits& limits,
                                                    const Shape& shape) const {
  Heap heap(limits);
  TRINE_TRY_ASSIGN(const jinja::Variables vars, variables(heap, input, shape));
  TRINE_TRY_ASSIGN(const jinja::Str* text, jinja::evaluate(*ast_, heap, vars));
  std::vector<TextPart> parts;
  std::size_t from = 0;
  for (const jinja::Run& run : text->runs) {
    parts.push_back({text->text.substr(from, run.end - from), run.user});
    from = run.end;
  }
  return parts;
}

bool Template::shows(const Json& messages, const Json& tools, const Shape& shape,
                     std::string_view mark, std::string_view absent) const {
  // Small limits: loading a hostile template stays quick.
  const Limits limits{.steps = 200'000,
                      .heap_bytes = std::size_t{8} << 20,
                      .output_bytes = std::size_t{1} << 20,
                      .depth = Limits{}.depth,
                      .range = 10'000};
  ChatTemplateInput input;
  input.messages = &messages;
  input.tools = &tools;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  const auto parts = render_with(input, limits, shape);
  if (!parts.has_value()) {
    return false;
  }
  std::string text;
  for (const TextPart& part : *parts) {
    text += part.text;
  }
  return text.find(mark) != std::string::npos &&
         (absent.empty() || text.find(absent) == std::string::npos);
}

void Template::probe() {
  constexpr std::string_view kMark = "QzMarkX";
  const Json user = {{"role", "user"}, {"content", "Hello"}};
  const auto message = [](std::string_view role, Json content) {
    return Json{{"role", role}, {"content", std::move(content)}};
  };
  const Json typed = Json::array({Json{{"type", "text"}, {"text", kMark}}});
  const Json no_tools;
  const Shape as_is = shape_;

  Shape shape = as_is;
  shape.typed_content =
      shows(Json::array({message("user", typed)}), no_tools, as_is, kMark, "type");
  shape.only_typed_content =
      shape.typed_content && !shows(Json::array({message("user", kMark)}), no_tools, as_is, kMark);

  const Json properties = {{"place", {{"type", "string"}, {"description", "A place"}}}};
  const auto tool = [&](std::string_view name) {
    return Json::array({Json{{"type", "function"},
                             {"function",
                              {{"name", name},
                               {"description", "Looks something up"},
                               {"parameters",
                                {{"type", "object"},
                                 {"properties", properties},
                                 {"required", Json::array({"place"})}}}}}}});
  };
  const auto call_with = [&](Json arguments, std::string_view result) {
    const Json call = {{"id", "call00001"},
                       {"type", "function"},
                       {"function", {{"name", "lookup"}, {"arguments", std::move(arguments)}}}};
    Json assistant = message("assistant", "");
    assistant["tool_calls"] = Json::array({call});
    const Json reply = {
        {"role", "tool"}, {"name", "lookup"}, {"tool_call_id", "call00001"}, {"content", result}};
    return Json::array({user, assistant, reply});
  };
  const Json object_arguments = {{"place", kMark}};
  const Json tools = tool("lookup");
  Shape with_strings = shape;
  with_strings.string_arguments = true;
  if (!shows(call_with(object_arguments, "fine"), tools, shape, kMark) &&
      shows(call_with(object_arguments, "fine"), tools, with_strings, kMark)) {
    shape = with_strings;
  }
  shape_ = shape;

  caps_.system_role = shows(Json::array({message("system", kMark), user}), no_tools, shape, kMark);
  caps_.developer_role =
      shows(Json::array({message("developer", kMark), user}), no_tools, shape, kMark);
  caps_.tools = shows(Json::array({user}), tool(kMark), shape, kMark);
  caps_.tool_results = shows(call_with(Json{{"place", "here"}}, kMark), tools, shape, kMark);
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  auto ast = jinja::parse_template(source);
  if (!ast.has_value()) {
    return tl::unexpected(std::move(ast).error().with_context("chat template"));
  }
  return std::shared_ptr<const ChatTemplate>(std::make_shared<Template>(std::move(*ast)));
}

}  // namespace trine::text
