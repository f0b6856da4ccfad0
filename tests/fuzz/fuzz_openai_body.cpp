// Any bytes as the body of any endpoint: the first byte chooses it. A request that is taken holds
// to the caps; one that is not gets an error of the 400 class whose message drives no terminal.
#include <cstddef>
#include <cstdint>

#include "fuzz_support.h"
#include "unit/server/openai/parse_any.h"

namespace {

using namespace trine::server::openai;

void check(const CommonRequest& request) {
  trine::require(request.generation.prompt.empty());
  trine::require(request.generation.n >= 1 && request.generation.n <= 128);
  trine::require(request.generation.max_tokens.value_or(1) >= 1);
  // The vocabulary's size does not matter to the other ranges.
  auto sampling = request.generation.sampling;
  sampling.logit_bias.clear();
  trine::require(trine::sampling::validate(sampling, 1 << 20).has_value());
}

template <typename T>
void check_generating(const ApiResult<T>& result) {
  if (result.has_value()) {
    check(*result);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto shape = static_cast<Shape>(data[0] % 7);
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ApiStatus status = parse_any(shape, body);
  if (!status.has_value()) {
    const ApiError& error = status.error();
    trine::require(error.status == 400);
    trine::require_printable(trine::Error{trine::ErrorCode::kInternal, error.message});
    trine::require(trine::printable(error.message, std::string_view::npos) == error.message);
    trine::require(!error_body(error).empty());
    return 0;
  }
  check_generating(parse_completion(body, {}));
  check_generating(parse_chat(body, {}));
  check_generating(parse_responses(body, {}));
  return 0;
}
