// Any bytes either parse or give an error; never a crash, hang or unbounded memory.
#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto value = trine::parse_json({reinterpret_cast<const char*>(data), size});
  if (value.has_value()) {
    // What was accepted is valid JSON: it prints and parses back to the same value.
    const auto again = trine::parse_json(value->dump());
    if (!again.has_value() || *again != *value) {
      __builtin_trap();
    }
  }
  return 0;
}
