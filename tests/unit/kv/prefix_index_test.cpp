#include "kv/prefix_index.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "support/alloc_counter.h"

namespace trine {
namespace {

constexpr KvGeometry kGeometry{
    .num_layers = 1, .num_kv_heads = 1, .head_dim_k = 1, .head_dim_v = 1, .dtype = DType::kF32};

std::vector<std::int32_t> tokens_of(std::int32_t pages, std::int32_t start) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < pages * kPageTokens; ++i) {
    out.push_back(start * 1000 + i);
  }
  return out;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  // Publishes a sequence that ends at once: its pages stay in the index alone.
  void publish(const PrefixRoot& root, const std::vector<std::int32_t>& tokens) {
    KvSequence sequence(*pool);
    const auto length = static_cast<std::int32_t>(tokens.size());
    ASSERT_TRUE(sequence.reserve(length).has_value());
    sequence.commit(length);
    index.publish(root, tokens, sequence.pages());
  }

  void TearDown() override {
    EXPECT_TRUE(index.check_integrity().has_value());
    index.clear();
    EXPECT_EQ(pool->num_free(), pool->num_pages());
  }

  std::unique_ptr<PagePool> pool = *PagePool::create(kGeometry, 10);
  PrefixIndex index{*pool, {.key = {1, 2}, .tenant_share = 0.3}};
};

TEST(SipHash, AgreesWithItsAuthorsVectors) {
  const std::array<std::uint64_t, 2> key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(siphash(key, {}), 0x726fdb47dd0e0e31u);
  const std::array<std::uint64_t, 1> words = {0x0706050403020100};
  EXPECT_EQ(siphash(key, words), 0x93f5f5799a932462u);
}

TEST_F(PrefixIndexTest, FindsWholePagesOfACommonBeginning) {
  const auto tokens = tokens_of(3, 1);
  KvSequence sequence(*pool);
  ASSERT_TRUE(sequence.reserve(96).has_value());
  sequence.commit(96);
  index.publish({"a", ""}, std::span(tokens).first(95), sequence.pages());
  EXPECT_EQ(index.num_pages(), 2);  // the third page was not full

  std::vector<PageRef> found;
  auto other = tokens;
  other[40] = 7;
  EXPECT_EQ(index.find({"a", ""}, other, found), kPageTokens);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].index(), sequence.pages()[0].index());
  EXPECT_EQ(index.peek({"a", ""}, tokens), 2 * kPageTokens);
  EXPECT_EQ(index.peek({"a", ""}, std::span(tokens).first(63)), kPageTokens);
  EXPECT_EQ(index.stats().queries, 1);
  EXPECT_EQ(index.stats().query_tokens, 96);
  EXPECT_EQ(index.stats().hit_tokens, kPageTokens);
}

TEST_F(PrefixIndexTest, TenantsAndSaltsAreWorldsApart) {
  const auto tokens = tokens_of(1, 1);
  publish({"ab", "c"}, tokens);
  EXPECT_EQ(index.peek({"ab", "c"}, tokens), kPageTokens);
  EXPECT_EQ(index.peek({"ab", ""}, tokens), 0);
  EXPECT_EQ(index.peek({"a", "bc"}, tokens), 0);
  EXPECT_EQ(index.peek({"", "c"}, tokens), 0);
}

TEST_F(PrefixIndexTest, PagesInUseStay) {
  publish({"a", ""}, tokens_of(2, 1));
  publish({"a", ""}, tokens_of(1, 2));
  std::vector<PageRef> held;
  ASSERT_EQ(index.find({"a", ""}, tokens_of(2, 1), held), 2 * kPageTokens);
  EXPECT_EQ(index.num_evictable(), 1);
  EXPECT_EQ(index.evict(10), 1);
  EXPECT_EQ(index.peek({"a", ""}, tokens_of(2, 1)), 2 * kPageTokens);
  EXPECT_EQ(index.num_evictable(), 0);
  EXPECT_EQ(index.evict(10), 0);
  held.pop_back();  // as a sequence that is cut
  EXPECT_EQ(index.num_evictable(), 1);
  EXPECT_EQ(index.evict(10), 1);
  held.clear();
  EXPECT_EQ(index.num_evictable(), 1);
  EXPECT_TRUE(index.check_integrity().has_value());
  EXPECT_EQ(index.evict(10), 1);
  EXPECT_EQ(pool->num_free(), pool->num_pages());
}

// The count rests on it, so the check must see it.
TEST_F(PrefixIndexTest, AChildHeldWithoutItsParentIsABreach) {
  publish({"a", ""}, tokens_of(2, 1));
  std::vector<PageRef> held;
  ASSERT_EQ(index.find({"a", ""}, tokens_of(2, 1), held), 2 * kPageTokens);
  EXPECT_TRUE(index.check_integrity().has_value());
  held.erase(held.begin());
  const Status status = index.check_integrity();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "prefix index: 0 pages can be evicted, counted 1");
}

TEST_F(PrefixIndexTest, AFloodOfOneTenantLeavesTheOthersTheirPages) {
  publish({"quiet", ""}, tokens_of(2, 1));
  for (std::int32_t i = 2; i < 40; ++i) {
    if (pool->num_free() == 0) {
      EXPECT_EQ(index.evict(1), 1);
    }
    publish({"flood", std::to_string(i % 3)}, tokens_of(1, i));
  }
  EXPECT_EQ(index.num_pages_of("flood"), 8);  // what is idle may be used
  EXPECT_EQ(index.peek({"quiet", ""}, tokens_of(2, 1)), 2 * kPageTokens);
}

TEST_F(PrefixIndexTest, EndlessNamesDoNotPileUp) {
  for (std::int32_t i = 0; i < 1000; ++i) {
    if (pool->num_free() == 0) {
      EXPECT_EQ(index.evict(1), 1);
    }
    publish({std::to_string(i), std::to_string(i)}, tokens_of(1, i));
    EXPECT_EQ(index.num_pages_of(std::to_string(i)), 1);
  }
  EXPECT_LE(index.num_names(), 20u);
}

TEST_F(PrefixIndexTest, NothingIsTakenInBelowATwin) {
  publish({"a", ""}, tokens_of(1, 1));
  const auto tokens = tokens_of(2, 1);
  KvSequence sequence(*pool);
  ASSERT_TRUE(sequence.reserve(64).has_value());
  sequence.commit(64);
  index.publish({"a", ""}, tokens, sequence.pages());
  EXPECT_EQ(index.num_pages(), 1);
  EXPECT_EQ(index.num_evictable(), 1);
}

TEST_F(PrefixIndexTest, LookingUpAllocatesNothing) {
  const auto tokens = tokens_of(4, 1);
  publish({"a", "s"}, tokens);
  std::vector<PageRef> found;
  found.reserve(4);
  const std::int64_t before = test::num_allocations();
  for (int i = 0; i < 10; ++i) {
    found.clear();
    index.find({"a", "s"}, tokens, found);
    index.publish({"a", "s"}, tokens, found);
    index.num_evictable();
  }
  EXPECT_EQ(test::num_allocations() - before, 0);
  EXPECT_EQ(found.size(), 4u);
}

}  // namespace
}  // namespace trine
