// llama.cpp's grammar notation. Thread rule: one thread's Ir.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/ir.h"

namespace trine::grammar {

// Reads all rules; the language is that of the rule "root". Errors name line:column.
Result<RuleId> read_gbnf(Ir& ir, std::string_view text);

}  // namespace trine::grammar
