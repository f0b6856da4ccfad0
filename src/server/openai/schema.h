// The one table of every request field. The checker, the parsers' defaults, docs/api.md and the
// tests read it, so they cannot disagree. A field is honoured, refused by name, or ignored and
// said so in a warning of the answer; a name that is not in the table is refused.
// Thread rule: immutable after first use; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/openai/error.h"
#include "server/openai/limits.h"

namespace trine::server::openai {

// A JSON object that has fields: the body of an endpoint, or an object inside one.
enum class Shape : std::uint8_t {
  kCompletions,
  kChat,
  kResponses,
  kEmbeddings,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kMessage,
  kContentPart,
  kToolCall,
  kToolCallFunction,
  kTool,
  kFunction,
  kStreamOptions,
  kResponseFormat,
  kJsonSchema,
  kStructuredOutputs,
  kSpeculative,
  kResponsesItem,
  kResponsesTool,
  kResponsesText,
};
inline constexpr int kNumShapes = 21;

enum class FieldState : std::uint8_t {
  kHonoured,
  kRefused,  // 400, unless the value asks for nothing (see Field::neutral)
  kIgnored,  // without effect on the answer; named in a warning
};

// Kinds of JSON values, as bits.
enum Kind : std::uint8_t {
  kBool = 1,
  kInt = 2,
  kNumber = 4,  // integers too
  kString = 8,
  kArray = 16,
  kObject = 32,
  kAny = 63,
};

struct Field {
  Shape shape = Shape::kChat;
  std::string_view name = {};
  std::uint8_t kinds = kAny;
  FieldState state = FieldState::kHonoured;
  bool required = false;
  // Of numbers; of strings in bytes and arrays and objects in elements when `sized`.
  std::optional<double> min = {};
  std::optional<double> max = {};
  // min is not itself allowed.
  bool above_min = false;
  std::string_view default_text = {};  // as shown; empty: none
  // For a string with few values: those, divided by '|'.
  std::string_view choices = {};
  // For refused fields: JSON texts divided by ';' that ask for nothing and pass.
  std::string_view neutral = {};
  // The honoured field this is another name of.
  std::string_view alias_of = {};
  // What it does; why it is refused or ignored.
  std::string_view note = {};
};

std::span<const Field> field_table();
// Of one shape, in the order of the table.
std::vector<const Field*> fields_of(Shape shape);
const Field* find_field(Shape shape, std::string_view name);
// "/v1/chat/completions", "messages[]", ...
std::string_view shape_name(Shape shape);
std::string_view state_name(FieldState state);
// "integer", "number or string", ...
std::string kinds_text(std::uint8_t kinds);
// "[0, 2]", "(0, 1]", ">= 1"; empty without one.
std::string range_text(const Field& field);

// How an object called its fields.
class Spelling {
 public:
  // Both names are those of the table.
  void add(std::string_view field, std::string_view alias) { aliases_.emplace_back(field, alias); }

  // The name that was used for a field; its own when none was.
  std::string_view of(std::string_view field) const {
    for (const auto& [name, alias] : aliases_) {
      if (name == field) {
        return alias;
      }
    }
    return field;
  }

 private:
  std::vector<std::pair<std::string_view, std::string_view>> aliases_;
};

// Checks names, kinds, ranges and choices of one object, one level deep, and takes aliases, nulls
// (as good as absent), neutral values and ignored fields out of it. Ignored ones add a warning.
// `path` is where the object is: empty for a body, else "messages[2]". `spelling`, when given, gets
// the aliases that were used. Errors: 400 naming the field.
ApiStatus check_object(Shape shape, std::string_view path, nlohmann::ordered_json& object,
                       std::vector<std::string>& warnings, Spelling* spelling = nullptr);

// The error for a number that cannot even be read: an integer beyond 64 bits, or beyond a double.
// `place` is where it stands in the body of that shape, `text` how it was written.
ApiError unreadable_number(Shape shape, std::string_view place, std::string_view text);

// docs/api.md.
std::string api_markdown();

}  // namespace trine::server::openai
