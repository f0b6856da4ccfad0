// Regular expressions to expressions over bytes. The dialect is in docs/structured-output.md; what
// it lacks is refused by name with its byte offset. Thread rule: one thread's Ir.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/ir.h"

namespace trine::grammar {

enum class RegexUse {
  kWhole,       // the text is the whole match
  kJsonSearch,  // inside a JSON string, and a match anywhere in it, as the keyword "pattern" means
                // it
};

// `place` goes before every message. Errors: invalid_argument for bad syntax, unsupported for
// constructs that are not regular or not supported, exhausted for budgets.
Result<NodeId> read_regex(Ir& ir, std::string_view pattern, RegexUse use, std::string_view place);

}  // namespace trine::grammar
