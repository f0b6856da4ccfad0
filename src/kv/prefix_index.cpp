#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace trine {

namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  explicit SipState(const std::array<std::uint64_t, 2>& key)
      : v0(key[0] ^ 0x736f6d6570736575u),
        v1(key[1] ^ 0x646f72616e646f6du),
        v2(key[0] ^ 0x6c7967656e657261u),
        v3(key[1] ^ 0x7465646279746573u) {}

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }

  void add(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }

  std::uint64_t finish(std::uint64_t num_words) {
    add((num_words * 8) << 56);  // no bytes left over, so the last word is the length alone
    v2 ^= 0xff;
    for (int i = 0; i < 4; ++i) {
      round();
    }
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// Length first, so that ("ab", "c") and ("a", "bc") differ.
std::uint64_t add_text(SipState& state, std::string_view text) {
  state.add(text.size());
  std::uint64_t num_words = 1;
  for (std::size_t i = 0; i < text.size(); i += 8, ++num_words) {
    std::uint64_t word = 0;
    for (std::size_t j = i; j < std::min(i + 8, text.size()); ++j) {
      word |= std::uint64_t{static_cast<unsigned char>(text[j])} << (8 * (j - i));
    }
    state.add(word);
  }
  return num_words;
}

}  // namespace

std::uint64_t siphash(const std::array<std::uint64_t, 2>& key,
                      std::span<const std::uint64_t> words) {
  SipState state(key);
  for (const std::uint64_t word : words) {
    state.add(word);
  }
  return state.finish(words.size());
}

PrefixIndex::PrefixIndex(PagePool& pool, const Options& options) : pool_(pool), options_(options) {
  TRINE_CHECK(options.tenant_share > 0.0 && options.tenant_share <= 1.0);
  const auto count = static_cast<std::size_t>(pool.num_pages());
  share_pages_ = static_cast<std::int32_t>(options.tenant_share * pool.num_pages());
  nodes_.resize(count);
  for (std::size_t i = count; i-- > 0;) {
    nodes_[i].next_in_bucket = first_free_;
    first_free_ = static_cast<std::int32_t>(i);
  }
  buckets_.assign(std::bit_ceil(count), kNone);
}

std::uint64_t PrefixIndex::hash_root(const PrefixRoot& root) const {
  SipState state(options_.key);
  const std::uint64_t tenant_words = add_text(state, root.tenant);
  const std::uint64_t salt_words = add_text(state, root.salt);
  return state.finish(tenant_words + salt_words) & options_.hash_mask;
}

std::uint64_t PrefixIndex::hash_page(std::uint64_t parent, Page tokens) const {
  SipState state(options_.key);
  state.add(parent);
  for (std::size_t i = 0; i < tokens.size(); i += 2) {
    state.add(std::uint64_t{static_cast<std::uint32_t>(tokens[i])} |
              std::uint64_t{static_cast<std::uint32_t>(tokens[i + 1])} << 32);
  }
  return state.finish(1 + tokens.size() / 2) & options_.hash_mask;
}

std::int32_t PrefixIndex::find_root(const PrefixRoot& root) const {
  const std::uint64_t hash = hash_root(root);
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    const Root& known = roots_[i];
    if (known.num_pages > 0 && known.hash == hash && known.salt == root.salt &&
        tenants_[static_cast<std::size_t>(known.tenant)].name == root.tenant) {
      return static_cast<std::int32_t>(i);
    }
  }
  return kNone;
}

// Roots and tenants without pages are renamed, so neither list outgrows the number of pages,
// whatever names requests come up with.
std::int32_t PrefixIndex::add_root(const PrefixRoot& root) {
  auto tenant = std::find_if(tenants_.begin(), tenants_.end(), [&](const Tenant& known) {
    return known.num_pages > 0 && known.name == root.tenant;
  });
  if (tenant == tenants_.end()) {
    tenant = std::find_if(tenants_.begin(), tenants_.end(),
                          [](const Tenant& known) { return known.num_pages == 0; });
    if (tenant == tenants_.end()) {
      tenant = tenants_.emplace(tenants_.end());
    }
    tenant->name = root.tenant;
  }
  auto slot = std::find_if(roots_.begin(), roots_.end(),
                           [](const Root& known) { return known.num_pages == 0; });
  if (slot == roots_.end()) {
    slot = roots_.emplace(roots_.end());
  }
  slot->salt = root.salt;
  slot->tenant = static_cast<std::int32_t>(tenant - tenants_.begin());
  slot->hash = hash_root(root);
  return static_cast<std::int32_t>(slot - roots_.begin());
}

