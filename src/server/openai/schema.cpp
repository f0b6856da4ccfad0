#include "server/openai/schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "options/option.h"

namespace trine::server::openai {

namespace {

using Json = nlohmann::ordered_json;

std::uint8_t kinds_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return kBool;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return kInt | kNumber;
    case Json::value_t::number_float:
      return kNumber;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    default:
      return 0;
  }
}

// A value as it is shown in an error: what is big only by its kind.
std::string show(const Json& value) {
  if (value.is_object()) {
    return fmt::format("an object of {}", value.size());
  }
  if (value.is_array()) {
    return fmt::format("a list of {}", value.size());
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return fmt::format("\"{}\"", printable(text, 60));
  }
  return value.dump();
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(by), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string join(const std::vector<std::string_view>& parts, std::string_view between) {
  std::string out;
  for (const std::string_view part : parts) {
    out += out.empty() ? std::string_view() : between;
    out += part;
  }
  return out;
}

bool asks_for_nothing(const Field& field, const Json& value) {
  const auto texts = split(field.neutral, ';');
  return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
    return value == Json::parse(text, nullptr, /*allow_exceptions=*/false);
  });
}

// Numbers by value; texts, lists and objects by length.
double measure(const Json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  return value.is_string() ? static_cast<double>(value.get_ref<const std::string&>().size())
                           : static_cast<double>(value.size());
}

ApiStatus check_value(const Field& field, const std::string& where, const Json& value) {
  if ((kinds_of(value) & field.kinds) == 0) {
    return tl::unexpected(
        bad_field(where, fmt::format("is {}, must be {}", show(value), kinds_text(field.kinds))));
  }
  if (!field.choices.empty()) {
    const auto all = split(field.choices, '|');
    if (std::find(all.begin(), all.end(), value.get_ref<const std::string&>()) == all.end()) {
      return tl::unexpected(
          bad_field(where, fmt::format("is {}, must be one of {}", show(value), join(all, ", "))));
    }
  }
  if (!field.min || value.is_boolean()) {
    return {};
  }
  const double size = measure(value);
  const bool fits = (field.above_min ? size > *field.min : size >= *field.min) &&
                    size <= field.max.value_or(HUGE_VAL);
  if (!fits) {
    const std::string_view of =
        value.is_number() ? "" : (value.is_string() ? "a length in bytes in " : "a length in ");
    return tl::unexpected(bad_field(
        where, fmt::format("is {}, must be {}{}", show(value),
                           of.empty() ? std::string("in ") : std::string(of), range_text(field))));
  }
  return {};
}

ApiError unknown_field(Shape shape, std::string_view where, std::string_view name) {
  std::vector<std::string> names;
  for (const Field* field : fields_of(shape)) {
    if (field->state == FieldState::kHonoured) {
      names.emplace_back(field->name);
    }
  }
  constexpr std::size_t kLongestName = 64;
  const std::string nearest =
      name.size() <= kLongestName ? options::nearest(name, names) : std::string();
  return bad_field(
      where,
      nearest.empty()
          ? fmt::format("is not a field of {}; docs/api.md lists them", shape_name(shape))
          : fmt::format("is not a field of {}; did you mean {}?", shape_name(shape), nearest));
}

std::string join_path(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

}  // namespace

std::vector<const Field*> fields_of(Shape shape) {
  std::vector<const Field*> out;
  for (const Field& field : field_table()) {
    if (field.shape == shape) {
      out.push_back(&field);
    }
  }
  return out;
}

const Field* find_field(Shape shape, std::string_view name) {
  for (const Field& field : field_table()) {
    if (field.shape == shape && field.name == name) {
      return &field;
    }
  }
  return nullptr;
}

std::string_view shape_name(Shape shape) {
  switch (shape) {
    case Shape::kCompletions:
      return "/v1/completions";
    case Shape::kChat:
      return "/v1/chat/completions";
    case Shape::kResponses:
      return "/v1/responses";
    case Shape::kEmbeddings:
      return "/v1/embeddings";
    case Shape::kTokenize:
      return "/tokenize";
    case Shape::kDetokenize:
      return "/detokenize";
    case Shape::kApplyTemplate:
      return "/apply-template";
    case Shape::kMessage:
      return "messages[]";
    case Shape::kContentPart:
      return "messages[].content[]";
    case Shape::kToolCall:
      return "messages[].tool_calls[]";
    case Shape::kToolCallFunction:
      return "messages[].tool_calls[].function";
    case Shape::kTool:
      return "tools[]";
    case Shape::kFunction:
      return "tools[].function";
    case Shape::kStreamOptions:
      return "stream_options";
    case Shape::kResponseFormat:
      return "response_format";
    case Shape::kJsonSchema:
      return "response_format.json_schema";
    case Shape::kStructuredOutputs:
      return "structured_outputs";
    case Shape::kSpeculative:
      return "speculative";
    case Shape::kResponsesItem:
      return "input[] of /v1/responses";
    case Shape::kResponsesTool:
      return "tools[] of /v1/responses";
    case Shape::kResponsesText:
      return "text of /v1/responses";
  }
  return "";
}

std::string_view state_name(FieldState state) {
  switch (state) {
    case FieldState::kHonoured:
      return "honoured";
    case FieldState::kRefused:
      return "refused";
    case FieldState::kIgnored:
      return "ignored";
  }
  return "";
}

