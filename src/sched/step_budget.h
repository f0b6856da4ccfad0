// How many prompt tokens a step may read beside decoding sequences, so that the gap between their
// tokens (ITL) stays near a target.
//
// Fed with the time of every step; no clock of its own. Shrinks in proportion when a step took too
// long and grows by an eighth when a step that used the budget was well below the target, so it
// settles just under. Thread rule: a plain value of the engine thread.
#pragma once

#include <cstdint>

namespace trine::sched {

class StepBudget {
 public:
  // Tokens per step: at most `most`, at least min(kLeast, most), so that prompts always move.
  // target_itl_ms 0: always `most`.
  StepBudget(std::int32_t most, double target_itl_ms);

  // Tokens that the next step may have, decoding ones included.
  std::int32_t tokens(std::int32_t num_decoding) const;
  // A step of num_tokens, num_decoding of them of decoding sequences, took step_ms.
  void observe(std::int32_t num_tokens, std::int32_t num_decoding, double step_ms);

  static constexpr std::int32_t kLeast = 16;

 private:
  std::int32_t most_;
  double target_itl_ms_;
  double prompt_tokens_;
};

}  // namespace trine::sched
