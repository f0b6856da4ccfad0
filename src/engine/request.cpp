#include "engine/request.h"

namespace trine {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

double RequestStats::prefill_tokens_per_s() const {
  return prefill_ms > 0.0 ? prompt_tokens / prefill_ms * 1e3 : 0.0;
}

double RequestStats::decode_tokens_per_s() const {
  const std::int32_t later = generated_tokens - num_answers;
  return decode_ms > 0.0 && later > 0 ? later / decode_ms * 1e3 : 0.0;
}

double RequestStats::decode_gb_per_s() const {
  return decode_ms > 0.0 ? weight_bytes_per_step * decode_steps / decode_ms * 1e-6 : 0.0;
}

}  // namespace trine
