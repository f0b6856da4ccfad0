#include "sched/step_budget.h"

#include <algorithm>

namespace trine::sched {

StepBudget::StepBudget(std::int32_t most, std::int32_t max_decoding,
                       std::optional<double> target_itl_ms)
    : most_(most),
      target_itl_ms_(target_itl_ms),
      decode_(static_cast<std::size_t>(std::max(max_decoding, 1)) + 1) {}

std::size_t StepBudget::index(std::int32_t num_decoding) const {
  return std::min(static_cast<std::size_t>(num_decoding), decode_.size() - 1);
}

double StepBudget::target_ms(const Decode& decode) const {
  return target_itl_ms_.value_or(kAutoSteps * decode.ms);
}

// In [1, most]. A target of decoding steps always leaves time for prompts.
double StepBudget::prompt_tokens(const Decode& decode) const {
  const double least = target_itl_ms_.has_value() ? kLeast : 1;
  const double time = target_ms(decode) - decode.ms;
  const double fits = token_ms_ > 0.0 ? time / token_ms_ : kLeast;
  return std::clamp<double>(fits, std::min<double>(least, most_), most_);
}

std::int32_t StepBudget::tokens(std::int32_t num_decoding) const {
  if (num_decoding == 0 || target_itl_ms_ == 0.0) {
    return most_;  // nobody is kept waiting
  }
  const Decode& decode = decode_[index(num_decoding)];
  if (!(decode.ms > 0.0) || decode.mixed_steps >= kStale) {
    return std::min(most_, num_decoding);  // to be measured
  }
  return std::min(most_, num_decoding + static_cast<std::int32_t>(prompt_tokens(decode)));
}

void StepBudget::observe(std::int32_t num_tokens, std::int32_t num_decoding, double step_ms) {
  const std::int32_t num_prompt = num_tokens - num_decoding;
  if (target_itl_ms_ == 0.0 || num_tokens <= 0 || !(step_ms > 0.0)) {
    return;
  }
  if (num_decoding == 0) {
    token_ms_ = seen_mixed_ ? token_ms_ : step_ms / num_prompt;
    return;
  }
  Decode& decode = decode_[index(num_decoding)];
  if (num_prompt == 0) {
    // One stray step must not throw it far off.
    decode.ms += decode.ms > 0.0 ? (std::min(step_ms, 2 * decode.ms) - decode.ms) / 4 : step_ms;
    decode.mixed_steps = 0;
    return;
  }
  ++decode.mixed_steps;
  if (!(decode.ms > 0.0)) {
    return;
  }
  const double sample = std::max(step_ms - decode.ms, 0.0) / num_prompt;
  if (token_ms_ == 0.0) {
    token_ms_ = sample;
  } else if (step_ms > target_ms(decode) && sample > token_ms_) {
    token_ms_ = std::min(sample, 2 * token_ms_);
  } else if (num_prompt >= static_cast<std::int32_t>(prompt_tokens(decode))) {
    // A step with less than that says little: few tokens share what a prompt costs at all.
    token_ms_ += (sample - token_ms_) / 8;
  }
  seen_mixed_ = true;
}

}  // namespace trine::sched
