#include "options/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace trine::options {

namespace {

// The whole text as a number of type T; false for anything else, including leading blanks and '+'.
template <typename T>
bool read_all(std::string_view text, T& out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && stop == end && !text.empty();
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  if (text.size() <= kShown) {
    return fmt::format("'{}'", text);
  }
  return fmt::format("'{}...' ({} bytes)", text.substr(0, kShown), text.size());
}

std::string expected(const Option& option) {
  std::string what;
  switch (option.type) {
    case Type::kBool:
      return "true or false";
    case Type::kInteger:
      what = "a whole number";
      break;
    case Type::kUnsigned:
      return "a whole number from 0 to 18446744073709551615";
    case Type::kSize:
      what = "a whole number, with k, m, g (powers of 1000) or K, M, G (powers of 1024) if wanted";
      break;
    case Type::kNumber:
      what = "a number";
      break;
    case Type::kText:
    case Type::kList:
      return "text";
    case Type::kChoice:
      return fmt::format("one of {}", option.choices);
  }
  const std::string range = range_text(option);
  return range.empty() ? what : fmt::format("{}, {}", what, range);
}

tl::unexpected<Error> refuse(const Option& option, std::string_view text, std::string_view where) {
  return fail(ErrorCode::kInvalidArgument, "{}: cannot use {}, expected {}", where, quoted(text),
              expected(option));
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) {
      return true;
    }
    if (bar == std::string_view::npos) {
      return false;
    }
    choices.remove_prefix(bar + 1);
  }
}

}  // namespace

Result<std::int64_t> parse_size(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::uint64_t count = 0;
  if (!read_all(text.substr(0, digits), count)) {
    return fail(ErrorCode::kInvalidArgument, "{} is not a size", quoted(text));
  }
  const std::string_view suffix = text.substr(digits);
  std::uint64_t unit = 0;
  if (suffix.empty()) {
    unit = 1;
  } else if (suffix == "k") {
    unit = 1000;
  } else if (suffix == "m") {
    unit = 1000000;
  } else if (suffix == "g") {
    unit = 1000000000;
  } else if (suffix == "K" || suffix == "KiB") {
    unit = std::uint64_t{1} << 10;
  } else if (suffix == "M" || suffix == "MiB") {
    unit = std::uint64_t{1} << 20;
  } else if (suffix == "G" || suffix == "GiB") {
    unit = std::uint64_t{1} << 30;
  } else {
    return fail(ErrorCode::kInvalidArgument, "{} is not a size", quoted(text));
  }
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (count > kMax / unit) {
    return fail(ErrorCode::kInvalidArgument, "{} is too large", quoted(text));
  }
  return static_cast<std::int64_t>(count * unit);
}

Status check_range(const Option& option, const Value& value, std::string_view where) {
  double number = 0;
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    number = static_cast<double>(*i);
  } else if (const auto* d = std::get_if<double>(&value)) {
    number = *d;
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    if (option.type == Type::kChoice && !is_choice(option.choices, *s)) {
      return refuse(option, *s, where);
    }
    return {};
  } else {
    return {};
  }
  const bool low = option.min_exclusive ? number <= option.min : number < option.min;
  // The negated form also refuses NaN.
  if (!std::isfinite(number) || low || number > option.max) {
    return refuse(option, value_text(value), where);
  }
  return {};
}

Result<Value> parse_value(const Option& option, std::string_view text, std::string_view where) {
  Value value;
  switch (option.type) {
    case Type::kBool:
      if (text == "true" || text == "1" || text == "yes" || text == "on") {
        value = true;
      } else if (text == "false" || text == "0" || text == "no" || text == "off") {
        value = false;
      } else {
        return refuse(option, text, where);
      }
      break;
    case Type::kInteger: {
      std::int64_t number = 0;
      if (!read_all(text, number)) {
        return refuse(option, text, where);
      }
      value = number;
      break;
    }
    case Type::kUnsigned: {
      std::uint64_t number = 0;
      if (!read_all(text, number)) {
        return refuse(option, text, where);
      }
      value = number;
      break;
    }
    case Type::kSize: {
      const auto number = parse_size(text);
      if (!number.has_value()) {
        return refuse(option, text, where);
      }
      value = *number;
      break;
    }
    case Type::kNumber: {
      double number = 0;
      if (!read_all(text, number)) {
        return refuse(option, text, where);
      }
      value = number;
      break;
    }
    case Type::kText:
    case Type::kChoice:
      value = std::string(text);
      break;
    case Type::kList:
      value = std::vector<std::string>{std::string(text)};
      break;
  }
  TRINE_TRY(check_range(option, value, where));
  return value;
}

std::string value_text(const Value& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return ""; }

    std::string operator()(bool b) const { return std::string(b ? "true" : "false"); }

    std::string operator()(std::int64_t i) const { return std::to_string(i); }

    std::string operator()(std::uint64_t u) const { return std::to_string(u); }

    std::string operator()(double d) const { return fmt::format("{}", d); }

    std::string operator()(const std::string& s) const { return s; }

    std::string operator()(const std::vector<std::string>& list) const {
      std::string out;
      for (const std::string& element : list) {
        out += out.empty() ? element : ',' + element;
      }
      return out;
    }
  };

  return std::visit(Visitor{}, value);
}

}  // namespace trine::options
