#include "kv/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace trine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KvGeometry tiny_geometry() {
  return {
      .num_layers = 2, .num_kv_heads = 3, .head_dim_k = 4, .head_dim_v = 6, .dtype = DType::kF16};
}

std::unique_ptr<PagePool> make_pool(std::int32_t num_pages) {
  auto pool = PagePool::create(tiny_geometry(), num_pages);
  EXPECT_TRUE(pool.has_value());
  return *std::move(pool);
}

void expect_sound(const PagePool& pool) {
  const Status status = pool.check_integrity();
  EXPECT_TRUE(status.has_value()) << status.error().message;
}

TEST(KvGeometry, BlocksTileThePageWithoutGapsOrOverlap) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    KvGeometry geometry = tiny_geometry();
    geometry.dtype = dtype;
    const std::int64_t element = dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
    const std::int64_t scale = dtype == DType::kI8 ? 2 : 0;
    std::int64_t next = 0;
    for (std::int32_t layer = 0; layer < geometry.num_layers; ++layer) {
      for (std::int32_t head = 0; head < geometry.num_kv_heads; ++head) {
        EXPECT_EQ(geometry.key_offset(layer, head), next);
        EXPECT_EQ(geometry.key_element(5, 2),
                  dtype == DType::kI8 ? 5 * 4 + 2 : (2 * 32 + 5) * element);
        EXPECT_EQ(geometry.key_scale(5), 4 * 32 * element + 5 * scale);
        next += kPageTokens * (4 * element + scale);
      }
      for (std::int32_t head = 0; head < geometry.num_kv_heads; ++head) {
        EXPECT_EQ(geometry.value_offset(layer, head), next);
        // 6 dimensions stand as 16.
        EXPECT_EQ(geometry.value_element(5, 2),
                  dtype == DType::kI8 ? (1 * 16 + 2) * 4 + 1 : (5 * 16 + 2) * element);
        EXPECT_EQ(geometry.value_scale(5), 32 * 16 * element + 5 * scale);
        next += kPageTokens * (16 * element + scale);
      }
    }
    EXPECT_EQ(geometry.page_bytes(), next);
    EXPECT_EQ(geometry.checked_page_bytes(), next);
    EXPECT_EQ(geometry.bytes_per_token() * kPageTokens, next);
  }
}

TEST(KvGeometry, RefusesWhatMakesNoPage) {
  KvGeometry geometry = tiny_geometry();
  geometry.dtype = DType::kQ8_0;
  EXPECT_FALSE(geometry.checked_page_bytes().has_value());
  geometry = tiny_geometry();
  geometry.head_dim_v = 0;
  EXPECT_FALSE(geometry.checked_page_bytes().has_value());
  geometry = tiny_geometry();
  geometry.dtype = DType::kI8;
  geometry.head_dim_k = 1024;
  EXPECT_TRUE(geometry.checked_page_bytes().has_value());
  geometry.head_dim_k = 1025;
  EXPECT_FALSE(geometry.checked_page_bytes().has_value());
  const std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  geometry = {.num_layers = huge, .num_kv_heads = huge, .head_dim_k = huge, .head_dim_v = huge};
  EXPECT_FALSE(geometry.checked_page_bytes().has_value());
  const auto pool = PagePool::create(geometry, 1);
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, ErrorCode::kInvalidArgument);
}

TEST(PagePool, RefusesAPoolLargerThanTheMachine) {
  KvGeometry geometry = tiny_geometry();
  geometry.num_layers = 1 << 16;
  geometry.head_dim_k = 1 << 14;
  const auto pool = PagePool::create(geometry, std::numeric_limits<std::int32_t>::max());
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(pool.error().message, HasSubstr("2147483647 pages of"));
  EXPECT_FALSE(PagePool::create(tiny_geometry(), 0).has_value());
}

