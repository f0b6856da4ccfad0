#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

std::string float_repr(double d) {
  if (std::isnan(d)) {
    return "nan";
  }
  if (std::isinf(d)) {
    return d < 0 ? "-inf" : "inf";
  }
  // Shortest digits that read back, laid out as Python's repr: exponent form below 1e-4 and from
  // 1e16.
  char buffer[64];
  const auto r = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(r.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* from = text.data() + e + 1;
  std::from_chars(*from == '+' ? from + 1 : from, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) {
    digits += text.substr(2, e - 2);
  }
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) {
      out.append(1, '.').append(digits, 1);
    }
    out.append(fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent)));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      out.append(digits).append(whole - digits.size(), '0').append(".0");
    } else {
      out.append(digits, 0, whole).append(1, '.').append(digits, whole);
    }
  }
  return out;
}

namespace {

Status check_depth(int depth) {
  if (depth > kMaxDataDepth) {
    return fail(ErrorCode::kExhausted, "values nest deeper than {}", kMaxDataDepth);
  }
  return {};
}

// Calls f(code point, start, end, from user) for each character.
template <typename F>
void for_each_char(const Str& s, F f) {
  std::size_t run = 0;
  for (std::size_t pos = 0; pos < s.text.size();) {
    const std::size_t start = pos;
    while (s.runs[run].end <= start) {
      ++run;
    }
    const char32_t c = next_code_point(s.text, pos);
    f(c, start, pos, s.runs[run].user);
  }
}

Status repr_string(Heap& heap, StrBuilder& out, const Str& s) {
  TRINE_TRY(heap.text_work(s.text.size()));
  const bool has_single = s.text.find('\'') != std::string::npos;
  const bool has_double = s.text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view q(&quote, 1);
  const bool user = s.any_user();
  out.add(q, user);
  for_each_char(s, [&](char32_t c, std::size_t start, std::size_t end, bool from_user) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.add("\\", from_user);
      out.add(s, start, end);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.add(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", from_user);
    } else if (is_printable(c)) {
      out.add(s, start, end);
    } else if (c < 0x100) {
      out.add(fmt::format("\\x{:02x}", static_cast<unsigned>(c)), from_user);
    } else if (c < 0x10000) {
      out.add(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), from_user);
    } else {
      out.add(fmt::format("\\U{:08x}", static_cast<unsigned>(c)), from_user);
    }
  });
  out.add(q, user);
  return {};
}

Status repr_items(Heap& heap, StrBuilder& out, const std::vector<Value>& items, bool user,
                  int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      out.add(", ", user);
    }
    TRINE_TRY(append_repr(heap, out, items[i], depth + 1));
  }
  return {};
}

Status repr_pairs(Heap& heap, StrBuilder& out, const Dict& dict, int depth) {
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) {
      out.add(", ", dict.user);
    }
    TRINE_TRY(append_repr(heap, out, dict.items[i].first, depth + 1));
    out.add(": ", dict.user);
    TRINE_TRY(append_repr(heap, out, dict.items[i].second, depth + 1));
  }
  return {};
}

Status repr_namespace(Heap& heap, StrBuilder& out, const Namespace& ns, int depth) {
  out.add("<Namespace {", false);
  for (std::size_t i = 0; i < ns.order.size(); ++i) {
    out.add(i > 0 ? ", '" : "'", false);
    out.add(ns.order[i], false);
    out.add("': ", false);
    TRINE_TRY(append_repr(heap, out, ns.attrs.find(ns.order[i])->second, depth + 1));
  }
  out.add("}>", false);
  return {};
}

std::string scalar_text(const Value& v) {
  switch (v.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return v.b ? "True" : "False";
    case Kind::kInt:
      return std::to_string(v.i);
    default:
      return float_repr(v.d);
  }
}

}  // namespace

Status append_str(Heap& heap, StrBuilder& out, const Value& v) {
  if (v.is_string()) {
    TRINE_TRY(heap.text_work(v.str->text.size()));
    out.add(*v.str);
    return out.check();
  }
  if (v.is_undefined()) {
    return {};
  }
  return append_repr(heap, out, v);
}

