// Filters that give text or numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

template <Case how>
Result<Value> filter_case(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("case filter", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  return change_case(heap, *s, how);
}

// Jinja's own rule: a word starts after whitespace, brackets, '-' or '<'.
Result<Value> filter_title(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("title", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  StrBuilder out(heap);
  const std::string_view text = s->text;
  const auto separates = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    const char32_t first = next_code_point(text, pos);
    const std::size_t second = pos;
    std::size_t end = pos;
    while (pos < text.size()) {
      if (separates(next_code_point(text, pos)) != separates(first)) {
        break;
      }
      end = pos;
    }
    pos = end;
    TRINE_TRY(append_case(heap, out, *s, start, second, Case::kUpper));
    TRINE_TRY(append_case(heap, out, *s, second, end, Case::kLower));
  }
  return out.value();
}

Result<Value> filter_trim(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("trim", args, {"chars"}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  TRINE_TRY_ASSIGN(const Str* chars, str_arg(a[0], "the argument of trim"));
  return strip_text(heap, *s, chars, true, true);
}

Result<Value> filter_replace(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("replace", args, {"old", "new", "count"}, 2));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  TRINE_TRY_ASSIGN(const Str* old, to_str(heap, *a[0]));
  TRINE_TRY_ASSIGN(const Str* with, to_str(heap, *a[1]));
  const bool all = a[2] == nullptr || a[2]->is(Kind::kNone);
  TRINE_TRY_ASSIGN(const std::int64_t count, all ? Result<std::int64_t>(-1) : int_arg(a[2], -1));
  TRINE_TRY_ASSIGN(Value v, replace_text(heap, *s, *old, *with, count));
  return s->markup ? filter_plain(heap, v) : Result<Value>(v);
}

Result<Value> filter_string(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("string", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  return Value::of(s);
}

Result<Value> filter_safe(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("safe", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  StrBuilder out(heap);
  out.add(*s);
  out.set_markup(true);
  return out.value();
}

Result<Value> filter_escape(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("escape", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  return escape_html(heap, *s);
}

Result<Value> filter_forceescape(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("forceescape", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  TRINE_TRY_ASSIGN(const Value plain, filter_plain(heap, Value::of(s)));
  return escape_html(heap, *plain.str);
}

Result<Value> filter_center(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("center", args, {"width"}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  TRINE_TRY_ASSIGN(const std::int64_t width, int_arg(a[0], 80));
  return pad_text(heap, *s, width, nullptr, '^');
}

Result<Value> filter_indent(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("indent", args, {"width", "first", "blank"}, 0));
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (!input.is_string()) {
    return type_error("indent needs text, not {}", kind_name(input));
  }
  Value margin;
  if (a[0] != nullptr && a[0]->is_string()) {
    margin = *a[0];
  } else {
    TRINE_TRY_ASSIGN(const std::int64_t width, int_arg(a[0], 4));
    StrBuilder b(heap);
    b.repeat(" ", width > 0 ? static_cast<std::size_t>(width) : 0, false);
    TRINE_TRY_ASSIGN(margin, b.value());
  }
  const bool first = a[1] != nullptr && truthy(*a[1]);
  const bool blank = a[2] != nullptr && truthy(*a[2]);
  TRINE_TRY_ASSIGN(const Value newline, heap.string("\n"));
  TRINE_TRY_ASSIGN(const Value text, binary_op(heap, Op::kAdd, input, newline));
  TRINE_TRY_ASSIGN(const auto lines, split_lines(heap, *text.str, false));
  StrBuilder out(heap);
  out.set_markup(input.str->markup);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.add("\n", false);
    }
    if (i == 0 ? first : blank || !lines[i].str->text.empty()) {
      out.add(*margin.str);
    }
    out.add(*lines[i].str);
    TRINE_TRY(heap.text_work(margin.str->text.size()));
    TRINE_TRY(out.check());
  }
  return out.value();
}

Result<Value> filter_truncate(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a,
                   bind("truncate", args, {"length", "killwords", "end", "leeway"}, 0));
  TRINE_TRY_ASSIGN(const std::int64_t size, int_arg(a[0], 255));
  const bool default_leeway = a[3] == nullptr || a[3]->is(Kind::kNone);
  TRINE_TRY_ASSIGN(const std::int64_t leeway,
                   default_leeway ? Result<std::int64_t>(5) : int_arg(a[3], 5));
  TRINE_TRY_ASSIGN(Value end, a[2] != nullptr ? Result<Value>(*a[2]) : heap.string("..."));
  if (!end.is_string()) {
    return type_error("the end of truncate must be text");
  }
  const auto end_size = static_cast<std::int64_t>(end.str->num_chars);
  if (size < end_size || leeway < 0) {
    return type_error("truncate needs a length of at least {} and a leeway of at least 0",
                      end_size);
  }
  TRINE_TRY_ASSIGN(const std::int64_t chars, length(input));
  if (chars <= size || chars - size <= leeway) {
    return input;
  }
  if (!input.is_string()) {
    return type_error("truncate needs text, not {}", kind_name(input));
  }
  const Str& s = *input.str;
  std::size_t cut = byte_offset(s, static_cast<std::size_t>(size - end_size));
  if (a[1] == nullptr || !truthy(*a[1])) {
    const std::size_t space = std::string_view(s.text).substr(0, cut).rfind(' ');
    cut = space == std::string_view::npos ? cut : space;
  }
  StrBuilder out(heap);
  out.add(s, 0, cut);
  out.add(*end.str);
  return out.value();
}

Result<Value> filter_wordcount(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("wordcount", args, {}, 0));
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  TRINE_TRY(heap.text_work(s->text.size() * 8));
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t pos = 0; pos < s->text.size();) {
    const char32_t c = next_code_point(s->text, pos);
    const bool word = c == '_' || is_alnum(c);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::of_int(words);
}

Result<Value> filter_format(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, input));
  if (!args.named.empty()) {
    if (!args.pos.empty()) {
      return type_error("format takes positions or names, not both");
    }
    Dict* d = heap.make<Dict>();
    for (const auto& [name, value] : args.named) {
      TRINE_TRY_ASSIGN(Value key, heap.string(name));
      TRINE_TRY(dict_set(heap, *d, key, value));
    }
    return percent_format(heap, *s, Value::of(d));
  }
  TRINE_TRY_ASSIGN(const Value tuple, heap.list(args.pos, false, true));
  return percent_format(heap, *s, tuple);
}

