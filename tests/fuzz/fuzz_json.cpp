// Any bytes either parse or give an error; never a crash, hang or unbounded memory.
#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto value = trine::parse_json({reinterpret_cast<const char*>(data), size});
  if (!value.has_value()) {
    trine::require_printable(value.error());
    return 0;
  }
  // What was accepted is valid JSON: it prints and parses back to the same value.
  const auto again = trine::parse_json(value->dump());
  trine::require(again.has_value() && *again == *value);
  return 0;
}