Status append_repr(Heap& heap, StrBuilder& out, const Value& v, int depth) {
  TRINE_TRY(heap.step());
  TRINE_TRY(check_depth(depth));
  TRINE_TRY(out.check());
  switch (v.kind) {
    case Kind::kUndefined:
      out.add("Undefined", false);
      break;
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      out.add(scalar_text(v), v.user);
      break;
    case Kind::kString:
      if (v.str->markup) {
        out.add("Markup(", false);
      }
      TRINE_TRY(repr_string(heap, out, *v.str));
      if (v.str->markup) {
        out.add(")", false);
      }
      break;
    case Kind::kList:
      out.add("[", v.list->user);
      TRINE_TRY(repr_items(heap, out, v.list->items, v.list->user, depth));
      out.add("]", v.list->user);
      break;
    case Kind::kTuple:
      out.add("(", v.list->user);
      TRINE_TRY(repr_items(heap, out, v.list->items, v.list->user, depth));
      out.add(v.list->items.size() == 1 ? ",)" : ")", v.list->user);
      break;
    case Kind::kDict:
      out.add("{", v.dict->user);
      TRINE_TRY(repr_pairs(heap, out, *v.dict, depth));
      out.add("}", v.dict->user);
      break;
    case Kind::kView: {
      out.add(kind_name(v), false);
      out.add("([", false);
      TRINE_TRY_ASSIGN(const std::vector<Value> items, iterate(heap, v));
      TRINE_TRY(repr_items(heap, out, items, v.view->dict->user, depth));
      out.add("])", false);
      break;
    }
    case Kind::kRange:
      out.add(v.range->step == 1
                  ? fmt::format("range({}, {})", v.range->start, v.range->stop)
                  : fmt::format("range({}, {}, {})", v.range->start, v.range->stop, v.range->step),
              v.range->user);
      break;
    case Kind::kIterator:
      out.add("<generator object>", false);
      break;
    case Kind::kNamespace:
      TRINE_TRY(repr_namespace(heap, out, *v.ns, depth));
      break;
    case Kind::kCallable:
      out.add(v.callable->describe(), false);
      break;
    case Kind::kLoop:
      out.add("<LoopContext>", false);
      break;
  }
  return out.check();
}

Result<const Str*> to_str(Heap& heap, const Value& v) {
  if (v.is_string()) {
    return v.str;
  }
  StrBuilder b(heap);
  TRINE_TRY(append_str(heap, b, v));
  return b.finish();
}

namespace {

Status json_string(Heap& heap, StrBuilder& out, const Str& s, bool ensure_ascii) {
  TRINE_TRY(heap.text_work(s.text.size()));
  const bool user = s.any_user();
  out.add("\"", user);
  std::size_t plain = 0;  // start of the stretch not written yet
  for_each_char(s, [&](char32_t c, std::size_t start, std::size_t end, bool from_user) {
    const bool escape = c == '"' || c == '\\' || c < 0x20 || (ensure_ascii && c >= 0x7F);
    if (!escape) {
      return;
    }
    out.add(s, plain, start);
    plain = end;
    static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kTo = "\"\\nrtbf";
    if (const std::size_t k = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
        k != std::string_view::npos) {
      out.add(fmt::format("\\{}", kTo[k]), from_user);
    } else if (c < 0x10000) {
      out.add(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), from_user);
    } else {
      const unsigned v = static_cast<unsigned>(c) - 0x10000U;
      out.add(fmt::format("\\u{:04x}\\u{:04x}", 0xD800U + (v >> 10), 0xDC00U + (v & 0x3FFU)),
              from_user);
    }
  });
  out.add(s, plain, s.text.size());
  out.add("\"", user);
  return {};
}

std::string json_scalar(const Value& v) {
  switch (v.kind) {
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return v.b ? "true" : "false";
    case Kind::kInt:
      return std::to_string(v.i);
    default:
      return std::isnan(v.d)   ? "NaN"
             : std::isinf(v.d) ? (v.d < 0 ? "-Infinity" : "Infinity")
                               : float_repr(v.d);
  }
}

void json_newline(StrBuilder& out, const JsonStyle& style, int level, bool user) {
  if (style.indent != nullptr) {
    out.add("\n", user);
    for (int i = 0; i < level && !out.overflow(); ++i) {
      out.add(*style.indent);
    }
  }
}

void json_separator(StrBuilder& out, const Str* given, std::string_view otherwise, bool user) {
  if (given != nullptr) {
    out.add(*given);
  } else {
    out.add(otherwise, user);
  }
}

Status json_dict(Heap& heap, StrBuilder& out, const Dict& dict, const JsonStyle& style, int depth) {
  if (dict.items.empty()) {
    out.add("{}", dict.user);
    return {};
  }
  std::vector<Value> keys;
  keys.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    keys.push_back(key);
  }
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  if (style.sort_keys) {
    TRINE_TRY_ASSIGN(order, sort_order(heap, keys, false));
  }
  out.add("{", dict.user);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0) {
      json_separator(out, style.item_separator, style.indent != nullptr ? "," : ", ", dict.user);
    }
    json_newline(out, style, depth + 1, dict.user);
    const auto& [key, value] = dict.items[order[i]];
    if (key.is_string()) {
      TRINE_TRY(json_string(heap, out, *key.str, style.ensure_ascii));
    } else if (key.is_number() || key.is(Kind::kNone)) {
      out.add(fmt::format("\"{}\"", json_scalar(key)), key.user);
    } else {
      return type_error("JSON keys must be text, numbers or none, not {}", kind_name(key));
    }
    json_separator(out, style.key_separator, ": ", dict.user);
    TRINE_TRY(append_json(heap, out, value, style, depth + 1));
  }
  json_newline(out, style, depth, dict.user);
  out.add("}", dict.user);
  return {};
}

