// The two formatting languages of Python strings: "%s" % x and "{}".format(x).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "text/jinja/print.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 200;

struct Spec {
  std::string_view fill = " ";
  char align = '\0';
  char sign = '\0';
  bool alternate = false;
  bool grouping = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = '\0';
};

Result<std::int64_t> read_number(std::string_view text, std::size_t& i) {
  std::int64_t n = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    n = n * 10 + (text[i] - '0');
    if (n > kMaxWidth) {
      return fail(ErrorCode::kExhausted, "a format width beyond {} is not allowed", kMaxWidth);
    }
  }
  return n;
}

// Writes sign and digits into the field; zero fill goes between them.
void add_padded(StrBuilder& out, std::string_view sign, const Str& body, const Spec& spec,
                char default_align, bool user) {
  const auto size = static_cast<std::int64_t>(count_code_points(sign) + body.num_chars);
  const auto pad = static_cast<std::size_t>(std::max<std::int64_t>(0, spec.width - size));
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  out.repeat(spec.fill, left, false);
  out.add(sign, user);
  if (align == '=') {
    out.repeat(spec.fill, pad, false);
  }
  out.add(body);
  if (align == '<' || align == '^') {
    out.repeat(spec.fill, pad - left, false);
  }
}

std::string group_thousands(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && i < end && (end - i) % 3 == 0) {
      out += ',';
    }
    out += text[i];
  }
  return out;
}

std::string integer_digits(std::uint64_t value, char type, bool alternate) {
  switch (type) {
    case 'x':
      return fmt::format("{}{:x}", alternate ? "0x" : "", value);
    case 'X':
      return fmt::format("{}{:X}", alternate ? "0X" : "", value);
    case 'o':
      return fmt::format("{}{:o}", alternate ? "0o" : "", value);
    case 'b':
      return fmt::format("{}{:b}", alternate ? "0b" : "", value);
    default:
      return std::to_string(value);
  }
}

std::string float_digits(double magnitude, char type, int precision, bool alternate) {
  const bool upper = type == 'F' || type == 'E' || type == 'G';
  if (std::isnan(magnitude)) {
    return upper ? "NAN" : "nan";
  }
  if (std::isinf(magnitude)) {
    return upper ? "INF" : "inf";
  }
  std::array<char, 640> buffer{};
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  const int n = std::snprintf(buffer.data(), buffer.size(), format, precision, magnitude);
  return std::string(buffer.data(), static_cast<std::size_t>(n));
}

std::string_view sign_of(bool negative, char wanted) {
  return negative ? "-" : wanted == '+' ? "+" : wanted == ' ' ? " " : "";
}

Result<int> precision_of(const Spec& spec, int otherwise) {
  if (spec.precision > kMaxPrecision) {
    return fail(ErrorCode::kExhausted, "a format precision beyond {} is not allowed",
                kMaxPrecision);
  }
  return spec.precision < 0 ? otherwise : static_cast<int>(spec.precision);
}

Status add_float(Heap& heap, StrBuilder& out, double d, bool user, const Spec& spec, char type) {
  TRINE_TRY_ASSIGN(const int precision, precision_of(spec, 6));
  std::string digits = float_digits(std::abs(d), type, precision, spec.alternate);
  if (spec.grouping) {
    digits = group_thousands(digits);
  }
  TRINE_TRY_ASSIGN(Value body, heap.string(digits, user));
  add_padded(out, sign_of(std::signbit(d) && !std::isnan(d), spec.sign), *body.str, spec, '>',
             user);
  return {};
}

Status add_integer(Heap& heap, StrBuilder& out, std::int64_t i, bool user, const Spec& spec,
                   char type) {
  const std::uint64_t magnitude =
      i < 0 ? ~static_cast<std::uint64_t>(i) + 1 : static_cast<std::uint64_t>(i);
  std::string digits = integer_digits(magnitude, type, spec.alternate);
  if (spec.grouping) {
    digits = group_thousands(digits);
  }
  if (spec.precision > static_cast<std::int64_t>(digits.size())) {
    TRINE_TRY_ASSIGN(const int precision, precision_of(spec, 0));
    digits = std::string(static_cast<std::size_t>(precision) - digits.size(), '0').append(digits);
  }
  TRINE_TRY_ASSIGN(Value body, heap.string(digits, user));
  add_padded(out, sign_of(i < 0, spec.sign), *body.str, spec, '>', user);
  return {};
}

