// The ways to ask for a grammar.
#include <array>
#include <utility>

#include <fmt/format.h>

#include "server/openai/body.h"

namespace trine::server::openai {

namespace {

using grammar::Notation;

struct Way {
  std::string_view name;
  Notation notation;
};

// A grammar's text from the value that asks for it.
ApiResult<Constraint> make(const Way& way, const Json& value, std::string path) {
  Constraint out{.notation = way.notation, .text = {}, .field = std::move(path)};
  switch (way.notation) {
    case Notation::kGbnf:
    case Notation::kRegex:
      out.text = value.get<std::string>();
      break;
    case Notation::kChoice: {
      constexpr std::size_t kMaxChoice = 65536;
      TRINE_TRY_ASSIGN(const auto choices, get_texts(value, out.field, 1, kMaxChoice));
      out.text = Json(choices).dump();
      break;
    }
    case Notation::kJsonObject:
      break;
    case Notation::kJsonSchema:
      // vLLM's clients send the schema as an object or as its text.
      out.text = value.is_string() ? value.get<std::string>() : value.dump();
      break;
  }
  return out;
}

}  // namespace

ApiResult<std::optional<Constraint>> read_format(Json format, std::string_view path,
                                                 bool schema_inside,
                                                 std::vector<std::string>& warnings) {
  TRINE_TRY(check_object(Shape::kResponseFormat, path, format, warnings));
  const std::string type = get_string(format, "type");
  const std::string schema_path =
      schema_inside ? fmt::format("{}.schema", path) : fmt::format("{}.json_schema.schema", path);
  const Json* schema = find(format, "schema");
  const Json* wrapper = find(format, "json_schema");
  if (type != "json_schema" && wrapper != nullptr) {
    return tl::unexpected(
        bad_field(fmt::format("{}.json_schema", path), "belongs to type json_schema"));
  }
  // A schema in the wrong place would be left out without a word.
  if (schema != nullptr && (type == "text" || (type == "json_schema" && !schema_inside))) {
    return tl::unexpected(bad_field(fmt::format("{}.schema", path),
                                    type == "text"
                                        ? "belongs to type json_object or json_schema"
                                        : "belongs to type json_object; type json_schema has it in "
                                          "json_schema.schema"));
  }
  if (!schema_inside || type != "json_schema") {
    for (const std::string_view name : {"name", "description", "strict"}) {
      if (find(format, name) != nullptr) {
        return tl::unexpected(bad_field(fmt::format("{}.{}", path, name),
                                        "belongs to type json_schema, where it describes the "
                                        "schema"));
      }
    }
  }
  if (type == "text") {
    return std::optional<Constraint>();
  }
  if (type == "json_object") {
    if (schema == nullptr) {
      return std::optional(Constraint{.field = std::string(path)});
    }
    TRINE_TRY_ASSIGN(auto out,
                     make({"", Notation::kJsonSchema}, *schema, fmt::format("{}.schema", path)));
    return std::optional(std::move(out));
  }
  Json inner;
  if (!schema_inside) {
    if (wrapper == nullptr) {
      return tl::unexpected(
          bad_field(fmt::format("{}.json_schema", path), "is missing: type json_schema needs it"));
    }
    inner = *wrapper;
    TRINE_TRY(
        check_object(Shape::kJsonSchema, fmt::format("{}.json_schema", path), inner, warnings));
    schema = find(inner, "schema");
  }
  if (schema == nullptr) {
    return tl::unexpected(bad_field(schema_path, "is missing: type json_schema needs it"));
  }
  TRINE_TRY_ASSIGN(auto out, make({"", Notation::kJsonSchema}, *schema, schema_path));
  return std::optional(std::move(out));
}

ApiStatus read_constraint(const Json& body, const Spelling& spelling, CommonRequest& out) {
  constexpr std::array kGuided{
      Way{"guided_json", Notation::kJsonSchema}, Way{"guided_regex", Notation::kRegex},
      Way{"guided_choice", Notation::kChoice}, Way{"guided_grammar", Notation::kGbnf}};
  constexpr std::array kStructured{Way{"json", Notation::kJsonSchema},
                                   Way{"regex", Notation::kRegex}, Way{"choice", Notation::kChoice},
                                   Way{"grammar", Notation::kGbnf},
                                   Way{"json_object", Notation::kJsonObject}};
  std::vector<Constraint> found;
  if (const Json* format = find(body, "response_format")) {
    TRINE_TRY_ASSIGN(auto made, read_format(*format, "response_format", false, out.warnings));
    if (made) {
      found.push_back(std::move(*made));
    }
  }
  if (const Json* value = find(body, "text")) {
    Json text = *value;
    TRINE_TRY(check_object(Shape::kResponsesText, "text", text, out.warnings));
    if (const Json* format = find(text, "format")) {
      TRINE_TRY_ASSIGN(auto made, read_format(*format, "text.format", true, out.warnings));
      if (made) {
        found.push_back(std::move(*made));
      }
    }
  }
  for (const Way& way : kGuided) {
    if (const Json* value = find(body, way.name)) {
      TRINE_TRY_ASSIGN(auto made, make(way, *value, std::string(spelling.of(way.name))));
      found.push_back(std::move(made));
    }
  }
  if (const Json* value = find(body, "structured_outputs")) {
    Json object = *value;
    TRINE_TRY(check_object(Shape::kStructuredOutputs, "structured_outputs", object, out.warnings));
    for (const Way& way : kStructured) {
      const Json* part = find(object, way.name);
      if (part == nullptr || (way.notation == Notation::kJsonObject && !part->get<bool>())) {
        continue;
      }
      TRINE_TRY_ASSIGN(auto made, make(way, *part, fmt::format("structured_outputs.{}", way.name)));
      found.push_back(std::move(made));
    }
  }
  if (found.size() > 1) {
    return tl::unexpected(bad_field(
        found[1].field, fmt::format("and {} both ask for a grammar; give one", found[0].field)));
  }
  if (!found.empty()) {
    out.constraint = std::move(found.front());
  }
  return {};
}

}  // namespace trine::server::openai