// How many of the pool's bytes have memory behind them.
std::size_t resident_bytes(PagePool& pool) {
  const PageRef first = pool.allocate().value();
  const std::size_t system_page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = static_cast<std::size_t>(pool.num_pages()) *
                            static_cast<std::size_t>(pool.geometry().page_bytes());
  std::vector<unsigned char> there((bytes + system_page - 1) / system_page);
  EXPECT_EQ(::mincore(first.data(), bytes, there.data()), 0);
  std::size_t count = 0;
  for (const unsigned char page : there) {
    count += page & 1U;
  }
  return std::min(count * system_page, bytes);
}

TEST(PagePool, PopulateTakesAllMemoryAtOnce) {
  const auto pool = make_pool(1000);
  const std::int64_t bytes = pool->num_pages() * pool->geometry().page_bytes();
  EXPECT_EQ(resident_bytes(*pool), 0u);
  ASSERT_TRUE(pool->populate().has_value());
  EXPECT_EQ(resident_bytes(*pool), static_cast<std::size_t>(bytes));
  EXPECT_EQ(pool->num_free(), pool->num_pages());
  expect_sound(*pool);
}

TEST(PagePool, HandsOutEveryPageOnceLowestFirst) {
  auto pool = make_pool(3);
  std::vector<PageRef> pages;
  for (std::int32_t i = 0; i < 3; ++i) {
    pages.push_back(*pool->allocate());
    EXPECT_EQ(pages.back().index(), i);
    EXPECT_EQ(pages.back().use_count(), 1);
  }
  const auto none = pool->allocate();
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("1 pages (7680 bytes) wanted"),
                                          HasSubstr("0 of 3 pages (0 bytes) free")));
  const std::uint32_t generation = pages[1].generation();
  pages.erase(pages.begin() + 1);
  const PageRef again = *pool->allocate();
  EXPECT_EQ(again.index(), 1);
  EXPECT_NE(again.generation(), generation);
  expect_sound(*pool);
}

TEST(PagePool, CopiesOfAReferenceShareAndTheLastOneReleases) {
  auto pool = make_pool(2);
  PageRef a = *pool->allocate();
  {
    const PageRef b = a;
    EXPECT_EQ(b.data(), a.data());
    EXPECT_EQ(a.use_count(), 2);
    a = PageRef();
    EXPECT_EQ(b.use_count(), 1);
    EXPECT_EQ(pool->num_free(), 1);
  }
  EXPECT_EQ(pool->num_free(), 2);
  expect_sound(*pool);
}

TEST(PagePool, ShuffledOrderDependsOnTheSeedAlone) {
  const auto order = [](std::uint64_t seed) {
    auto pool = make_pool(40);
    pool->set_placement(PagePool::Placement::kShuffled, seed);
    std::vector<PageRef> pages;
    std::vector<std::int32_t> out;
    for (int i = 0; i < 40; ++i) {
      pages.push_back(*pool->allocate());
      out.push_back(pages.back().index());
    }
    expect_sound(*pool);
    EXPECT_EQ(std::set<std::int32_t>(out.begin(), out.end()).size(), 40u);
    return out;
  };
  EXPECT_EQ(order(7), order(7));
  EXPECT_NE(order(7), order(8));
}

TEST(PagePool, PoisonedPagesReadAsNan) {
  auto pool = make_pool(1);
  pool->set_poison(true);
  const PageRef page = *pool->allocate();
  float value = 0.0f;
  std::memcpy(&value, page.data(), sizeof(value));
  EXPECT_TRUE(std::isnan(value));
}

TEST(KvSequence, ReserveIsAllOrNothing) {
  auto pool = make_pool(4);
  KvSequence sequence(*pool);
  ASSERT_TRUE(sequence.reserve(2 * kPageTokens).has_value());
  EXPECT_EQ(sequence.capacity(), 2 * kPageTokens);
  const Status status = sequence.reserve(5 * kPageTokens);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("3 pages"), HasSubstr("2 of 4 pages")));
  EXPECT_EQ(sequence.capacity(), 2 * kPageTokens);
  EXPECT_EQ(pool->num_free(), 2);
  EXPECT_TRUE(sequence.reserve(4 * kPageTokens).has_value());
  EXPECT_TRUE(sequence.reserve(-1).has_value());
}

