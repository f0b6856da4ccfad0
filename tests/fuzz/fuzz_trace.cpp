// Any bytes as a trace give requests in order of time with lengths in range, or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_support.h"
#include "loadgen/trace.h"
#include "loadgen/workload.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trine::loadgen;
  if (size == 0) {
    return 0;
  }
  const auto format = static_cast<TraceFormat>(data[0] % 4);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto trace = read_trace(format, text);
  if (!trace.has_value()) {
    trine::require_printable(trace.error());
    return 0;
  }
  double last = 0.0;
  const bool timed = trace->entries.front().at_ms.has_value();
  for (const TraceEntry& entry : trace->entries) {
    trine::require(entry.at_ms.has_value() == timed);
    trine::require(!timed || *entry.at_ms >= last);
    last = entry.at_ms.value_or(0.0);
    trine::require(entry.prompt_tokens >= 0 && entry.prompt_tokens <= kMostTokens);
    trine::require(!entry.output_tokens.has_value() ||
                   (*entry.output_tokens >= 1 && *entry.output_tokens <= kMostTokens));
    trine::require(int{entry.prompt_tokens > 0} + int{!entry.prompt.empty()} +
                       int{!entry.messages.empty()} ==
                   1);
  }
  // What is sent is made of it; long prompts only cost time.
  if (trace->entries.front().prompt_tokens < 4096) {
    const auto workload =
        Workload::create({.endpoint = Endpoint::kChat}, std::move(trace->entries));
    trine::require(workload.has_value() && !workload->body(0).empty());
  }
  return 0;
}