std::int32_t PrefixIndex::find_node(std::int32_t root, std::int32_t parent, std::uint64_t hash,
                                    Page tokens) const {
  for (std::int32_t at = buckets_[bucket_of(hash)]; at != kNone;) {
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    if (node.hash == hash && node.root == root && node.parent == parent &&
        std::equal(tokens.begin(), tokens.end(), node.tokens.begin())) {
      return at;
    }
    at = node.next_in_bucket;
  }
  return kNone;
}

std::int32_t PrefixIndex::last_known(std::int32_t root,
                                     std::span<const std::int32_t> tokens) const {
  if (root == kNone) {
    return kNone;
  }
  std::int32_t parent = kNone;
  std::uint64_t hash = roots_[static_cast<std::size_t>(root)].hash;
  for (std::size_t i = 0; i + kPageTokens <= tokens.size(); i += kPageTokens) {
    const Page page = tokens.subspan(i, kPageTokens);
    hash = hash_page(hash, page);
    const std::int32_t at = find_node(root, parent, hash, page);
    if (at == kNone) {
      break;
    }
    parent = at;
  }
  return parent;
}

std::int32_t PrefixIndex::find(const PrefixRoot& root, std::span<const std::int32_t> tokens,
                               std::vector<PageRef>& pages) {
  ++stats_.queries;
  stats_.query_tokens += static_cast<std::int64_t>(tokens.size());
  const std::int32_t last = last_known(find_root(root), tokens);
  std::int32_t depth = 0;
  for (std::int32_t at = last; at != kNone; at = nodes_[static_cast<std::size_t>(at)].parent) {
    ++depth;
  }
  const std::size_t start = pages.size();
  pages.resize(start + static_cast<std::size_t>(depth));
  std::size_t i = pages.size();
  for (std::int32_t at = last; at != kNone; at = nodes_[static_cast<std::size_t>(at)].parent) {
    pages[--i] = nodes_[static_cast<std::size_t>(at)].page;
  }
  touch_path(last);
  stats_.hit_tokens += std::int64_t{depth} * kPageTokens;
  return depth * kPageTokens;
}

std::int32_t PrefixIndex::peek(const PrefixRoot& root, std::span<const std::int32_t> tokens) const {
  std::int32_t count = 0;
  for (std::int32_t at = last_known(find_root(root), tokens); at != kNone;
       at = nodes_[static_cast<std::size_t>(at)].parent) {
    count += kPageTokens;
  }
  return count;
}

void PrefixIndex::publish(const PrefixRoot& root, std::span<const std::int32_t> tokens,
                          std::span<const PageRef> pages) {
  const std::size_t count = tokens.size() / kPageTokens;
  TRINE_CHECK(count <= pages.size());
  if (count == 0) {
    return;
  }
  std::int32_t root_idx = find_root(root);
  if (root_idx == kNone) {
    if (first_free_ == kNone && evict(1) == 0) {
      return;
    }
    root_idx = add_root(root);
  }
  std::int32_t parent = kNone;
  std::uint64_t hash = roots_[static_cast<std::size_t>(root_idx)].hash;
  for (std::size_t i = 0; i < count; ++i) {
    const Page page = tokens.subspan(i * kPageTokens, kPageTokens);
    hash = hash_page(hash, page);
    std::int32_t at = find_node(root_idx, parent, hash, page);
    if (at == kNone) {
      at = add_node(root_idx, parent, hash, page, pages[i]);
    }
    // Below a twin of this page nothing is taken in: who holds a child must hold its parents too,
    // or a page in use would keep idle parents from eviction.
    if (at == kNone || nodes_[static_cast<std::size_t>(at)].page.index() != pages[i].index()) {
      break;
    }
    parent = at;
  }
  touch_path(parent);
}

