// Runs a parsed template. Contract: every character of the output carries its origin; limits of the
// heap hold. Errors carry line and column of the innermost node that failed. Thread rule: one
// evaluation, one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace trine::text::jinja {

// Variables the caller provides, by name.
using Variables = std::vector<std::pair<std::string, Value>>;

// The rendered text. `heap` owns `variables` and all values made on the way.
Result<const Str*> evaluate(const Ast& ast, Heap& heap, const Variables& variables);

}  // namespace trine::text::jinja
