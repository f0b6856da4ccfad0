// Prefix cache: finds pages whose keys and values belong to the beginning of a prompt.
//
// A tree of whole pages. A node is a page's tokens below its parent; the root is the pair (tenant,
// salt), so two tenants never see each other's pages, not even by timing. Nodes are looked up by
// a hash chained from the root (SipHash-2-4: Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012) under a secret key, and a hit also compares parent and tokens, so a collision costs
// time and never gives a wrong page. Since a page's bytes are a function of the tokens up to its
// end alone (docs/numerics.md), a hit changes no result.
//
// The index holds one reference per page. Eviction takes the least recently used leaf whose page
// nobody else holds; using a node also uses its parents, later, so parents outlive children. A
// tenant that holds more than its share is evicted before all others, but may use what is idle.
// Errors: none; publishing is best effort. Nothing is allocated by find() once `pages` has room,
// and by publish() only for a root not seen lately. Thread rule: belongs to the engine thread, as
// its pool does, which outlives it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kv/kv_cache.h"

namespace trine {

// SipHash-2-4 of 64-bit words, taken as their little-endian bytes. The key is secret: whoever knows
// it can make collisions, which slow the index down.
std::uint64_t siphash(const std::array<std::uint64_t, 2>& key,
                      std::span<const std::uint64_t> words);

// Who may share pages: both parts must be equal.
struct PrefixRoot {
  std::string_view tenant;
  std::string_view salt;
};

class PrefixIndex {
 public:
  struct Options {
    std::array<std::uint64_t, 2> key{};  // random per process
    // Part of the pool's pages, in (0, 1], above which a tenant's pages are evicted before others'.
    double tenant_share = 0.5;
    std::uint64_t hash_mask = ~std::uint64_t{0};  // tests keep few bits, to make collisions
  };

  struct Stats {
    std::int64_t queries = 0;       // calls of find()
    std::int64_t query_tokens = 0;  // tokens asked for
    std::int64_t hit_tokens = 0;    // tokens found
    std::int64_t published = 0;     // pages taken in
    std::int64_t evicted = 0;       // pages given up
  };

  PrefixIndex(PagePool& pool, const Options& options);

  // Appends the pages of the longest known beginning of `tokens` and returns how many tokens they
  // hold, a multiple of kPageTokens. To draw from a prompt its last token must be computed: leave
  // it out.
  std::int32_t find(const PrefixRoot& root, std::span<const std::int32_t> tokens,
                    std::vector<PageRef>& pages);
  // The same number, with no trace.
  std::int32_t peek(const PrefixRoot& root, std::span<const std::int32_t> tokens) const;
  // Takes in the whole pages of `tokens`, all of them written and committed; pages[i] holds tokens
  // [i * kPageTokens, (i + 1) * kPageTokens). Ends at the first page whose tokens are known in
  // another page, the work of two requests at once.
  void publish(const PrefixRoot& root, std::span<const std::int32_t> tokens,
               std::span<const PageRef> pages);
  // Gives up to `wanted` pages back to the pool; returns how many.
  std::int32_t evict(std::int32_t wanted);
  // How many evict() could give back now. A count, right as long as whoever holds one of the pages
  // holds those before it too, as sequences do.
  std::int32_t num_evictable() const;
  // Gives up everything; pages that sequences hold live on there.
  void clear();

  std::int32_t num_pages() const { return num_nodes_; }

  std::int32_t num_pages_of(std::string_view tenant) const;

  // Tenants and roots that take memory: never more of each than the pool has pages.
  std::size_t num_names() const { return tenants_.size() + roots_.size(); }

  const Stats& stats() const { return stats_; }

  // Lists, counts, hashes and the order of parents agree; a violation is described.
  Status check_integrity() const;

 private:
  static constexpr std::int32_t kNone = -1;

  struct Tenant {
    std::string name;
    std::int32_t num_pages = 0;
  };

  struct Root {
    std::string salt;
    std::int32_t tenant = kNone;
    std::uint64_t hash = 0;
    std::int32_t num_pages = 0;  // 0: free to be renamed
  };

  struct Node {
    std::uint64_t hash = 0;
    std::array<std::int32_t, kPageTokens> tokens{};
    PageRef page;  // invalid: the node is free
    std::int32_t root = kNone;
    std::int32_t parent = kNone;  // kNone: a child of the root
    std::int32_t num_children = 0;
    std::int32_t next_in_bucket = kNone;  // also links free nodes
    std::int32_t newer = kNone;
    std::int32_t older = kNone;
  };

  using Page = std::span<const std::int32_t>;

  std::uint64_t hash_root(const PrefixRoot& root) const;
  std::uint64_t hash_page(std::uint64_t parent, Page tokens) const;
  std::int32_t find_root(const PrefixRoot& root) const;
  std::int32_t add_root(const PrefixRoot& root);
  std::int32_t find_node(std::int32_t root, std::int32_t parent, std::uint64_t hash,
                         Page tokens) const;
  std::int32_t add_node(std::int32_t root, std::int32_t parent, std::uint64_t hash, Page tokens,
                        const PageRef& page);
  std::int32_t last_known(std::int32_t root, std::span<const std::int32_t> tokens) const;

  std::size_t bucket_of(std::uint64_t hash) const { return hash & (buckets_.size() - 1); }

  void link_newest(std::int32_t at);
  void unlink(std::int32_t at);
  void touch_path(std::int32_t leaf);
  void remove(std::int32_t at);
  std::int32_t evict_pass(std::int32_t wanted, bool only_over_share);
  Status check_node(std::int32_t at) const;

  PagePool& pool_;
  Options options_;
  std::int32_t share_pages_ = 0;
  std::vector<Tenant> tenants_;  // few; names are found by walking them
  std::vector<Root> roots_;
  std::vector<Node> nodes_;  // one per page of the pool
  std::vector<std::int32_t> buckets_;
  std::int32_t first_free_ = kNone;
  std::int32_t newest_ = kNone;
  std::int32_t oldest_ = kNone;
  std::int32_t num_nodes_ = 0;
  Stats stats_;
};

}  // namespace trine
