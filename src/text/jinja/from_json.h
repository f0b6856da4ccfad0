// JSON to template values, all marked as the user's. Errors: invalid_argument for text that is not
// UTF-8, numbers that do not fit and nesting beyond kMaxDataDepth, naming the place; exhausted for
// the heap's limits. Thread rule: as the heap.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value.h"

namespace trine::text::jinja {

Result<Value> from_json(Heap& heap, const nlohmann::ordered_json& json, int depth = 0);

}  // namespace trine::text::jinja
