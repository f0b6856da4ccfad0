// What every fuzzer asks of the code under test.
#pragma once

#include <string_view>

#include "base/error.h"
#include "base/printable.h"

namespace trine {

inline void require(bool condition) {
  if (!condition) {
    __builtin_trap();
  }
}

// An error says something, and nothing in it can drive a terminal.
inline void require_printable(const Error& error) {
  require(!error.message.empty() &&
          printable(error.message, std::string_view::npos) == error.message);
}

}  // namespace trine
