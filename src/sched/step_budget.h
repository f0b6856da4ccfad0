// How many prompt tokens a step may read beside decoding sequences, so that the gap between their
// tokens (ITL) stays near a target.
//
// The target is a time, or kAutoSteps times what a step takes that only decodes as many sequences.
// Fed with the time of every step; no clock of its own. A step beside n decoding sequences takes
// about decode(n) + tokens x a time per token; both are measured: decode(n) by steps that read no
// prompt, of which one is asked for where none is known or the last was kStale mixed steps ago, the
// time per token by mixed steps, raised at once when a step took too long and lowered slowly. Until
// there was one, steps that only read prompts tell. Thread rule: a plain value of the engine
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trine::sched {

class StepBudget {
 public:
  // Tokens per step: at most `most`, and beside up to max_decoding sequences of which each gets
  // one. target_itl_ms 0: always `most`; nullopt: kAutoSteps times a decoding step.
  StepBudget(std::int32_t most, std::int32_t max_decoding, std::optional<double> target_itl_ms);

  // Tokens that the next step may have, decoding ones included.
  std::int32_t tokens(std::int32_t num_decoding) const;
  // A step of num_tokens, num_decoding of them of decoding sequences, took step_ms.
  void observe(std::int32_t num_tokens, std::int32_t num_decoding, double step_ms);

  static constexpr double kAutoSteps = 2.5;
  static constexpr std::int32_t kStale = 64;
  // Prompt tokens of a step beside decoding sequences when a target in ms leaves no time for them:
  // prompts always move.
  static constexpr std::int32_t kLeast = 16;

 private:
  struct Decode {
    double ms = 0.0;               // 0: not known
    std::int32_t mixed_steps = 0;  // since it was measured
  };

  std::size_t index(std::int32_t num_decoding) const;
  double target_ms(const Decode& decode) const;
  double prompt_tokens(const Decode& decode) const;

  std::int32_t most_;
  std::optional<double> target_itl_ms_;
  std::vector<Decode> decode_;  // by the number of sequences
  double token_ms_ = 0.0;       // of one more prompt token; 0: not known
  bool seen_mixed_ = false;
};

}  // namespace trine::sched
