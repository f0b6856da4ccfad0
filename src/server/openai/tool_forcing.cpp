// From tool_choice to a schema.
#include <utility>

#include <nlohmann/json.hpp>

#include "server/openai/tool_calls.h"

namespace trine::server::openai {

namespace {

using Json = nlohmann::ordered_json;

// References inside a tool's parameters are to their own root, which is now under `root`.
void move_references(Json& schema, const std::string& root) {
  if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      if (key == "$ref" && value.is_string()) {
        const std::string target = value.get<std::string>();
        if (target.starts_with("#")) {
          value = root + target.substr(1);
        }
        continue;
      }
      move_references(value, root);
    }
  } else if (schema.is_array()) {
    for (Json& value : schema) {
      move_references(value, root);
    }
  }
}

Json parameters_of(const Json& function, const std::string& root) {
  const auto at = function.find("parameters");
  if (at == function.end() || at->is_null()) {
    return Json{
        {"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  }
  Json out = *at;
  if (!out.contains("type") && !out.contains("$ref")) {
    out["type"] = "object";
  }
  move_references(out, root);
  return out;
}

}  // namespace

ApiResult<std::optional<ToolForcing>> force_tool_call(const ToolRequest& request, const Json& tools,
                                                      ToolFamily family) {
  if (request.choice != ToolChoice::kRequired && request.choice != ToolChoice::kNamed) {
    return std::optional<ToolForcing>();
  }
  const std::string key = family == ToolFamily::kLlama3 ? "parameters" : "arguments";
  Json definitions = Json::object();
  Json calls = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i]["function"];
    if (request.choice == ToolChoice::kNamed && function["name"] != request.named) {
      continue;
    }
    const auto at = function.find("parameters");
    if (at != function.end() && at->contains("type") && (*at)["type"] != "object") {
      return tl::unexpected(bad_field("tools[" + std::to_string(i) + "].function.parameters",
                                      "must describe an object"));
    }
    const std::string id = "tool" + std::to_string(i);
    definitions[id] = parameters_of(function, "#/$defs/" + id);
    Json properties = Json::object();
    properties["name"] = Json{{"const", function["name"]}};
    properties[key] = Json{{"$ref", "#/$defs/" + id}};
    calls.push_back(Json{{"type", "object"},
                         {"properties", std::move(properties)},
                         {"required", Json::array({"name", key})},
                         {"additionalProperties", false}});
  }
  if (calls.empty()) {
    return tl::unexpected(bad_field("tool_choice", "names no tool of the request"));
  }
  Json schema = calls.size() == 1 ? calls.front() : Json{{"anyOf", calls}};
  ToolForcing out;
  switch (family) {
    case ToolFamily::kHermes:
      out.prefix = "<tool_call>\n";
      break;
    case ToolFamily::kMistral:
    case ToolFamily::kMistralArgs:
      out.prefix = "[TOOL_CALLS] ";
      break;
    case ToolFamily::kPhi:
      out.prefix = "<|tool_call|>";
      break;
    case ToolFamily::kLlama3:
    case ToolFamily::kGemma:
    case ToolFamily::kGeneric:
      break;
  }
  const bool list = family == ToolFamily::kMistral || family == ToolFamily::kMistralArgs ||
                    family == ToolFamily::kPhi;
  if (list) {
    Json items = std::move(schema);
    schema = Json{{"type", "array"}, {"items", std::move(items)}, {"minItems", 1}};
    if (!request.parallel || request.choice == ToolChoice::kNamed) {
      schema["maxItems"] = 1;
    }
  }
  schema["$defs"] = std::move(definitions);
  out.constraint = {.notation = grammar::Notation::kJsonSchema,
                    .text = schema.dump(-1, ' ', false, Json::error_handler_t::replace),
                    .field = "tools"};
  return std::optional(std::move(out));
}

}  // namespace trine::server::openai
