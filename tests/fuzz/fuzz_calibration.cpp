// Any bytes as calibration texts give texts with a place in the file, or an error that names one.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compress/calibration_text.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const auto texts = trine::parse_calibration(content, "calib.jsonl");
  if (!texts.has_value()) {
    trine::require_printable(texts.error());
    trine::require(texts.error().message.find("calib.jsonl") != std::string::npos);
    return 0;
  }
  for (const trine::CalibrationText& text : *texts) {
    trine::require(text.text.empty() || text.messages.empty());
  }
  return 0;
}
