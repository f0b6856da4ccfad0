#include "sampling/sampling_params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace trine::sampling {
namespace {

struct BadCase {
  std::function<void(SamplingParams&)> change;
  std::string message;
};

TEST(SamplingParams, DefaultsAndBordersAreValid) {
  EXPECT_TRUE(validate({}, 10).has_value());
  SamplingParams params{.repetition_penalty = 0.01,
                        .presence_penalty = -2.0,
                        .frequency_penalty = 2.0,
                        .logit_bias = {{0, -100.0}, {9, 100.0}},
                        .bad_words = {{9}, {0, 1, 2}},
                        .min_tokens = 5,
                        .temperature = 0.0,
                        .top_k = 1000,
                        .top_p = 1e-9,
                        .min_p = 1.0,
                        .typical_p = 1.0,
                        .seed = 0,
                        .logprobs = kMaxTopLogprobs};
  EXPECT_TRUE(validate(params, 10).has_value());
}

TEST(SamplingParams, EveryFieldNamesItsRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<BadCase> cases = {
      {[](auto& p) { p.repetition_penalty = 0.0; },
       "repetition_penalty is 0, must be in [0.01, 100]"},
      {[](auto& p) { p.presence_penalty = -2.5; }, "presence_penalty is -2.5, must be in [-2, 2]"},
      {[](auto& p) { p.frequency_penalty = 3.0; }, "frequency_penalty is 3, must be in [-2, 2]"},
      {[](auto& p) {
         p.logit_bias = {{10, 1.0}};
       },
       "logit_bias: token 10 is not in the vocabulary [0, 10)"},
      {[](auto& p) {
         p.logit_bias = {{-1, 1.0}};
       },
       "logit_bias: token -1 is not in the vocabulary [0, 10)"},
      {[](auto& p) {
         p.logit_bias = {{3, 101.0}};
       },
       "logit_bias of token 3 is 101, must be in [-100, 100]"},
      {[](auto& p) {
         p.logit_bias = {{3, 1.0}, {4, 0.0}, {3, 1.0}};
       },
       "logit_bias: token 3 is named twice"},
      {[](auto& p) {
         p.bad_words = {{1}, {}};
       },
       "bad_words[1] is empty, at least one token needed"},
      {[](auto& p) {
         p.bad_words = {{1, 12}};
       },
       "bad_words[0]: token 12 is not in the vocabulary [0, 10)"},
      {[](auto& p) { p.min_tokens = -1; }, "min_tokens is -1, must be at least 0"},
      {[](auto& p) { p.temperature = -0.1; }, "temperature is -0.1, must be in [0, 100]"},
      {[nan](auto& p) { p.temperature = nan; }, "temperature is nan, must be in [0, 100]"},
      {[](auto& p) { p.top_k = -1; }, "top_k is -1, must be at least 0 (0 turns it off)"},
      {[](auto& p) { p.top_p = 0.0; }, "top_p is 0, must be in (0, 1]"},
      {[](auto& p) { p.top_p = 1.5; }, "top_p is 1.5, must be in (0, 1]"},
      {[nan](auto& p) { p.top_p = nan; }, "top_p is nan, must be in (0, 1]"},
      {[](auto& p) { p.min_p = -0.5; }, "min_p is -0.5, must be in [0, 1]"},
      {[](auto& p) { p.typical_p = 0.0; }, "typical_p is 0, must be in (0, 1]"},
      {[](auto& p) { p.logprobs = 101; }, "logprobs is 101, must be in [0, 100]"},
      {[](auto& p) { p.logprobs = -1; }, "logprobs is -1, must be in [0, 100]"},
  };
  for (const BadCase& bad : cases) {
    SamplingParams params;
    bad.change(params);
    const Status status = validate(params, 10);
    ASSERT_FALSE(status.has_value()) << bad.message;
    EXPECT_EQ(status.error().message, bad.message);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(SamplingParams, RandomSeedsDiffer) {
  EXPECT_NE(*random_seed(), *random_seed());
}

}  // namespace
}  // namespace trine::sampling
