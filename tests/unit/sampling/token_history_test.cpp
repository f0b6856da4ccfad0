#include "sampling/token_history.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace trine::sampling {
namespace {

using Numbers = std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>>;

Numbers counts_of(const TokenHistory& history) {
  Numbers out;
  for (const TokenHistory::Count& count : history.counts()) {
    if (count.in_prompt + count.in_output > 0) {
      out[count.token] = {count.in_prompt, count.in_output};
    }
  }
  return out;
}

TEST(TokenHistory, CountsPromptAndOutputApart) {
  TokenHistory history;
  history.reset(std::vector<std::int32_t>{5, 3, 5}, 8, true, 4);
  history.append(3);
  history.append(7);
  EXPECT_EQ(counts_of(history), (Numbers{{3, {1, 1}}, {5, {2, 0}}, {7, {0, 1}}}));
  EXPECT_THAT(history.tokens(), ::testing::ElementsAre(5, 3, 5, 3, 7));
  EXPECT_EQ(history.num_prompt(), 3);
  EXPECT_EQ(history.num_output(), 2);
}

TEST(TokenHistory, RollbackEqualsNeverHavingAppended) {
  TokenHistory history;
  history.reset(std::vector<std::int32_t>{1, 2}, 16, true, 8);
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto block = philox(3, round, RngPurpose::kTest, 0);
    const Numbers before = counts_of(history);
    const auto drafted = static_cast<std::int32_t>(block[0] % 5);
    for (std::int32_t i = 0; i < drafted; ++i) {
      history.append(static_cast<std::int32_t>((block[1] >> (4 * i)) % 16));
    }
    history.rollback(drafted);
    ASSERT_EQ(counts_of(history), before);
    history.append(static_cast<std::int32_t>(block[2] % 16));
  }
  EXPECT_EQ(history.num_output(), 200);
}

TEST(TokenHistory, ResetStartsOver) {
  TokenHistory history;
  history.reset(std::vector<std::int32_t>{1}, 4, true, 0);
  history.append(2);
  history.reset(std::vector<std::int32_t>{3}, 4, false, 0);
  EXPECT_TRUE(history.counts().empty());
  EXPECT_THAT(history.tokens(), ::testing::ElementsAre(3));
}

TEST(TokenHistoryDeathTest, RollbackStopsAtThePrompt) {
  TokenHistory history;
  history.reset(std::vector<std::int32_t>{1}, 4, true, 0);
  EXPECT_DEATH(history.rollback(1), "internal check failed");
}

}  // namespace
}  // namespace trine::sampling