Result<Value> filter_join(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("join", args, {"d", "attribute"}, 0));
  const Str* separator = nullptr;
  if (a[0] != nullptr) {
    TRINE_TRY_ASSIGN(separator, to_str(heap, *a[0]));
  }
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  StrBuilder out(heap);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && separator != nullptr) {
      TRINE_TRY(heap.text_work(separator->text.size()));
      out.add(*separator);
    }
    Value item = items[i];
    if (a[1] != nullptr) {
      TRINE_TRY_ASSIGN(item, get_path(heap, item, *a[1]));
    }
    TRINE_TRY(append_str(heap, out, item));
    TRINE_TRY(out.check());
  }
  return out.value();
}

Result<Value> filter_tojson(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a,
                   bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = a[0] != nullptr && truthy(*a[0]);
  style.sort_keys = a[3] != nullptr && truthy(*a[3]);
  if (a[1] != nullptr && !a[1]->is(Kind::kNone)) {
    if (a[1]->is_string()) {
      style.indent = a[1]->str;
    } else {
      TRINE_TRY_ASSIGN(const std::int64_t width, int_arg(a[1], 0));
      StrBuilder b(heap);
      b.repeat(" ", width > 0 ? static_cast<std::size_t>(width) : 0, false);
      TRINE_TRY_ASSIGN(style.indent, b.finish());
    }
  }
  if (a[2] != nullptr && !a[2]->is(Kind::kNone)) {
    TRINE_TRY_ASSIGN(const auto pair, iterate(heap, *a[2]));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return type_error("the separators of tojson are two texts");
    }
    style.item_separator = pair[0].str;
    style.key_separator = pair[1].str;
  }
  StrBuilder out(heap);
  TRINE_TRY(append_json(heap, out, input, style));
  return out.value();
}

