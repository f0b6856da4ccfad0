// The parts of JSON text that schemas and patterns are made of. Thread rule: pure functions on one
// thread's Ir.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/ir.h"

namespace trine::grammar {

// One code point of a normalized list inside a JSON string, spelled the one way that this module
// writes: as itself, or with the shortest escape where JSON wants one.
NodeId json_chars(Ir& ir, const std::vector<CodeRange>& ranges);
// `text` (valid UTF-8) as a JSON string with quotes, in the same spelling.
std::string json_quoted(std::string_view text);
// An integer in [low, high], without leading zeros and without "-0".
NodeId integer_between(Ir& ir, std::int64_t low, std::int64_t high);

// Rules shared by everything of one compilation, made on first use.
class JsonRules {
 public:
  explicit JsonRules(Ir& ir) : ir_(ir) {}

  RuleId value();
  RuleId object();
  RuleId array();
  // A string of any characters, every escape allowed.
  RuleId string();
  // One character of a string in any spelling: itself, an escape, \uXXXX, or a surrogate pair.
  RuleId any_char();
  NodeId number();
  // `separator` (',' or ':') with at most one space after it.
  NodeId separator(char separator);

 private:
  static constexpr RuleId kUnmade = 0xffffffffu;
  Ir& ir_;
  RuleId value_ = kUnmade, object_ = kUnmade, array_ = kUnmade, string_ = kUnmade, char_ = kUnmade,
         comma_ = kUnmade, colon_ = kUnmade;
};

}  // namespace trine::grammar
