#include "sched/step_budget.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace trine::sched {
namespace {

constexpr std::int32_t kSequences = 64;

// A machine whose step takes decode_ms + prompt_ms per prompt token.
struct Machine {
  double decode_ms = 10.0;
  double prompt_ms = 1.0;

  double step_ms(std::int32_t num_prompt) const { return decode_ms + prompt_ms * num_prompt; }
};

// One step with all of the budget used; returns its time.
double step(StepBudget& budget, const Machine& machine, std::int32_t decoding) {
  const std::int32_t tokens = budget.tokens(decoding);
  const double ms = machine.step_ms(tokens - decoding);
  budget.observe(tokens, decoding, ms);
  return ms;
}

// The worst and the mean of 200 steps after 100 to settle.
struct Settled {
  double worst = 0.0;
  double mean = 0.0;
};

Settled settle(StepBudget& budget, const Machine& machine, std::int32_t decoding) {
  constexpr int kSteps = 200;
  Settled out;
  for (int i = 0; i < 100; ++i) {
    step(budget, machine, decoding);
  }
  for (int i = 0; i < kSteps; ++i) {
    const double ms = step(budget, machine, decoding);
    out.worst = std::max(out.worst, ms);
    out.mean += ms / kSteps;
  }
  return out;
}

TEST(StepBudget, SettlesNearTheTargetOnFastAndSlowMachines) {
  for (const double per_token : {0.5, 1.0, 2.0}) {
    StepBudget budget(512, kSequences, 100.0);
    const Settled settled = settle(budget, {.decode_ms = 14.0, .prompt_ms = per_token}, 4);
    EXPECT_LE(settled.worst, 105.0) << per_token;
    EXPECT_GE(settled.mean, 90.0) << per_token;
  }
}

TEST(StepBudget, WithoutATargetSomeDecodingStepsAreIt) {
  for (const double decode_ms : {1.0, 8.0, 300.0}) {
    for (const double per_token : {0.02, 0.4, 5.0}) {
      StepBudget budget(512, kSequences, std::nullopt);
      const Machine machine{.decode_ms = decode_ms, .prompt_ms = per_token};
      const Settled settled = settle(budget, machine, 8);
      // A prompt moves by a token, whatever that takes.
      EXPECT_LE(settled.worst,
                std::max(1.05 * StepBudget::kAutoSteps * decode_ms, machine.step_ms(1)));
      EXPECT_GE(settled.mean, std::min(0.85 * StepBudget::kAutoSteps * decode_ms,
                                       0.9 * machine.step_ms(512 - 8)));
    }
  }
}

TEST(StepBudget, PromptsAlwaysMove) {
  StepBudget budget(512, kSequences, 1.0);
  settle(budget, {.decode_ms = 500.0}, 4);
  EXPECT_EQ(budget.tokens(4), 4 + StepBudget::kLeast);
}

TEST(StepBudget, FollowsAMachineThatChanges) {
  StepBudget budget(512, kSequences, 100.0);
  settle(budget, {.prompt_ms = 2.0}, 4);
  EXPECT_LT(budget.tokens(4), 60);
  settle(budget, {.prompt_ms = 0.2}, 4);
  EXPECT_GT(budget.tokens(4), 300);
}

TEST(StepBudget, FollowsDecodingStepsThatBecomeLonger) {
  StepBudget budget(512, kSequences, std::nullopt);
  settle(budget, {.decode_ms = 10.0}, 4);
  const Machine slower{.decode_ms = 20.0};
  for (int i = 0; i < 10 * StepBudget::kStale; ++i) {
    step(budget, slower, 4);
  }
  EXPECT_NEAR(settle(budget, slower, 4).worst, 20.0 * StepBudget::kAutoSteps, 5.0);
}

TEST(StepBudget, IsWholeWhenNobodyWaitsOrNoTargetIsSet) {
  StepBudget none(512, kSequences, 0.0);
  settle(none, {.decode_ms = 500.0}, 4);
  EXPECT_EQ(none.tokens(4), 512);
  StepBudget budget(512, kSequences, 1.0);
  settle(budget, {.decode_ms = 500.0}, 4);
  EXPECT_EQ(budget.tokens(0), 512);
}

TEST(StepBudget, MeasuresDecodingBeforePromptsJoinAndNowAndThen) {
  StepBudget budget(512, kSequences, std::nullopt);
  const Machine machine;
  int alone = 0;
  for (int i = 0; i < 5 * (StepBudget::kStale + 1); ++i) {
    alone += budget.tokens(4) == 4 ? 1 : 0;
    EXPECT_TRUE(i > 0 || budget.tokens(4) == 4);
    step(budget, machine, 4);
  }
  EXPECT_EQ(alone, 5);
  step(budget, machine, 4);
  EXPECT_GT(budget.tokens(4), 4);
  EXPECT_EQ(budget.tokens(5), 5);  // of other numbers nothing is known
}

TEST(StepBudget, TheFirstMixedStepIsCutByWhatPromptsAloneTook) {
  StepBudget budget(512, kSequences, std::nullopt);
  const Machine machine{.decode_ms = 10.0, .prompt_ms = 1.0};
  budget.observe(512, 0, 512.0);
  step(budget, machine, 8);
  EXPECT_NEAR(step(budget, machine, 8), 10.0 * StepBudget::kAutoSteps, 1.0);
}

TEST(StepBudget, PromptsAloneSayNothingAfterMixedSteps) {
  StepBudget budget(512, kSequences, std::nullopt);
  settle(budget, {.prompt_ms = 2.0}, 8);
  const std::int32_t before = budget.tokens(8);
  budget.observe(512, 0, 50.0);  // large steps are cheaper by the token
  EXPECT_EQ(budget.tokens(8), before);
}

TEST(StepBudget, OneStrayStepDoesNotThrowItFarOff) {
  StepBudget budget(512, kSequences, std::nullopt);
  const Machine machine;
  settle(budget, machine, 8);
  const std::int32_t before = budget.tokens(8) - 8;
  budget.observe(budget.tokens(8), 8, 1e6);
  EXPECT_GE(budget.tokens(8) - 8, before / 2 - 1);
  budget.observe(8, 8, 1e6);
  settle(budget, machine, 8);
  EXPECT_NEAR(budget.tokens(8) - 8, before, 0.3 * before);
}

TEST(StepBudget, NeverPassesTheMost) {
  for (const std::int32_t most : {1, 4, 20}) {
    for (const std::optional<double> target : {std::optional<double>(), std::optional(50.0)}) {
      StepBudget budget(most, kSequences, target);
      for (int i = 0; i < 300; ++i) {
        const std::int32_t decoding = i % 7;
        EXPECT_GE(budget.tokens(decoding), 1);
        EXPECT_LE(budget.tokens(decoding), most);
        budget.observe(most, std::min(decoding, most), i % 3);
      }
      EXPECT_LE(budget.tokens(kSequences + 1), most);  // more than there should be
    }
  }
}

}  // namespace
}  // namespace trine::sched
