#include "eval/windows.h"

#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_tokenizer.h"

namespace trine::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenText numbered(std::int32_t count, bool bos) {
  TokenText out;
  out.tokens.resize(static_cast<std::size_t>(count));
  std::iota(out.tokens.begin(), out.tokens.end(), 1);
  if (bos) {
    out.bos = 0;
  }
  out.num_ids = count + 1;
  return out;
}

// How often each token of the text is scored.
std::map<std::int32_t, int> scored(const TokenText& text, const WindowPlan& plan) {
  std::map<std::int32_t, int> out;
  std::int64_t rows = 0;
  for (const Window& w : plan.windows) {
    const auto tokens = window_tokens(text, plan, w);
    EXPECT_EQ(tokens.size(), static_cast<std::size_t>(w.length));
    EXPECT_LE(w.length, plan.context);
    for (std::int32_t row = w.score_from; row < w.length; ++row, ++rows) {
      const std::int32_t token = target(text, plan, w, row);
      // A token is predicted from the one before it.
      EXPECT_EQ(tokens[static_cast<std::size_t>(row)], row == 0 && plan.bos ? 0 : token - 1);
      ++out[token];
    }
  }
  EXPECT_EQ(rows, plan.num_scored());
  return out;
}

TEST(Windows, SecondHalvesSideBySide) {
  for (const bool bos : {false, true}) {
    const TokenText text = numbered(50, bos);
    const auto plan = plan_windows(text, 16, 100, 0, 0);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->windows.size(), 3U);
    for (const auto& [token, times] : scored(text, *plan)) {
      EXPECT_EQ(times, 1) << token;
    }
    EXPECT_EQ(plan->num_scored(), 24);
  }
}

TEST(Windows, AStrideScoresEveryTokenOnce) {
  for (const bool bos : {false, true}) {
    for (const std::int32_t count : {17, 18, 40, 41, 50, 64}) {
      for (const std::int32_t stride : {1, 5, 15}) {
        const TokenText text = numbered(count, bos);
        const auto plan = plan_windows(text, 16, 100, stride, 0);
        ASSERT_TRUE(plan.has_value());
        const auto times = scored(text, *plan);
        EXPECT_EQ(times.size(), static_cast<std::size_t>(bos ? count : count - 1));
        for (const auto& [token, n] : times) {
          EXPECT_EQ(n, 1) << token;
        }
      }
    }
  }
}

TEST(Windows, ChooseTheirLength) {
  EXPECT_EQ(plan_windows(numbered(9000, false), 0, 9000, 0, 0)->context, 2048);
  EXPECT_EQ(plan_windows(numbered(9000, false), 0, 512, 0, 0)->context, 512);
  const auto small = plan_windows(numbered(20, true), 0, 512, 0, 0);
  EXPECT_EQ(small->context, 20);
  EXPECT_EQ(small->windows.size(), 1U);
  EXPECT_EQ(plan_windows(numbered(900, false), 16, 900, 0, 2)->windows.size(), 2U);
}

TEST(Windows, WhatCannotBeScoredIsRefused) {
  const auto error = [](const Result<WindowPlan>& plan) { return plan.error().message; };
  EXPECT_THAT(error(plan_windows(numbered(4, false), 0, 99, 0, 0)), HasSubstr("has 4 tokens"));
  EXPECT_THAT(error(plan_windows(numbered(16, false), 16, 99, 0, 0)), HasSubstr("needs 17"));
  EXPECT_TRUE(plan_windows(numbered(16, true), 16, 99, 0, 0).has_value());
  EXPECT_THAT(error(plan_windows(numbered(99, false), 64, 32, 0, 0)), HasSubstr("context is 32"));
  EXPECT_THAT(error(plan_windows(numbered(99, true), 16, 32, 16, 0)), HasSubstr("--stride 16"));
  EXPECT_TRUE(plan_windows(numbered(99, false), 16, 32, 16, 0).has_value());
}

TEST(Windows, ProtocolNamesWhatDecides) {
  TokenText text = numbered(50, true);
  text.hash = "0123456789abcdef0123456789abcdef";
  text.documents = 3;
  EXPECT_EQ(protocol(text, *plan_windows(text, 16, 100, 0, 0)),
            "context=16 stride=none scored=second-half bos=yes tokens=24 windows=3 documents=3 "
            "text=sha256:0123456789abcdef");
  EXPECT_THAT(protocol(text, *plan_windows(text, 16, 100, 4, 0)),
              HasSubstr("context=16 stride=4 scored=new-tokens bos=yes tokens=50"));
}

TEST(Documents, AreJoined) {
  const testing::FakeTokenizer tokenizer({"a", "b", "c"}, {});
  const auto text = join_documents({{0, 1}, {}, {2}}, tokenizer, 3);
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(text->tokens, ElementsAre(0, 1, 2));
  EXPECT_EQ(text->documents, 2);
  EXPECT_EQ(text->num_ids, 3);
  EXPECT_NE(text->hash, join_documents({{0, 1, 1}}, tokenizer, 3)->hash);
  EXPECT_EQ(text->hash, join_documents({{0}, {1, 2}}, tokenizer, 9)->hash);
  EXPECT_THAT(join_documents({{0}, {2}}, tokenizer, 2).error().message,
              HasSubstr("token 2 of the text is past the model's 2 rows"));
  EXPECT_THAT(join_documents({{}}, tokenizer, 2).error().message, HasSubstr("no tokens"));
}

TEST(Vocabulary, IsTheSameOrNamed) {
  const testing::FakeTokenizer one({"a", "b", "c"}, {});
  const testing::FakeTokenizer other({"a", "x", "c"}, {});
  const testing::FakeTokenizer longer({"a", "b", "c", "d"}, {});
  EXPECT_TRUE(check_same_vocabulary(one, one, "--ref r").has_value());
  EXPECT_THAT(check_same_vocabulary(one, other, "--ref r").error().message,
              HasSubstr("--ref r: token 1 is 'x', the model's is 'b'"));
  EXPECT_THAT(check_same_vocabulary(one, longer, "--ref r").error().message,
              HasSubstr("has 4 tokens, the model's has 3"));
}

}  // namespace
}  // namespace trine::eval
