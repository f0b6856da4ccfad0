// Values to text and back: str(), repr(), JSON as Python's json.dumps writes it, % and {}
// formatting, number parsing. Every character of the result keeps its origin. Errors: corrupt_data
// for what Python would raise, exhausted for limits. Thread rule: as the heap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/str_builder.h"
#include "text/jinja/value.h"

namespace trine::text::jinja {

std::string float_repr(double d);
Status append_str(Heap& heap, StrBuilder& out, const Value& v);
Status append_repr(Heap& heap, StrBuilder& out, const Value& v, int depth = 0);
// The string itself, or str() of another value.
Result<const Str*> to_str(Heap& heap, const Value& v);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  const Str* indent = nullptr;  // one level; null for a single line
  const Str* item_separator = nullptr;
  const Str* key_separator = nullptr;
};

Status append_json(Heap& heap, StrBuilder& out, const Value& v, const JsonStyle& style,
                   int depth = 0);

// &<>"' as entities.
Result<Value> escape_html(Heap& heap, const Str& s);

// format % args, args being a tuple, a dict or one value.
Result<Value> percent_format(Heap& heap, const Str& format, const Value& args);

// One replacement of str.format(): text of `v` under a spec such as ">10" or ".2f".
Status append_formatted(Heap& heap, StrBuilder& out, const Value& v, std::string_view spec);

// int(text, base) and float(text) of Python. nullopt when the text is no number.
Result<std::optional<std::int64_t>> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
// Text without the whitespace around it.
std::string_view strip_space(std::string_view text);
// Integer part of a float; refuses what does not fit.
Result<std::int64_t> float_to_int(double d);

}  // namespace trine::text::jinja
