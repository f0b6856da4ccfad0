// Tokens to syntax tree, with Jinja's grammar and precedence. Errors: corrupt_data with line and
// column; unsupported for statements that would load other templates; exhausted for nesting beyond
// kMaxHeight. Thread rule: pure function.
#pragma once

#include <memory>
#include <string_view>

#include "base/error.h"
#include "text/jinja/ast.h"

namespace trine::text::jinja {

inline constexpr int kMaxHeight = 200;  // of the tree, and of the parser's own recursion
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

Result<std::shared_ptr<const Ast>> parse_template(std::string_view source);

}  // namespace trine::text::jinja