Status add_text(Heap& heap, StrBuilder& out, const Str& s, const Spec& spec, char default_align) {
  const Str* body = &s;
  if (spec.precision >= 0 && spec.precision < static_cast<std::int64_t>(s.num_chars)) {
    TRINE_TRY_ASSIGN(
        Value cut, substring(heap, s, 0, byte_offset(s, static_cast<std::size_t>(spec.precision))));
    body = cut.str;
  }
  add_padded(out, "", *body, spec, default_align, false);
  return {};
}

// One % directive at format[i], which is past the percent sign and key.
Result<Spec> percent_spec(std::string_view format, std::size_t& i,
                          const std::function<Result<Value>()>& next) {
  Spec spec;
  bool zero = false;
  for (; i < format.size(); ++i) {
    const char c = format[i];
    if (c == '-') {
      spec.align = '<';
    } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
      spec.sign = c;
    } else if (c == '#') {
      spec.alternate = true;
    } else if (c == '0') {
      zero = true;
    } else if (c != ' ') {
      break;
    }
  }
  const auto number = [&]() -> Result<std::int64_t> {
    if (i < format.size() && format[i] == '*') {
      ++i;
      TRINE_TRY_ASSIGN(const Value v, next());
      if (!v.is_integral() || std::abs(static_cast<double>(v.as_int())) > kMaxWidth) {
        return type_error("'*' in a format needs a small integer");
      }
      return v.as_int();
    }
    return read_number(format, i);
  };
  TRINE_TRY_ASSIGN(spec.width, number());
  if (spec.width < 0) {
    spec.align = '<';
    spec.width = -spec.width;
  }
  if (i < format.size() && format[i] == '.') {
    ++i;
    TRINE_TRY_ASSIGN(spec.precision, number());
    spec.precision = std::max<std::int64_t>(0, spec.precision);
  }
  while (i < format.size() && (format[i] == 'l' || format[i] == 'h' || format[i] == 'L')) {
    ++i;
  }
  if (i >= format.size()) {
    return type_error("the format '{}' is incomplete", format);
  }
  spec.type = format[i++];
  if (zero && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  return spec;
}

Status add_percent(Heap& heap, StrBuilder& out, const Value& v, Spec spec) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      spec.fill = " ";
      spec.align = spec.align == '<' ? '<' : '>';
      StrBuilder b(heap);
      TRINE_TRY(spec.type == 's' ? append_str(heap, b, v) : append_repr(heap, b, v));
      TRINE_TRY_ASSIGN(const Str* text, b.finish());
      return add_text(heap, out, *text, spec, '>');
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      if (v.is(Kind::kFloat) && decimal) {
        TRINE_TRY_ASSIGN(const std::int64_t i, float_to_int(v.d));
        return add_integer(heap, out, i, v.user, spec, 'd');
      }
      if (!v.is_integral()) {
        return type_error("%{} needs a number, not {}", spec.type, kind_name(v));
      }
      return add_integer(heap, out, v.as_int(), v.user, spec, decimal ? 'd' : spec.type);
    }
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      if (!v.is_number()) {
        return type_error("%{} needs a number, not {}", spec.type, kind_name(v));
      }
      return add_float(heap, out, v.as_double(), v.user, spec, spec.type);
    case 'c': {
      const Str* text = nullptr;
      if (v.is_string() && v.str->num_chars == 1) {
        text = v.str;
      } else if (v.is_integral() && v.as_int() >= 0 && v.as_int() < 0x110000 &&
                 (v.as_int() < 0xD800 || v.as_int() >= 0xE000)) {
        StrBuilder b(heap);
        b.add_code_point(static_cast<char32_t>(v.as_int()), v.user);
        TRINE_TRY_ASSIGN(text, b.finish());
      } else {
        return type_error("%c needs one character");
      }
      spec.fill = " ";
      spec.align = spec.align == '<' ? '<' : '>';
      return add_text(heap, out, *text, spec, '>');
    }
    default:
      return type_error("unknown format %{}", spec.type);
  }
}

}  // namespace