Status add_url_quoted(Heap& heap, StrBuilder& out, const Value& v, bool query) {
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, v));
  TRINE_TRY(heap.text_work(s->text.size() * 4));
  for (std::size_t i = 0; i < s->text.size(); ++i) {
    const char c = s->text[i];
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view(query ? "_.-~" : "_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out.add(*s, i, i + 1);
    } else if (c == ' ' && query) {
      out.add("+", s->user_at(i));
    } else {
      out.add(fmt::format("%{:02X}", static_cast<unsigned char>(c)), s->user_at(i));
    }
  }
  return out.check();
}

Result<Value> filter_urlencode(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("urlencode", args, {}, 0));
  StrBuilder out(heap);
  if (input.is_string() || !is_iterable(input)) {
    TRINE_TRY(add_url_quoted(heap, out, input, false));
    return out.value();
  }
  Value pairs = input;
  if (input.is(Kind::kDict)) {
    CallArgs none;
    TRINE_TRY_ASSIGN(pairs, find_method(input, "items")(heap, input, none));
  }
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, pairs));
  for (std::size_t i = 0; i < items.size(); ++i) {
    TRINE_TRY_ASSIGN(const auto pair, iterate(heap, items[i]));
    if (pair.size() != 2) {
      return type_error("urlencode needs text, a mapping or pairs");
    }
    out.add(i > 0 ? "&" : "", false);
    TRINE_TRY(add_url_quoted(heap, out, pair[0], true));
    out.add("=", false);
    TRINE_TRY(add_url_quoted(heap, out, pair[1], true));
  }
  return out.value();
}

bool from_user(const Value& v) {
  return v.is_string() ? v.str->any_user() : v.user;
}

Result<Value> filter_int(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("int", args, {"default", "base"}, 0));
  TRINE_TRY_ASSIGN(const std::int64_t base, int_arg(a[1], 10));
  const Value otherwise = a[0] != nullptr ? *a[0] : Value::of_int(0);
  const bool user = from_user(input);
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (input.is_integral()) {
    return Value::of_int(input.as_int(), user);
  }
  double number = 0;
  if (input.is(Kind::kFloat)) {
    if (std::isinf(input.d)) {
      return type_error("infinity is no integer");
    }
    number = input.d;
  } else if (input.is_string()) {
    TRINE_TRY(heap.text_work(input.str->text.size()));
    TRINE_TRY_ASSIGN(
        const auto i,
        parse_int(input.str->text, static_cast<int>(std::clamp<std::int64_t>(base, -1, 99))));
    if (i.has_value()) {
      return Value::of_int(*i, user);
    }
    const auto d = parse_float(input.str->text);
    if (!d.has_value()) {
      return otherwise;
    }
    number = *d;
  } else {
    return otherwise;
  }
  if (!std::isfinite(number)) {
    return otherwise;
  }
  TRINE_TRY_ASSIGN(const std::int64_t i, float_to_int(number));
  return Value::of_int(i, user);
}

Result<Value> filter_float(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("float", args, {"default"}, 0));
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (input.is_number()) {
    return Value::of_float(input.as_double(), input.user);
  }
  if (input.is_string()) {
    TRINE_TRY(heap.text_work(input.str->text.size()));
    if (const auto d = parse_float(input.str->text); d.has_value()) {
      return Value::of_float(*d, from_user(input));
    }
  }
  return a[0] != nullptr ? *a[0] : Value::of_float(0.0);
}

