#include "grammar/json_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace trine::grammar {
namespace {

constexpr char32_t kFirstPlain = 0x20;
// Digits of a number that no maximum bounds: what a double can tell apart, so nothing runs on
// without end.
constexpr std::uint32_t kMaxDigits = 16;

std::string escape_of(char32_t c) {
  switch (c) {
    case U'"':
      return "\\\"";
    case U'\\':
      return "\\\\";
    case U'\b':
      return "\\b";
    case U'\f':
      return "\\f";
    case U'\n':
      return "\\n";
    case U'\r':
      return "\\r";
    case U'\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

bool escaped(char32_t c) {
  return c < kFirstPlain || c == U'"' || c == U'\\';
}

NodeId digits(Ir& ir, std::uint32_t count) {
  return ir.repeat(ir.byte_range('0', '9'), count, count);
}

// Numbers of `low.size()` digits between two of the same length, as text.
NodeId same_length(Ir& ir, std::string_view low, std::string_view high) {
  if (low.empty()) {
    return ir.empty();
  }
  const auto byte = [](char c) { return static_cast<std::uint8_t>(c); };
  const auto rest = static_cast<std::uint32_t>(low.size() - 1);
  const std::string nines(rest, '9');
  const std::string zeros(rest, '0');
  if (low[0] == high[0]) {
    return ir.seq({ir.byte_range(byte(low[0]), byte(low[0])),
                   same_length(ir, low.substr(1), high.substr(1))});
  }
  std::vector<NodeId> ways;
  char first = low[0];
  char last = high[0];
  if (low.substr(1) != zeros) {
    ways.push_back(
        ir.seq({ir.byte_range(byte(first), byte(first)), same_length(ir, low.substr(1), nines)}));
    ++first;
  }
  if (high.substr(1) != nines) {
    ways.push_back(
        ir.seq({ir.byte_range(byte(last), byte(last)), same_length(ir, zeros, high.substr(1))}));
    --last;
  }
  if (first <= last) {
    ways.push_back(ir.seq({ir.byte_range(byte(first), byte(last)), digits(ir, rest)}));
  }
  return ir.alt(ways);
}

NodeId natural_between(Ir& ir, std::uint64_t low, std::uint64_t high) {
  std::vector<NodeId> ways;
  const std::string last = std::to_string(high);
  std::string from = std::to_string(low);
  while (from.size() < last.size()) {
    ways.push_back(same_length(ir, from, std::string(from.size(), '9')));
    from.assign(from.size() + 1, '0');
    from[0] = '1';
  }
  ways.push_back(same_length(ir, from, last));
  return ir.alt(ways);
}

}  // namespace

NodeId json_chars(Ir& ir, const std::vector<CodeRange>& ranges) {
  std::vector<NodeId> ways;
  std::vector<CodeRange> plain;
  for (const CodeRange& r : ranges) {
    char32_t from = r.low;
    for (char32_t c = r.low; c <= std::min(r.high, char32_t{U'\\'}); ++c) {
      if (escaped(c)) {
        ways.push_back(ir.literal(escape_of(c)));
        if (c > from) {
          plain.push_back({from, c - 1});
        }
        from = c + 1;
      }
    }
    if (from <= r.high) {
      plain.push_back({from, r.high});
    }
  }
  if (!plain.empty()) {
    ways.push_back(ir.code_points(plain));
  }
  return ir.alt(ways);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (escaped(byte)) {
      out += escape_of(byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

NodeId integer_between(Ir& ir, std::int64_t low, std::int64_t high) {
  std::vector<NodeId> ways;
  const auto magnitude = [](std::int64_t v) {
    return std::uint64_t{0} - static_cast<std::uint64_t>(v);
  };
  if (low > high) {
    return ir.nothing();
  }
  if (low < 0) {
    const std::uint64_t nearest = high < 0 ? magnitude(high) : 1;
    ways.push_back(ir.seq({ir.literal("-"), natural_between(ir, nearest, magnitude(low))}));
  }
  if (high >= 0) {
    ways.push_back(natural_between(ir, static_cast<std::uint64_t>(std::max<std::int64_t>(low, 0)),
                                   static_cast<std::uint64_t>(high)));
  }
  return ir.alt(ways);
}

NodeId JsonRules::separator(char separator) {
  RuleId& rule = separator == ',' ? comma_ : colon_;
  if (rule == kUnmade) {
    rule = ir_.add_rule(separator == ',' ? "comma" : "colon");
    ir_.define(rule, ir_.seq({ir_.literal(std::string_view(&separator, 1)),
                              ir_.optional(ir_.literal(" "))}));
  }
  return ir_.ref(rule);
}

RuleId JsonRules::any_char() {
  if (char_ == kUnmade) {
    char_ = ir_.add_rule("character");
    const NodeId hex =
        ir_.alt({ir_.byte_range('0', '9'), ir_.byte_range('a', 'f'), ir_.byte_range('A', 'F')});
    const NodeId d = ir_.alt({ir_.literal("d"), ir_.literal("D")});
    const NodeId not_d =
        ir_.alt({ir_.byte_range('0', '9'), ir_.byte_range('a', 'c'), ir_.byte_range('A', 'C'),
                 ir_.byte_range('e', 'f'), ir_.byte_range('E', 'F')});
    const NodeId high_digit =
        ir_.alt({ir_.byte_range('8', '9'), ir_.byte_range('a', 'b'), ir_.byte_range('A', 'B')});
    const NodeId low_digit = ir_.alt({ir_.byte_range('c', 'f'), ir_.byte_range('C', 'F')});
    // Not a surrogate: the first digit is not d, or the second is below 8.
    const NodeId single = ir_.alt(
        {ir_.seq({not_d, hex, hex, hex}), ir_.seq({d, ir_.byte_range('0', '7'), hex, hex})});
    const NodeId pair =
        ir_.seq({d, high_digit, hex, hex, ir_.literal("\\u"), d, low_digit, hex, hex});
    std::vector<NodeId> simple;
    for (const std::string_view c : {"\"", "\\", "/", "b", "f", "n", "r", "t"}) {
      simple.push_back(ir_.literal(c));
    }
    simple.push_back(ir_.seq({ir_.literal("u"), ir_.alt({single, pair})}));
    const std::vector<CodeRange> plain = complement({{0, 0x1f}, {U'"', U'"'}, {U'\\', U'\\'}});
    ir_.define(char_,
               ir_.alt({ir_.code_points(plain), ir_.seq({ir_.literal("\\"), ir_.alt(simple)})}));
  }
  return char_;
}

RuleId JsonRules::string() {
  if (string_ == kUnmade) {
    string_ = ir_.add_rule("string");
    ir_.define(string_, ir_.seq({ir_.literal("\""), ir_.repeat(ir_.ref(any_char()), 0, kUnbounded),
                                 ir_.literal("\"")}));
  }
  return string_;
}

NodeId JsonRules::number() {
  const NodeId digit = ir_.byte_range('0', '9');
  const NodeId whole =
      ir_.alt({ir_.literal("0"),
               ir_.seq({ir_.byte_range('1', '9'), ir_.repeat(digit, 0, kMaxDigits - 1)})});
  const NodeId fraction = ir_.seq({ir_.literal("."), ir_.repeat(digit, 1, kMaxDigits)});
  const NodeId sign = ir_.alt({ir_.literal("+"), ir_.literal("-")});
  const NodeId exponent = ir_.seq(
      {ir_.alt({ir_.literal("e"), ir_.literal("E")}), ir_.optional(sign), ir_.repeat(digit, 1, 2)});
  return ir_.seq(
      {ir_.optional(ir_.literal("-")), whole, ir_.optional(fraction), ir_.optional(exponent)});
}

RuleId JsonRules::array() {
  if (array_ == kUnmade) {
    array_ = ir_.add_rule("array");
    const NodeId item = ir_.ref(value());
    const NodeId more = ir_.repeat(ir_.seq({separator(','), item}), 0, kUnbounded);
    ir_.define(array_,
               ir_.seq({ir_.literal("["), ir_.optional(ir_.seq({item, more})), ir_.literal("]")}));
  }
  return array_;
}

RuleId JsonRules::object() {
  if (object_ == kUnmade) {
    object_ = ir_.add_rule("object");
    const NodeId member = ir_.seq({ir_.ref(string()), separator(':'), ir_.ref(value())});
    const NodeId more = ir_.repeat(ir_.seq({separator(','), member}), 0, kUnbounded);
    ir_.define(object_, ir_.seq({ir_.literal("{"), ir_.optional(ir_.seq({member, more})),
                                 ir_.literal("}")}));
  }
  return object_;
}

RuleId JsonRules::value() {
  if (value_ == kUnmade) {
    value_ = ir_.add_rule("value");
    ir_.define(value_, ir_.alt({ir_.ref(object()), ir_.ref(array()), ir_.ref(string()), number(),
                                ir_.literal("true"), ir_.literal("false"), ir_.literal("null")}));
  }
  return value_;
}

}  // namespace trine::grammar