Result<Value> percent_format(Heap& heap, const Str& format, const Value& args) {
  const std::string_view text = format.text;
  StrBuilder out(heap);
  out.set_markup(format.markup);
  const bool tuple = args.is(Kind::kTuple);
  std::size_t used = 0;
  bool keyed = false;
  const auto next = [&]() -> Result<Value> {
    if (tuple ? used >= args.list->items.size() : used > 0) {
      return type_error("not enough arguments for the format");
    }
    ++used;
    return tuple ? args.list->items[used - 1] : args;
  };
  std::size_t plain = 0;
  while (true) {
    const std::size_t percent = text.find('%', plain);
    if (percent == std::string_view::npos) {
      break;
    }
    TRINE_TRY(heap.step());
    out.add(format, plain, percent);
    std::size_t i = percent + 1;
    Value value;
    bool has_value = false;
    if (i < text.size() && text[i] == '(') {
      int depth = 1;
      const std::size_t start = ++i;
      for (; i < text.size() && depth > 0; ++i) {
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      }
      if (depth > 0 || !args.is(Kind::kDict)) {
        return type_error("the format needs a mapping");
      }
      const Value* found = args.dict->find(text.substr(start, i - 1 - start));
      if (found == nullptr) {
        return type_error("the format names the unknown key '{}'",
                          text.substr(start, i - 1 - start));
      }
      value = *found;
      has_value = true;
      keyed = true;
    }
    TRINE_TRY_ASSIGN(const Spec spec, percent_spec(text, i, next));
    plain = i;
    if (spec.type == '%') {
      out.add(format, i - 1, i);
      continue;
    }
    if (!has_value) {
      TRINE_TRY_ASSIGN(value, next());
    }
    TRINE_TRY(add_percent(heap, out, value, spec));
    TRINE_TRY(out.check());
  }
  out.add(format, plain, text.size());
  const bool all_used = tuple ? used == args.list->items.size() : used == 1;
  // Python lets mappings, and anything else with string-like subscripts, go unused.
  const bool may_stay = keyed || args.is(Kind::kDict) || args.is(Kind::kList) ||
                        args.is(Kind::kNamespace) || args.is(Kind::kRange) || args.is_undefined();
  if (!all_used && !may_stay) {
    return type_error("not all arguments of the format are used");
  }
  return out.value();
}

namespace {

Result<Spec> brace_spec(std::string_view text) {
  Spec spec;
  std::size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  std::size_t first = 0;
  if (!text.empty()) {
    next_code_point(text, first);
  }
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    i = 1;
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' ')) {
    spec.sign = text[i++];
  }
  if (i < text.size() && text[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < text.size() && text[i] == '0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
    ++i;
  }
  TRINE_TRY_ASSIGN(spec.width, read_number(text, i));
  if (i < text.size() && text[i] == ',') {
    spec.grouping = true;
    ++i;
  }
  if (i < text.size() && text[i] == '.') {
    const std::size_t start = ++i;
    TRINE_TRY_ASSIGN(spec.precision, read_number(text, i));
    if (i == start) {
      return type_error("the format '{}' has a point without digits", text);
    }
  }
  if (i < text.size()) {
    spec.type = text[i++];
  }
  if (i != text.size()) {
    return type_error("invalid format '{}'", text);
  }
  return spec;
}

}  // namespace

Status append_formatted(Heap& heap, StrBuilder& out, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) {
    return append_str(heap, out, v);
  }
  TRINE_TRY_ASSIGN(Spec spec, brace_spec(spec_text));
  const bool text_type = spec.type == 's' || spec.type == '\0';
  if (v.is_string() && text_type) {
    if (spec.align == '=' && spec.fill == "0") {
      spec.align = '<';  // "010" pads text on the right
    }
    if (spec.align == '=' || spec.sign != '\0' || spec.grouping || spec.alternate) {
      return type_error("invalid format '{}' for text", spec_text);
    }
    return add_text(heap, out, *v.str, spec, '<');
  }
  if (!v.is_number() || spec.type == 's' || spec.type == 'c' || spec.type == 'n') {
    return type_error("format '{}' does not apply to {}", spec_text, kind_name(v));
  }
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  static constexpr std::string_view kIntTypes = "dxXob";
  if (kFloatTypes.find(spec.type) != std::string_view::npos && spec.type != '\0') {
    const bool percent = spec.type == '%';
    if (percent) {
      return type_error("the format type '%' is not supported");
    }
    return add_float(heap, out, v.as_double(), v.user, spec, spec.type);
  }
  if (v.is(Kind::kFloat)) {
    if (spec.type != '\0' || spec.precision >= 0) {
      return type_error("invalid format '{}' for a float", spec_text);
    }
    std::string digits = float_repr(std::abs(v.d));
    TRINE_TRY_ASSIGN(Value body, heap.string(digits, v.user));
    add_padded(out, sign_of(std::signbit(v.d), spec.sign), *body.str, spec, '>', v.user);
    return {};
  }
  if ((spec.type != '\0' && kIntTypes.find(spec.type) == std::string_view::npos) ||
      spec.precision >= 0) {
    return type_error("invalid format '{}' for an integer", spec_text);
  }
  return add_integer(heap, out, v.as_int(), v.user, spec, spec.type == '\0' ? 'd' : spec.type);
}

}  // namespace trine::text::jinja
