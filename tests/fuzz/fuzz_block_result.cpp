// Any bytes as the result of a block give a result whose parts fit each other, or an error: the
// file may have been cut off with the run that wrote it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "compress/block_result.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto result =
      trine::parse_block_result(std::as_bytes(std::span(data, size)), "block", "identity");
  if (!result.has_value()) {
    trine::require_printable(result.error());
    return 0;
  }
  for (const trine::LinearResult& linear : result->linears) {
    if (linear.quantized.has_value()) {
      const trine::QuantizedWeights& q = *linear.quantized;
      const auto groups = static_cast<std::size_t>(q.rows * q.num_groups());
      trine::require(q.codes.size() == static_cast<std::size_t>(q.rows * q.cols));
      trine::require(q.scales.size() == groups);
      trine::require(q.zeros.size() == groups || q.mins.size() == groups ||
                     q.scheme.kind == trine::GridKind::kFloat8);
    }
  }
  return 0;
}
