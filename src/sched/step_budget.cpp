#include "sched/step_budget.h"

#include <algorithm>

namespace trine::sched {

StepBudget::StepBudget(std::int32_t most, double target_itl_ms)
    : most_(most), target_itl_ms_(target_itl_ms), prompt_tokens_(most) {}

std::int32_t StepBudget::tokens(std::int32_t num_decoding) const {
  if (target_itl_ms_ <= 0.0 || num_decoding == 0) {
    return most_;  // nobody is kept waiting
  }
  return std::min(most_, num_decoding + static_cast<std::int32_t>(prompt_tokens_));
}

void StepBudget::observe(std::int32_t num_tokens, std::int32_t num_decoding, double step_ms) {
  const std::int32_t num_prompt = num_tokens - num_decoding;
  if (target_itl_ms_ <= 0.0 || num_decoding == 0 || num_prompt == 0 || !(step_ms > 0.0)) {
    return;  // says nothing about prompts beside decoding
  }
  if (step_ms > target_itl_ms_) {
    // At most halved, so that one stray step does not throw it far off.
    const double factor = std::max(target_itl_ms_ / step_ms, 0.5);
    prompt_tokens_ = std::min<double>(prompt_tokens_, num_prompt) * factor;
  } else if (step_ms < 0.85 * target_itl_ms_ && num_prompt >= static_cast<int>(prompt_tokens_)) {
    prompt_tokens_ *= 1.125;
  }
  prompt_tokens_ = std::clamp<double>(prompt_tokens_, std::min(kLeast, most_), most_);
}

}  // namespace trine::sched