// kNone when every node is taken: the index already holds as many pages as the pool has.
std::int32_t PrefixIndex::add_node(std::int32_t root, std::int32_t parent, std::uint64_t hash,
                                   Page tokens, const PageRef& page) {
  TRINE_CHECK(page.valid());
  if (first_free_ == kNone) {
    return kNone;
  }
  const std::int32_t at = first_free_;
  Node& node = nodes_[static_cast<std::size_t>(at)];
  first_free_ = node.next_in_bucket;
  node.hash = hash;
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.page = page;
  pool_.set_cached(page, true);
  node.root = root;
  node.parent = parent;
  node.num_children = 0;
  node.next_in_bucket = buckets_[bucket_of(hash)];
  buckets_[bucket_of(hash)] = at;
  if (parent != kNone) {
    ++nodes_[static_cast<std::size_t>(parent)].num_children;
  }
  link_newest(at);
  Root& owner = roots_[static_cast<std::size_t>(root)];
  ++owner.num_pages;
  ++tenants_[static_cast<std::size_t>(owner.tenant)].num_pages;
  ++num_nodes_;
  ++stats_.published;
  return at;
}

void PrefixIndex::link_newest(std::int32_t at) {
  Node& node = nodes_[static_cast<std::size_t>(at)];
  node.newer = kNone;
  node.older = newest_;
  if (newest_ != kNone) {
    nodes_[static_cast<std::size_t>(newest_)].newer = at;
  }
  newest_ = at;
  if (oldest_ == kNone) {
    oldest_ = at;
  }
}

void PrefixIndex::unlink(std::int32_t at) {
  const Node& node = nodes_[static_cast<std::size_t>(at)];
  (node.newer == kNone ? newest_ : nodes_[static_cast<std::size_t>(node.newer)].older) = node.older;
  (node.older == kNone ? oldest_ : nodes_[static_cast<std::size_t>(node.older)].newer) = node.newer;
}

// Leaf first, so that a parent is always newer than its children and eviction, which starts at the
// oldest, meets children before parents.
void PrefixIndex::touch_path(std::int32_t leaf) {
  for (std::int32_t at = leaf; at != kNone; at = nodes_[static_cast<std::size_t>(at)].parent) {
    unlink(at);
    link_newest(at);
  }
}

void PrefixIndex::remove(std::int32_t at) {
  Node& node = nodes_[static_cast<std::size_t>(at)];
  std::int32_t* link = &buckets_[bucket_of(node.hash)];
  while (*link != at) {
    link = &nodes_[static_cast<std::size_t>(*link)].next_in_bucket;
  }
  *link = node.next_in_bucket;
  unlink(at);
  if (node.parent != kNone) {
    --nodes_[static_cast<std::size_t>(node.parent)].num_children;
  }
  Root& owner = roots_[static_cast<std::size_t>(node.root)];
  --owner.num_pages;
  --tenants_[static_cast<std::size_t>(owner.tenant)].num_pages;
  --num_nodes_;
  ++stats_.evicted;
  pool_.set_cached(node.page, false);
  node.page = PageRef();
  node.root = kNone;
  node.parent = kNone;
  node.next_in_bucket = first_free_;
  first_free_ = at;
}

std::int32_t PrefixIndex::evict_pass(std::int32_t wanted, bool only_over_share) {
  std::int32_t freed = 0;
  for (std::int32_t at = oldest_; at != kNone && freed < wanted;) {
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    const std::int32_t next = node.newer;
    const Root& owner = roots_[static_cast<std::size_t>(node.root)];
    const bool over = tenants_[static_cast<std::size_t>(owner.tenant)].num_pages > share_pages_;
    if (node.num_children == 0 && node.page.use_count() == 1 && (over || !only_over_share)) {
      remove(at);
      ++freed;
    }
    at = next;
  }
  return freed;
}

