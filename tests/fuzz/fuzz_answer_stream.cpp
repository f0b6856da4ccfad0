// Any bytes as a server's answer, in pieces of any size: the same counts or the same error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz_support.h"
#include "loadgen/stream_reader.h"

namespace {

std::string read(std::string_view text, std::size_t piece) {
  trine::loadgen::StreamReader reader;
  int outputs = 0;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const auto found = reader.add(text.substr(at, piece));
    if (!found.has_value()) {
      trine::require_printable(found.error());
      return found.error().message;
    }
    outputs += found->num_outputs;
  }
  const auto end = reader.finish();
  return std::to_string(outputs) + (end.has_value() ? "" : end.error().message) +
         std::to_string(reader.completion_tokens().value_or(-1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  trine::require(read(text, text.size() + 1) == read(text, data[0] + std::size_t{1}));
  (void)trine::loadgen::error_text(text);
  return 0;
}
