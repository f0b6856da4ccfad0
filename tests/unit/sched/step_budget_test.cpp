#include "sched/step_budget.h"

#include <gtest/gtest.h>

namespace trine::sched {
namespace {

// Runs steps of a machine that takes a + b ms per token beside `decoding` sequences, all budget
// used.
double settled_ms(StepBudget& budget, double a, double b, std::int32_t decoding) {
  double ms = 0.0;
  double worst = 0.0;
  for (int i = 0; i < 200; ++i) {
    const std::int32_t tokens = budget.tokens(decoding);
    ms = a + b * tokens;
    budget.observe(tokens, decoding, ms);
    if (i >= 100) {
      worst = ms > worst ? ms : worst;
    }
  }
  return worst;
}

TEST(StepBudget, SettlesNearTheTargetOnFastAndSlowMachines) {
  for (const double per_token : {0.5, 1.0, 2.0}) {
    StepBudget budget(512, 100.0);
    const double worst = settled_ms(budget, 10.0, per_token, 4);
    EXPECT_LE(worst, 115.0) << per_token;
    EXPECT_GE(worst, 75.0) << per_token;
  }
}

TEST(StepBudget, PromptsAlwaysMove) {
  StepBudget budget(512, 1.0);
  settled_ms(budget, 500.0, 1.0, 4);
  EXPECT_EQ(budget.tokens(4), 4 + StepBudget::kLeast);
}

TEST(StepBudget, GrowsAgainWhenStepsGetFaster) {
  StepBudget budget(512, 100.0);
  settled_ms(budget, 10.0, 2.0, 4);
  EXPECT_LT(budget.tokens(4), 60);
  settled_ms(budget, 10.0, 0.2, 4);
  EXPECT_GT(budget.tokens(4), 300);
}

TEST(StepBudget, IsWholeWhenNobodyWaitsOrNoTargetIsSet) {
  StepBudget none(512, 0.0);
  settled_ms(none, 500.0, 1.0, 4);
  EXPECT_EQ(none.tokens(4), 512);
  StepBudget budget(512, 1.0);
  settled_ms(budget, 500.0, 1.0, 4);
  EXPECT_EQ(budget.tokens(0), 512);
}

TEST(StepBudget, DecodingAloneSaysNothing) {
  StepBudget budget(512, 10.0);
  budget.observe(8, 8, 1000.0);
  EXPECT_EQ(budget.tokens(8), 512);
}

}  // namespace
}  // namespace trine::sched
