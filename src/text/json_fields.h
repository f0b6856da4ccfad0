// Typed access to the fields of a parsed tokenizer file, with errors that name the field.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trine::text {

using Json = nlohmann::ordered_json;

inline const Json* find_field(const Json& object, std::string_view name) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto it = object.find(std::string(name));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

inline Result<std::string> string_field(const Json& object, std::string_view name) {
  const Json* value = find_field(object, name);
  if (value == nullptr || !value->is_string()) {
    return fail(ErrorCode::kCorruptData, "field \"{}\" is missing or no string", name);
  }
  return value->get<std::string>();
}

inline Result<bool> bool_field(const Json& object, std::string_view name, bool otherwise) {
  const Json* value = find_field(object, name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_boolean()) {
    return fail(ErrorCode::kCorruptData, "field \"{}\" is neither true nor false", name);
  }
  return value->get<bool>();
}

// An integer in [0, limit).
inline Result<std::int64_t> int_field(const Json& object, std::string_view name,
                                      std::int64_t limit) {
  const Json* value = find_field(object, name);
  if (value == nullptr || !value->is_number_integer()) {
    return fail(ErrorCode::kCorruptData, "field \"{}\" is missing or no integer", name);
  }
  // Unsigned numbers past int64 come out negative here and are refused with the rest.
  const auto number = value->get<std::int64_t>();
  if (number < 0 || number >= limit) {
    return fail(ErrorCode::kCorruptData, "field \"{}\" is {}, outside [0, {})", name, number,
                limit);
  }
  return number;
}

inline Result<const Json*> array_field(const Json& object, std::string_view name) {
  const Json* value = find_field(object, name);
  if (value == nullptr || !value->is_array()) {
    return fail(ErrorCode::kCorruptData, "field \"{}\" is missing or no array", name);
  }
  return value;
}

// {"Regex": "..."} or {"String": "..."}; a field of the wrong kind leaves both empty.
struct PatternField {
  bool regex = false;
  std::string text;
};

inline Result<PatternField> pattern_field(const Json& object) {
  const Json* value = find_field(object, "pattern");
  if (value != nullptr && value->is_object() && value->size() == 1 && value->begin()->is_string()) {
    const std::string& kind = value->begin().key();
    if (kind == "Regex" || kind == "String") {
      return PatternField{kind == "Regex", value->begin()->get<std::string>()};
    }
  }
  return fail(ErrorCode::kCorruptData,
              "field \"pattern\" is neither {{\"Regex\": ...}} nor {{\"String\": ...}}");
}

}  // namespace trine::text
