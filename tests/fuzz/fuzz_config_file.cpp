// Any bytes in place of trine.toml set known options to valid values or give an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_support.h"
#include "options/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::options::Settings settings;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto status = settings.apply_file_text(text, "trine.toml");
  if (!status.has_value()) {
    trine::require_printable(status.error());
  }
  return 0;
}
