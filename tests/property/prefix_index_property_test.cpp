// The prefix index against a naive twin: a list of (root, beginning, page, time of last use), with
// a hash of three bits, so that nearly everything collides.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kv/prefix_index.h"

namespace trine {
namespace {

constexpr std::int32_t kPoolPages = 12;
constexpr double kShare = 0.4;
constexpr KvGeometry kGeometry{
    .num_layers = 1, .num_kv_heads = 1, .head_dim_k = 1, .head_dim_v = 1, .dtype = DType::kF32};

using Tokens = std::vector<std::int32_t>;

struct Entry {
  std::string tenant;
  std::string salt;
  Tokens tokens;  // from the root to the page's end
  std::int32_t page = 0;
  std::int64_t used = 0;
};

bool begins_with(const Tokens& text, const Tokens& beginning) {
  return beginning.size() <= text.size() &&
         std::equal(beginning.begin(), beginning.end(), text.begin());
}

struct Live {
  Tokens tokens;
  KvSequence sequence;
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : pool_(*PagePool::create(kGeometry, kPoolPages)),
        index_(*pool_, {.key = {seed, 7}, .tenant_share = kShare, .hash_mask = 7}) {}

  // A request comes: takes what is known, computes the rest, publishes it.
  void start(const std::string& tenant, const std::string& salt, Tokens tokens) {
    std::vector<PageRef> pages;
    const std::int32_t found = index_.find({tenant, salt}, tokens, pages);
    Tokens beginning;
    for (std::size_t i = 0;; ++i) {
      const std::size_t end = (i + 1) * kPageTokens;
      const Entry* entry =
          end <= tokens.size()
              ? lookup(tenant, salt,
                       Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)))
              : nullptr;
      RC_ASSERT((entry != nullptr) == (i < pages.size()));
      if (entry == nullptr) {
        break;
      }
      RC_ASSERT(entry->page == pages[i].index());
    }
    RC_ASSERT(found == static_cast<std::int32_t>(pages.size()) * kPageTokens);
    touch(tenant, salt, Tokens(tokens.begin(), tokens.begin() + found));
    KvSequence sequence(*pool_);
    sequence.adopt(pages);
    pages.clear();
    const auto length = static_cast<std::int32_t>(tokens.size());
    if (!sequence.reserve(length).has_value()) {
      return;
    }
    sequence.commit(length - found);
    live_.push_back({std::move(tokens), std::move(sequence)});
    publish(tenant, salt, live_.back());
  }

  void publish(const std::string& tenant, const std::string& salt, const Live& live) {
    index_.publish({tenant, salt}, live.tokens, live.sequence.pages());
    const std::size_t whole = live.tokens.size() / kPageTokens * kPageTokens;
    Tokens used;
    for (std::size_t end = kPageTokens; end <= whole; end += kPageTokens) {
      Tokens beginning(live.tokens.begin(), live.tokens.begin() + static_cast<std::ptrdiff_t>(end));
      const std::int32_t page = live.sequence.pages()[end / kPageTokens - 1].index();
      const Entry* known = lookup(tenant, salt, beginning);
      if (known != nullptr && known->page != page) {
        break;
      }
      if (known == nullptr) {
        entries_.push_back({tenant, salt, beginning, page, 0});
      }
      used = std::move(beginning);
    }
    touch(tenant, salt, used);
  }

