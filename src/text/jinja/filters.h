// The two halves of the filter table. Thread rule: constants.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace trine::text::jinja {

struct FilterEntry {
  std::string_view name;
  BuiltinFn fn = nullptr;
};

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();

// The text without its mark of being safe.
Result<Value> filter_plain(Heap& heap, const Value& v);

}  // namespace trine::text::jinja
