// JSON Schema to an automaton over the bytes of JSON text. What is supported, and what is refused
// by name, is listed in docs/structured-output.md. Thread rule: one thread's Ir.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/ir.h"

namespace trine::grammar {

// Errors name the JSON pointer of the schema (RFC 6901, "#" for the whole) and the keyword.
Result<RuleId> read_json_schema(Ir& ir, std::string_view text);

}  // namespace trine::grammar