  void drop(std::size_t at) {
    if (!live_.empty()) {
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at % live_.size()));
    }
  }

  void evict(std::int32_t wanted) {
    std::int32_t most = 0;
    const std::vector<Entry> kept = entries_;
    while (evict_one(false)) {
      ++most;
    }
    entries_ = kept;
    RC_ASSERT(index_.num_evictable() == most);
    const std::int32_t free_before = pool_->num_free();
    std::int32_t freed = 0;
    while (freed < wanted && evict_one(true)) {
      ++freed;
    }
    while (freed < wanted && evict_one(false)) {
      ++freed;
    }
    RC_ASSERT(index_.evict(wanted) == freed);
    RC_ASSERT(pool_->num_free() == free_before + freed);
  }

  void check() const {
    const Status status = index_.check_integrity();
    RC_ASSERT(status.has_value());
    RC_ASSERT(pool_->check_integrity().has_value());
    RC_ASSERT(index_.num_pages() == static_cast<std::int32_t>(entries_.size()));
    for (const Entry& entry : entries_) {
      RC_ASSERT(index_.peek({entry.tenant, entry.salt}, entry.tokens) ==
                static_cast<std::int32_t>(entry.tokens.size()));
    }
  }

 private:
  const Entry* lookup(const std::string& tenant, const std::string& salt,
                      const Tokens& tokens) const {
    for (const Entry& entry : entries_) {
      if (entry.tenant == tenant && entry.salt == salt && entry.tokens == tokens) {
        return &entry;
      }
    }
    return nullptr;
  }

  // Longer beginnings get the earlier times.
  void touch(const std::string& tenant, const std::string& salt, const Tokens& tokens) {
    now_ += 100;
    for (Entry& entry : entries_) {
      if (entry.tenant == tenant && entry.salt == salt && begins_with(tokens, entry.tokens)) {
        entry.used = now_ - static_cast<std::int64_t>(entry.tokens.size() / kPageTokens);
      }
    }
  }

  bool in_use(std::int32_t page) const {
    return std::any_of(live_.begin(), live_.end(), [&](const Live& live) {
      return std::any_of(live.sequence.pages().begin(), live.sequence.pages().end(),
                         [&](const PageRef& ref) { return ref.index() == page; });
    });
  }

  bool is_leaf(const Entry& parent) const {
    return std::none_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.tenant == parent.tenant && entry.salt == parent.salt &&
             entry.tokens.size() > parent.tokens.size() && begins_with(entry.tokens, parent.tokens);
    });
  }

  bool evict_one(bool only_over_share) {
    std::map<std::string, std::int32_t> held;
    for (const Entry& entry : entries_) {
      ++held[entry.tenant];
    }
    auto victim = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const bool allowed =
          !only_over_share || held[it->tenant] > static_cast<std::int32_t>(kShare * kPoolPages);
      if (allowed && is_leaf(*it) && !in_use(it->page) &&
          (victim == entries_.end() || it->used < victim->used)) {
        victim = it;
      }
    }
    if (victim == entries_.end()) {
      return false;
    }
    entries_.erase(victim);
    return true;
  }

  std::unique_ptr<PagePool> pool_;
  PrefixIndex index_;
  std::vector<Live> live_;
  std::vector<Entry> entries_;
  std::int64_t now_ = 0;
};

// Pages of few kinds, so that beginnings are shared; kinds differ in their last token only.
Tokens random_tokens() {
  Tokens out;
  const int pages = *rc::gen::inRange(0, 5);
  for (int i = 0; i < pages; ++i) {
    out.insert(out.end(), kPageTokens, 5);
    out.back() = *rc::gen::inRange(0, 2);
  }
  out.insert(out.end(), static_cast<std::size_t>(*rc::gen::inRange(0, 3)), 5);
  return out;
}

RC_GTEST_PROP(PrefixIndexProperty, AgreesWithANaiveTwin, (std::uint64_t seed)) {
  World world(seed);
  const auto num_ops = *rc::gen::inRange(1, 60);
  for (int i = 0; i < num_ops; ++i) {
    const auto op = *rc::gen::inRange(0, 8);
    if (op < 4) {
      world.start(*rc::gen::element<std::string>("a", "b"), *rc::gen::element<std::string>("", "x"),
                  random_tokens());
    } else if (op < 6) {
      world.drop(*rc::gen::inRange<std::size_t>(0, 100));
    } else {
      world.evict(*rc::gen::inRange(0, 6));
    }
    world.check();
  }
}

}  // namespace
}  // namespace trine
