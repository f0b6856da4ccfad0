// Values of options and their text form. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "options/option.h"

namespace trine::options {

// monostate: unset. kInteger and kSize hold int64, kUnsigned uint64, kText and kChoice string.
using Value = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
                           std::vector<std::string>>;

// Reads one value in the syntax of flags and environment and checks type, range and choices.
// `where` names the place in messages: "--top-p", "TRINE_TOP_P", "config.toml:3: sampling.top_p". A
// kList gives one element here. Errors: invalid_argument with the place, the value and what would
// be accepted.
Result<Value> parse_value(const Option& option, std::string_view text, std::string_view where);

// The checks of parse_value on a value that came typed (from a file).
Status check_range(const Option& option, const Value& value, std::string_view where);

// For people and for the environment: "0.7", "true", "32768", "a,b". Unset gives "".
std::string value_text(const Value& value);

// 32k = 32000, 32K = 32KiB = 32768, 4m, 4M, 1g, 1G; no fractions, no sign. Errors:
// invalid_argument.
Result<std::int64_t> parse_size(std::string_view text);

}  // namespace trine::options
