// Any answer through the parser of any family, in pieces: the first byte chooses the family, the
// second how long the pieces are. The sum equals that of the whole, calls have JSON arguments, and
// without calls nothing is lost.
#include <cstddef>
#include <cstdint>

#include "base/json.h"
#include "fuzz_support.h"
#include "server/openai/tool_json.h"
#include "support/tool_call_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using trine::server::openai::ToolFamily;
  if (size < 2) {
    return 0;
  }
  const auto family = static_cast<ToolFamily>(data[0] % 7);
  const bool begun = (data[0] & 0x80u) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto whole = trine::testing::parse_cut(family, text, {}, begun);
  for (const auto& call : whole.calls) {
    trine::require(call.ended && !call.name.empty());
    trine::require(trine::server::openai::arguments_from_json(call.arguments).has_value());
  }
  trine::require(!whole.calls.empty() || whole.content == text);
  std::vector<std::size_t> cuts;
  const std::size_t step = 1 + data[1] % 16;
  for (std::size_t at = step; at < text.size(); at += step) {
    cuts.push_back(at);
  }
  trine::require(trine::testing::parse_cut(family, text, cuts, begun) == whole);
  return 0;
}
