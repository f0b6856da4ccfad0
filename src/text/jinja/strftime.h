// strftime in the C locale, for templates that print the date. Errors: unsupported, naming the
// directive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::text::jinja {

// `unix_s` is read as UTC.
Result<std::string> format_time(std::string_view format, std::int64_t unix_s);

}  // namespace trine::text::jinja