std::int32_t PrefixIndex::evict(std::int32_t wanted) {
  const std::int32_t freed = evict_pass(wanted, true);
  return freed + evict_pass(wanted - freed, false);
}

// Whoever holds a page holds its parents too (publish() and adopt() see to it), so a page that the
// index alone holds has no child in use, and evict() gets it.
std::int32_t PrefixIndex::num_evictable() const {
  return pool_.num_idle_cached();
}

void PrefixIndex::clear() {
  while (oldest_ != kNone) {
    remove(oldest_);
  }
}

std::int32_t PrefixIndex::num_pages_of(std::string_view tenant) const {
  for (const Tenant& known : tenants_) {
    if (known.num_pages > 0 && known.name == tenant) {
      return known.num_pages;
    }
  }
  return 0;
}

Status PrefixIndex::check_node(std::int32_t at) const {
  const Node& node = nodes_[static_cast<std::size_t>(at)];
  if (!node.page.valid() || node.root == kNone) {
    return fail(ErrorCode::kInternal, "prefix index: listed node {} is free", at);
  }
  std::uint64_t parent_hash = roots_[static_cast<std::size_t>(node.root)].hash;
  if (node.parent != kNone) {
    const Node& parent = nodes_[static_cast<std::size_t>(node.parent)];
    parent_hash = parent.hash;
    if (!parent.page.valid() || parent.root != node.root) {
      return fail(ErrorCode::kInternal, "prefix index: node {} lost its parent {}", at,
                  node.parent);
    }
  }
  if (node.hash != hash_page(parent_hash, node.tokens) ||
      find_node(node.root, node.parent, node.hash, node.tokens) != at) {
    return fail(ErrorCode::kInternal, "prefix index: node {} is not found by its tokens", at);
  }
  return {};
}

Status PrefixIndex::check_integrity() const {
  std::vector<std::int32_t> children(nodes_.size(), 0);
  std::vector<std::int32_t> root_pages(roots_.size(), 0);
  std::vector<std::int32_t> tenant_pages(tenants_.size(), 0);
  std::vector<bool> stays(nodes_.size(), false);  // in use, or above one that is
  std::int32_t evictable = 0;
  std::int32_t count = 0;
  for (std::int32_t at = oldest_; at != kNone; at = nodes_[static_cast<std::size_t>(at)].newer) {
    if (++count > num_nodes_) {
      break;
    }
    TRINE_TRY(check_node(at));
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    // All children were met already, because they are older.
    if (children[static_cast<std::size_t>(at)] != node.num_children) {
      return fail(ErrorCode::kInternal, "prefix index: node {} has {} older children, counted {}",
                  at, children[static_cast<std::size_t>(at)], node.num_children);
    }
    const bool in_use = stays[static_cast<std::size_t>(at)] || node.page.use_count() > 1;
    evictable += in_use ? 0 : 1;
    if (node.parent != kNone) {
      ++children[static_cast<std::size_t>(node.parent)];
      stays[static_cast<std::size_t>(node.parent)] =
          stays[static_cast<std::size_t>(node.parent)] || in_use;
    }
    const auto root = static_cast<std::size_t>(node.root);
    ++root_pages[root];
    ++tenant_pages[static_cast<std::size_t>(roots_[root].tenant)];
  }
  if (count != num_nodes_) {
    return fail(ErrorCode::kInternal, "prefix index: {} nodes in the list, {} counted", count,
                num_nodes_);
  }
  if (evictable != num_evictable()) {
    return fail(ErrorCode::kInternal, "prefix index: {} pages can be evicted, counted {}",
                evictable, num_evictable());
  }
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (root_pages[i] != roots_[i].num_pages) {
      return fail(ErrorCode::kInternal, "prefix index: root {} has {} pages, counted {}", i,
                  root_pages[i], roots_[i].num_pages);
    }
  }
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    if (tenant_pages[i] != tenants_[i].num_pages) {
      return fail(ErrorCode::kInternal, "prefix index: tenant {} has {} pages, counted {}", i,
                  tenant_pages[i], tenants_[i].num_pages);
    }
  }
  return {};
}

}  // namespace trine
