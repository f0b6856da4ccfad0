// Text from outside, made safe for a terminal and a log line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trine {

// Control bytes and invalid UTF-8 in `text` become \xNN, and anything past `max_bytes` is cut with
// "...". Thread rule: pure.
std::string printable(std::string_view text, std::size_t max_bytes = 100);

}  // namespace trine