TEST(KvSequence, ForkSharesAndTheWriterCopiesThePartialPage) {
  auto pool = make_pool(5);
  KvSequence a(*pool);
  ASSERT_TRUE(a.reserve(3 * kPageTokens).has_value());
  a.commit(kPageTokens + 3);
  a.page_data()[1][0] = std::byte{42};
  KvSequence b = a.fork();
  // Pages past the committed length are not the twin's business.
  EXPECT_EQ(b.page_data().size(), 2u);
  EXPECT_EQ(b.page_data()[0], a.page_data()[0]);
  EXPECT_EQ(pool->num_free(), 2);
  ASSERT_TRUE(b.reserve(kPageTokens + 4).has_value());
  EXPECT_EQ(b.page_data()[0], a.page_data()[0]);
  EXPECT_NE(b.page_data()[1], a.page_data()[1]);
  EXPECT_EQ(b.page_data()[1][0], std::byte{42});
  EXPECT_EQ(pool->num_free(), 1);
  // The other side owns its page alone now.
  std::byte* const before = a.page_data()[1];
  ASSERT_TRUE(a.reserve(kPageTokens + 4).has_value());
  EXPECT_EQ(a.page_data()[1], before);
  expect_sound(*pool);
}

TEST(KvSequence, ForkOfAFullPageNeedsNoCopy) {
  auto pool = make_pool(3);
  KvSequence a(*pool);
  ASSERT_TRUE(a.reserve(kPageTokens).has_value());
  a.commit(kPageTokens);
  KvSequence b = a.fork();
  ASSERT_TRUE(b.reserve(kPageTokens + 1).has_value());
  ASSERT_TRUE(a.reserve(kPageTokens + 1).has_value());
  EXPECT_EQ(a.page_data()[0], b.page_data()[0]);
  EXPECT_NE(a.page_data()[1], b.page_data()[1]);
  EXPECT_EQ(pool->num_free(), 0);
}

TEST(KvSequence, CopyThatDoesNotFitTakesNothing) {
  auto pool = make_pool(1);
  KvSequence a(*pool);
  ASSERT_TRUE(a.reserve(1).has_value());
  a.commit(1);
  KvSequence b = a.fork();
  EXPECT_FALSE(b.reserve(2).has_value());
  EXPECT_EQ(b.page_data()[0], a.page_data()[0]);
  EXPECT_EQ(b.length(), 1);
}

TEST(KvSequence, TruncateReleasesWholePagesAndProtectsTheShared) {
  auto pool = make_pool(6);
  KvSequence a(*pool);
  ASSERT_TRUE(a.reserve(3 * kPageTokens).has_value());
  a.commit(3 * kPageTokens);
  KvSequence b = a.fork();
  b.truncate(kPageTokens + 1);
  EXPECT_EQ(b.page_data().size(), 2u);
  ASSERT_TRUE(b.reserve(kPageTokens + 2).has_value());
  EXPECT_NE(b.page_data()[1], a.page_data()[1]);  // b would overwrite a's committed rows
  b.truncate(0);
  EXPECT_TRUE(b.page_data().empty());
  EXPECT_EQ(pool->num_free(), 3);
  expect_sound(*pool);
}

TEST(KvSequence, MovedSequenceKeepsItsPages) {
  auto pool = make_pool(2);
  KvSequence a(*pool);
  ASSERT_TRUE(a.reserve(kPageTokens + 1).has_value());
  a.commit(2);
  std::byte* const page = a.page_data()[1];
  const KvSequence b = std::move(a);
  EXPECT_EQ(b.page_data()[1], page);
  EXPECT_EQ(b.length(), 2);
  EXPECT_EQ(pool->num_free(), 0);
}

TEST(KvSequenceDeathTest, CommitPastTheReservationIsABug) {
  auto pool = make_pool(1);
  KvSequence a(*pool);
  EXPECT_DEATH(a.commit(1), "internal check failed");
  ASSERT_TRUE(a.reserve(1).has_value());
  EXPECT_DEATH(a.commit(kPageTokens + 1), "internal check failed");
}

}  // namespace
}  // namespace trine
