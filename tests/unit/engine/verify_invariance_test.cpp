#include "engine/verify_invariance.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_model.h"

namespace trine {
namespace {

using testing::FakeModel;
using ::testing::HasSubstr;

InvarianceOptions small_options() {
  return {.prompts = {{1, 2, 3, 4, 5, 6, 7}, {9}, std::vector<std::int32_t>(70, 3)},
          .num_mixed = 20,
          .max_threads = 3,
          .kv_dtype = DType::kF32};
}

TEST(VerifyInvariance, AcceptsAModelThatKeepsTheContract) {
  const FakeModel model({});
  int calls = 0;
  InvarianceOptions options = small_options();
  options.progress = [&](std::string_view, bool equal) {
    ++calls;
    EXPECT_TRUE(equal);
  };
  const auto report = verify_invariance(model, options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_FALSE(report->difference.has_value()) << describe(*report->difference);
  EXPECT_EQ(static_cast<std::size_t>(calls), report->permutations.size());
  EXPECT_GE(report->permutations.size(), 9u + 2u + 20u);
  // Every full permutation compares all 78 rows.
  EXPECT_GE(report->num_rows, 78 * 10);
  EXPECT_EQ(report->num_values, report->num_rows * 64);
}

TEST(VerifyInvariance, MakesItsOwnPrompts) {
  const FakeModel model({.context_length = 40});
  const auto report = verify_invariance(model, {.seed = 5, .num_mixed = 2});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_FALSE(report->difference.has_value());
  EXPECT_EQ(report->seed, 5u);
}

TEST(VerifyInvariance, TriesTheLargestTeam) {
  const FakeModel model({});
  InvarianceOptions options = small_options();
  options.num_mixed = 0;
  options.max_threads = 7;
  const auto report = verify_invariance(model, options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  for (const char* name : {"2 threads", "3 threads", "4 threads", "7 threads"}) {
    EXPECT_THAT(report->permutations, ::testing::Contains(name));
  }
}

TEST(VerifyInvariance, PassesTheSmallestWindow) {
  // The fault shows behind the window only.
  const auto report_of = [](std::int32_t context) {
    const FakeModel model({.context_length = context,
                           .window = 100,
                           .spoil = [](std::span<const Span> spans, std::vector<float>& logits) {
                             if (spans.size() == 1 && spans[0].tokens.size() == 1 &&
                                 spans[0].sequence->length() >= 100 && !logits.empty()) {
                               logits[3] += 1.0f;
                             }
                           }});
    InvarianceOptions options = small_options();
    options.adds_window_prompt = true;
    return verify_invariance(model, options);
  };
  const auto report = report_of(512);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_TRUE(report->difference.has_value());
  EXPECT_EQ(report->difference->permutation, "one token at a time");
  EXPECT_EQ(report->difference->sequence, 3);
  EXPECT_EQ(report->difference->position, 100);
  EXPECT_FALSE(report_of(110)->difference.has_value());  // no room behind the window
}

TEST(VerifyInvariance, EndsWhenCancelled) {
  const FakeModel model({});
  std::atomic<bool> cancel{false};
  InvarianceOptions options = small_options();
  options.cancel = &cancel;
  int calls = 0;
  options.progress = [&](std::string_view, bool) {
    ++calls;
    cancel.store(true);
  };
  const auto report = verify_invariance(model, options);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 1);
}

TEST(VerifyInvariance, FindsLogitsThatDependOnTheBatch) {
  const FakeModel model({.spoil = [](std::span<const Span> spans, std::vector<float>& logits) {
    if (spans.size() > 1 && !logits.empty()) {
      logits[5] += 1e-6f;
    }
  }});
  const auto report = verify_invariance(model, small_options());
  ASSERT_TRUE(report.has_value());
  ASSERT_TRUE(report->difference.has_value());
  EXPECT_EQ(report->difference->permutation, "batch of all");
  EXPECT_EQ(report->difference->token, 5);
  EXPECT_EQ(report->difference->sequence, 0);
  EXPECT_EQ(report->difference->position, 0);
  EXPECT_EQ(report->difference->num_different, 1);
  EXPECT_THAT(describe(*report->difference),
              HasSubstr("batch of all: prompt 0, position 0: logit of token 5 is"));
}

TEST(VerifyInvariance, FindsLogitsThatDependOnTheChunk) {
  const FakeModel model({.spoil = [](std::span<const Span> spans, std::vector<float>& logits) {
    if (spans.size() == 1 && spans[0].tokens.size() == 1 && spans[0].sequence->length() == 4) {
      logits.back() = -logits.back();
    }
  }});
  const auto report = verify_invariance(model, small_options());
  ASSERT_TRUE(report.has_value());
  ASSERT_TRUE(report->difference.has_value());
  EXPECT_EQ(report->difference->permutation, "one token at a time");
  EXPECT_EQ(report->difference->position, 4);
  EXPECT_EQ(report->difference->token, 63);
}

TEST(VerifyInvariance, FindsLogitsThatReadUnwrittenRows) {
  const FakeModel model({.spoil = [](std::span<const Span> spans, std::vector<float>& logits) {
    // The last row of the last page: never written by these prompts.
    const std::byte* page = spans[0].sequence->page_data().back();
    logits[0] += page[KvGeometry{.num_layers = 1,
                                 .num_kv_heads = 1,
                                 .head_dim_k = 1,
                                 .head_dim_v = 1,
                                 .dtype = DType::kF32}
                          .page_bytes() -
                      1] == std::byte{0xff}
                     ? 1.0f
                     : 0.0f;
  }});
  const auto report = verify_invariance(model, small_options());
  ASSERT_TRUE(report.has_value());
  ASSERT_TRUE(report->difference.has_value());
  EXPECT_EQ(report->difference->permutation, "shuffled pages with NaN");
}

TEST(VerifyInvariance, RefusesPromptsThatDoNotFit) {
  const FakeModel model({.context_length = 8});
  InvarianceOptions options;
  options.prompts = {{1}, {}};
  EXPECT_FALSE(verify_invariance(model, options).has_value());
  options.prompts = {std::vector<std::int32_t>(9, 1)};
  const auto report = verify_invariance(model, options);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("prompt 0 has 9 tokens"));
}

}  // namespace
}  // namespace trine
