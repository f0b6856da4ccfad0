// Random lives of several sequences over one small pool, beside a twin that keeps every token in a
// plain vector and counts pages by first principles. After every operation all committed bytes,
// lengths and the number of free pages agree.
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kv/kv_cache.h"

namespace trine {
namespace {

constexpr std::int32_t kPoolPages = 9;
constexpr KvGeometry kGeometry{
    .num_layers = 1, .num_kv_heads = 1, .head_dim_k = 1, .head_dim_v = 1, .dtype = DType::kF32};

// What a sequence should contain: one number per committed token.
struct Twin {
  std::vector<std::int32_t> tokens;
};

std::int32_t* slot(const KvSequence& sequence, std::int32_t position) {
  std::byte* page = sequence.page_data()[static_cast<std::size_t>(position / kPageTokens)];
  const std::int64_t offset = kGeometry.key_offset(0, 0) + position % kPageTokens * 4;
  return reinterpret_cast<std::int32_t*>(page + offset);
}

class World {
 public:
  World(bool shuffled, std::uint64_t seed) : pool_(*PagePool::create(kGeometry, kPoolPages)) {
    pool_->set_placement(
        shuffled ? PagePool::Placement::kShuffled : PagePool::Placement::kLowestFirst, seed);
    pool_->set_poison(true);
    add(KvSequence(*pool_), Twin{});
  }

  std::size_t size() const { return sequences_.size(); }

  void fork(std::size_t at) {
    if (sequences_.size() < 5) {
      add(sequences_[at].fork(), twins_[at]);
    }
  }

  void drop(std::size_t at) {
    if (sequences_.size() > 1) {
      sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(at));
      twins_.erase(twins_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  void truncate(std::size_t at, std::int32_t length) {
    const std::int32_t to = length % (sequences_[at].length() + 1);
    sequences_[at].truncate(to);
    twins_[at].tokens.resize(static_cast<std::size_t>(to));
  }

  // Reserves `count` more tokens, writes them all, commits `kept` of them: a step with rejected
  // drafts.
  void step(std::size_t at, std::int32_t count, std::int32_t kept) {
    KvSequence& sequence = sequences_[at];
    const std::int32_t start = sequence.length();
    const std::int32_t free_before = pool_->num_free();
    const std::int32_t wanted = pages_wanted(at, start + count);
    const Status status = sequence.reserve(start + count);
    RC_ASSERT(status.has_value() == (wanted <= free_before));
    RC_ASSERT(pool_->num_free() == free_before - (status.has_value() ? wanted : 0));
    if (!status.has_value()) {
      return;
    }
    for (std::int32_t i = 0; i < count; ++i) {
      *slot(sequence, start + i) = next_value_;
      if (i < kept) {
        twins_[at].tokens.push_back(next_value_);
      }
      ++next_value_;
    }
    sequence.commit(kept);
  }

  void check() const {
    const Status status = pool_->check_integrity();
    RC_ASSERT(status.has_value());
    std::set<std::int32_t> used;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const KvSequence& sequence = sequences_[i];
      RC_ASSERT(sequence.length() == static_cast<std::int32_t>(twins_[i].tokens.size()));
      RC_ASSERT(sequence.pages().size() == sequence.page_data().size());
      for (std::int32_t position = 0; position < sequence.length(); ++position) {
        RC_ASSERT(*slot(sequence, position) ==
                  twins_[i].tokens[static_cast<std::size_t>(position)]);
      }
      for (std::size_t p = 0; p < sequence.pages().size(); ++p) {
        used.insert(sequence.pages()[p].index());
        RC_ASSERT(sequence.pages()[p].data() == sequence.page_data()[p]);
      }
    }
    // No page lost, none handed out twice.
    RC_ASSERT(pool_->num_free() == kPoolPages - static_cast<std::int32_t>(used.size()));
  }

 private:
  void add(KvSequence sequence, Twin twin) {
    sequences_.push_back(std::move(sequence));
    twins_.push_back(std::move(twin));
  }

  // Pages that reserve(upto) must take: missing ones, and writable ones that another sequence also
  // holds.
  std::int32_t pages_wanted(std::size_t at, std::int32_t upto) const {
    const KvSequence& sequence = sequences_[at];
    if (upto <= sequence.length()) {
      return 0;
    }
    std::map<std::int32_t, int> holders;
    for (const KvSequence& other : sequences_) {
      for (const PageRef& page : other.pages()) {
        ++holders[page.index()];
      }
    }
    std::int32_t wanted = 0;
    for (std::int32_t p = sequence.length() / kPageTokens; p * kPageTokens < upto; ++p) {
      const auto i = static_cast<std::size_t>(p);
      const bool missing = i >= sequence.pages().size();
      wanted += missing || holders[sequence.pages()[i].index()] > 1 ? 1 : 0;
    }
    return wanted;
  }

  std::unique_ptr<PagePool> pool_;
  std::vector<KvSequence> sequences_;
  std::vector<Twin> twins_;
  std::int32_t next_value_ = 1;
};

RC_GTEST_PROP(KvCacheProperty, AgreesWithANaiveTwin, (bool shuffled, std::uint64_t seed)) {
  World world(shuffled, seed);
  const auto num_ops = *rc::gen::inRange(1, 80);
  for (int i = 0; i < num_ops; ++i) {
    const auto op = *rc::gen::inRange(0, 10);
    const auto at = *rc::gen::inRange<std::size_t>(0, world.size());
    if (op == 0) {
      world.fork(at);
    } else if (op == 1) {
      world.drop(at);
    } else if (op == 2) {
      world.truncate(at, *rc::gen::inRange(0, 200));
    } else {
      const auto count = *rc::gen::weightedOneOf<int>({{3, rc::gen::inRange(0, 4)},
                                                       {2, rc::gen::inRange(0, 80)},
                                                       {1, rc::gen::inRange(0, 400)}});
      world.step(at, count, count == 0 ? 0 : *rc::gen::inRange(0, count + 1));
    }
    world.check();
  }
}

}  // namespace
}  // namespace trine