Status json_list(Heap& heap, StrBuilder& out, const List& list, const JsonStyle& style, int depth) {
  if (list.items.empty()) {
    out.add("[]", list.user);
    return {};
  }
  out.add("[", list.user);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) {
      json_separator(out, style.item_separator, style.indent != nullptr ? "," : ", ", list.user);
    }
    json_newline(out, style, depth + 1, list.user);
    TRINE_TRY(append_json(heap, out, list.items[i], style, depth + 1));
  }
  json_newline(out, style, depth, list.user);
  out.add("]", list.user);
  return {};
}

}  // namespace

Status append_json(Heap& heap, StrBuilder& out, const Value& v, const JsonStyle& style, int depth) {
  TRINE_TRY(heap.step());
  TRINE_TRY(check_depth(depth));
  TRINE_TRY(out.check());
  switch (v.kind) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      out.add(json_scalar(v), v.user);
      return {};
    case Kind::kString:
      return json_string(heap, out, *v.str, style.ensure_ascii);
    case Kind::kList:
    case Kind::kTuple:
      return json_list(heap, out, *v.list, style, depth);
    case Kind::kDict:
      return json_dict(heap, out, *v.dict, style, depth);
    case Kind::kUndefined: {
      auto error = undefined_error(v);
      return tl::unexpected<Error>(std::move(error.value()).with_context("tojson"));
    }
    default:
      return type_error("a {} cannot be written as JSON", kind_name(v));
  }
}

Result<Value> escape_html(Heap& heap, const Str& s) {
  TRINE_TRY(heap.text_work(s.text.size()));
  StrBuilder out(heap);
  out.set_markup(true);
  if (s.markup) {
    out.add(s);
    return out.value();
  }
  for_each_char(s, [&](char32_t c, std::size_t start, std::size_t end, bool user) {
    switch (c) {
      case '&':
        out.add("&amp;", user);
        break;
      case '<':
        out.add("&lt;", user);
        break;
      case '>':
        out.add("&gt;", user);
        break;
      case '"':
        out.add("&#34;", user);
        break;
      case '\'':
        out.add("&#39;", user);
        break;
      default:
        out.add(s, start, end);
    }
  });
  return out.value();
}

std::string_view strip_space(std::string_view text) {
  std::size_t start = text.size();
  std::size_t end = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    if (!is_space(next_code_point(text, pos))) {
      start = std::min(start, at);
      end = pos;
    }
  }
  return start < end ? text.substr(start, end - start) : std::string_view();
}

namespace {

// Drops single underscores between digits; false when one stands elsewhere.
bool drop_underscores(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alnum = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    };
    if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::optional<std::int64_t>> parse_int(std::string_view text, int base) {
  text = strip_space(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const int mark = text[1] | 0x20;
    const int prefixed = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  base = base == 0 ? 10 : base;
  std::string digits;
  if (text.empty() || base < 2 || base > 36 || !drop_underscores(text, digits) ||
      (digits[0] == '-' || digits[0] == '+')) {
    return std::optional<std::int64_t>();
  }
  std::uint64_t value = 0;
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (r.ptr != digits.data() + digits.size()) {
    return std::optional<std::int64_t>();
  }
  if (r.ec != std::errc() || value > static_cast<std::uint64_t>(INT64_MAX)) {
    return fail(ErrorCode::kExhausted, "integer {} does not fit 64 bits",
                std::string_view(digits).substr(0, 40));
  }
  const auto i = static_cast<std::int64_t>(value);
  return std::optional<std::int64_t>(negative ? -i : i);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_space(text);
  std::string clean;
  if (!drop_underscores(text, clean)) {
    return std::nullopt;
  }
  std::string_view body = clean;
  bool negative = false;
  if (!body.empty() && (body[0] == '-' || body[0] == '+')) {
    negative = body[0] == '-';
    body.remove_prefix(1);
  }
  if (body.empty() || body[0] == '-' || body[0] == '+') {
    return std::nullopt;
  }
  double value = 0;
  const auto r = std::from_chars(body.data(), body.data() + body.size(), value);
  if (r.ptr != body.data() + body.size() || r.ec == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (r.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(body).c_str(), nullptr);
  }
  return negative ? -value : value;
}

Result<std::int64_t> float_to_int(double d) {
  if (std::isnan(d) || std::isinf(d)) {
    return type_error("{} is no integer", float_repr(d));
  }
  if (std::abs(d) >= 9.2e18) {
    return fail(ErrorCode::kExhausted, "integer {} does not fit 64 bits", float_repr(d));
  }
  return static_cast<std::int64_t>(d);
}

}  // namespace trine::text::jinja