// round() of Python: half to even on the exact value.
Result<Value> round_common(const Value& v, std::int64_t precision) {
  if (v.is_integral()) {
    if (precision >= 0) {
      return Value::of_int(v.as_int(), v.user);
    }
    if (precision < -18) {
      return Value::of_int(0, v.user);
    }
    std::int64_t unit = 1;
    for (std::int64_t i = 0; i < -precision; ++i) {
      unit *= 10;
    }
    const std::int64_t quotient = v.as_int() / unit;
    const std::int64_t rest = std::abs(v.as_int() % unit);
    const bool up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0);
    std::int64_t result = 0;
    if (__builtin_mul_overflow(quotient + (up ? (v.as_int() < 0 ? -1 : 1) : 0), unit, &result)) {
      return fail(ErrorCode::kExhausted, "an integer result does not fit 64 bits");
    }
    return Value::of_int(result, v.user);
  }
  if (!std::isfinite(v.d) || precision > 300) {
    return Value::of_float(v.d, v.user);
  }
  if (precision < 0) {
    const double unit =
        std::pow(10.0, static_cast<double>(std::min<std::int64_t>(-precision, 400)));
    return Value::of_float(std::isinf(unit) ? 0.0 : std::nearbyint(v.d / unit) * unit, v.user);
  }
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), v.d);
  return Value::of_float(std::strtod(buffer, nullptr), v.user);
}

Result<Value> filter_round(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("round", args, {"precision", "method"}, 0));
  TRINE_TRY_ASSIGN(const std::int64_t precision, int_arg(a[0], 0));
  TRINE_TRY_ASSIGN(const Str* name, str_arg(a[1], "the method of round"));
  const std::string_view method = name != nullptr ? std::string_view(name->text) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    return type_error("the method of round is common, ceil or floor");
  }
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (!input.is_number()) {
    return type_error("round needs a number, not {}", kind_name(input));
  }
  if (method == "common") {
    return round_common(input, precision);
  }
  TRINE_TRY_ASSIGN(const Value unit,
                   binary_op(heap, Op::kPow, Value::of_int(10), Value::of_int(precision)));
  TRINE_TRY_ASSIGN(const Value scaled, binary_op(heap, Op::kMul, input, unit));
  const double whole =
      method == "ceil" ? std::ceil(scaled.as_double()) : std::floor(scaled.as_double());
  TRINE_TRY_ASSIGN(const std::int64_t i, float_to_int(whole));
  return binary_op(heap, Op::kDiv, Value::of_int(i, input.user), unit);
}

Result<Value> filter_abs(Heap&, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("abs", args, {}, 0));
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (input.is(Kind::kFloat)) {
    return Value::of_float(std::abs(input.d), input.user);
  }
  if (!input.is_integral()) {
    return type_error("abs needs a number, not {}", kind_name(input));
  }
  return input.as_int() < 0 ? unary_op(Op::kNeg, input)
                            : Result<Value>(Value::of_int(input.as_int(), input.user));
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", filter_case<Case::kUpper>},
    {"lower", filter_case<Case::kLower>},
    {"capitalize", filter_case<Case::kCapitalize>},
    {"title", filter_title},
    {"trim", filter_trim},
    {"replace", filter_replace},
    {"string", filter_string},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"center", filter_center},
    {"indent", filter_indent},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"format", filter_format},
    {"join", filter_join},
    {"tojson", filter_tojson},
    {"urlencode", filter_urlencode},
    {"int", filter_int},
    {"float", filter_float},
    {"round", filter_round},
    {"abs", filter_abs},
};

}  // namespace

Result<Value> filter_plain(Heap& heap, const Value& v) {
  if (!v.str->markup) {
    return v;
  }
  StrBuilder out(heap);
  out.add(*v.str);
  return out.value();
}

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace trine::text::jinja