std::string kinds_text(std::uint8_t kinds) {
  if (kinds == kAny) {
    return "anything";
  }
  std::vector<std::string_view> names;
  for (const auto& [kind, name] : {std::pair<Kind, std::string_view>{kBool, "boolean"},
                                   {kInt, "integer"},
                                   {kNumber, "number"},
                                   {kString, "string"},
                                   {kArray, "list"},
                                   {kObject, "object"}}) {
    if ((kinds & kind) != 0) {
      names.push_back(name);
    }
  }
  return join(names, " or ");
}

std::string range_text(const Field& field) {
  if (!field.min) {
    return "";
  }
  const auto number = [](double value) {
    // Bounds of integers are shown digit by digit.
    return std::floor(value) == value ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
  };
  constexpr double kInt64End = 9223372036854775807.0;
  const double max = field.max.value_or(HUGE_VAL);
  return fmt::format("{}{}, {}]", field.above_min ? "(" : "[", number(*field.min),
                     max >= kInt64End ? "2^63 - 1" : number(max));
}

ApiStatus check_object(Shape shape, std::string_view path, Json& object,
                       std::vector<std::string>& warnings, Spelling* spelling) {
  TRINE_CHECK(object.is_object());
  Spelling names;
  Json kept = Json::object();
  for (auto& [key, value] : object.items()) {
    const std::string where = join_path(path, key);
    const Field* const given = find_field(shape, key);
    const Field* field = given;
    if (field == nullptr) {
      return tl::unexpected(unknown_field(shape, where, key));
    }
    if (value.is_null()) {
      continue;
    }
    if (!field->alias_of.empty()) {
      field = find_field(shape, field->alias_of);
      TRINE_CHECK(field != nullptr);
    }
    if (field->state == FieldState::kRefused) {
      if (!asks_for_nothing(*field, value)) {
        return tl::unexpected(bad_field(where, fmt::format("is not supported: {}", field->note)));
      }
      continue;
    }
    TRINE_TRY(check_value(*field, where, value));
    if (field->state == FieldState::kIgnored) {
      warnings.push_back(fmt::format("{} is ignored: {}", where, field->note));
      continue;
    }
    if (kept.contains(field->name)) {
      return tl::unexpected(
          bad_field(where, fmt::format("is another name of {}, which is there too; give one",
                                       names.of(field->name))));
    }
    if (given != field) {
      names.add(field->name, given->name);
    }
    kept[std::string(field->name)] = std::move(value);
  }
  for (const Field* field : fields_of(shape)) {
    if (field->required && !kept.contains(field->name)) {
      return tl::unexpected(
          bad_field(join_path(path, field->name), fmt::format("is missing: {}", field->note)));
    }
  }
  object = std::move(kept);
  if (spelling != nullptr) {
    *spelling = std::move(names);
  }
  return {};
}

ApiError unreadable_number(Shape shape, std::string_view place, std::string_view text) {
  const std::string_view name = place.substr(0, place.find_first_of(".["));
  const Field* field = find_field(shape, name);
  if (field == nullptr) {
    return unknown_field(shape, name, name);
  }
  if (!field->alias_of.empty()) {
    field = find_field(shape, field->alias_of);
  }
  if (field->state == FieldState::kRefused) {
    return bad_field(place, fmt::format("is not supported: {}", field->note));
  }
  if (name == place && (field->kinds & (kInt | kNumber)) == 0) {
    return bad_field(place, fmt::format("is {}, must be {}", text, kinds_text(field->kinds)));
  }
  if (name == place && field->min) {
    return bad_field(place, fmt::format("is {}, must be in {}", text, range_text(*field)));
  }
  return bad_field(place,
                   fmt::format("is {}: integers are read in [-2^63, 2^63 - 1], other numbers "
                               "as doubles; write it as a text where one may stand",
                               text));
}

std::string api_markdown() {
  std::string out =
      "# API: request fields\n\n"
      "Made from the table of fields by `trine api-page`; a test fails when it is out of date.\n\n"
      "Every field is *honoured*, *refused* (400 naming the field and the reason) or *ignored* (a "
      "text in the answer's `warnings`\n"
      "names it). A name that is not listed is refused. `null` is as good as leaving a field out. "
      "A refused field may have a value\n"
      "that asks for nothing (listed), which passes. Ranges are those of numbers; of strings in "
      "bytes, of lists and objects in elements.\n"
      "What is given to the chat template (`tools`, `documents`, `reasoning_effort`, "
      "`chat_template_kwargs`, roles) is ignored, with a\n"
      "warning, by a model whose template has no place for it.\n";
  for (int i = 0; i < kNumShapes; ++i) {
    const auto shape = static_cast<Shape>(i);
    out += fmt::format("\n## {}\n\n| field | state | type | default | meaning or reason |\n",
                       shape_name(shape));
    out += "| --- | --- | --- | --- | --- |\n";
    for (const Field* field : fields_of(shape)) {
      std::string type = kinds_text(field->kinds);
      if (!field->choices.empty()) {
        type = fmt::format("`{}`", join(split(field->choices, '|'), "`, `"));
      } else if (const std::string range = range_text(*field); !range.empty()) {
        type += ", " + range;
      }
      std::string note(field->note);
      if (!field->alias_of.empty()) {
        type = "";
        note = fmt::format("another name of `{}`", field->alias_of);
      }
      if (!field->neutral.empty()) {
        note += fmt::format(" (passes: `{}`)", join(split(field->neutral, ';'), "`, `"));
      }
      out +=
          fmt::format("| `{}` | {} | {} | {} | {} |\n", field->name, state_name(field->state), type,
                      field->required ? "required" : std::string(field->default_text), note);
    }
  }
  return out;
}

}  // namespace trine::server::openai
