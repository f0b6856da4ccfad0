// Paged key/value storage: a pool of pages and, per sequence, a table of them.
//
// A page holds kPageTokens tokens of all layers of one sequence, as laid out in tensor/kv_layout.h,
// in the pool's dtype (F32, F16, BF16 or I8).
// Keys are stored after RoPE. Pages are owned by the pool; a PageRef holds a reference count and
// gives the page back when the last one goes. A sequence's length is the number of committed
// tokens; rows written past it (a step in flight, rejected drafts) are overwritten later. The idea
// of paging the cache and sharing pages copy-on-write: Kwon et al., "Efficient memory management
// for large language model serving with PagedAttention", SOSP 2023. Thread rule: pool and sequences
// belong to the engine thread; compute threads only read and write bytes of pages that the step's
// plan names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "tensor/kv_layout.h"

namespace trine {

class PagePool;

// A counted reference to one page. Copying shares the page (prefix reuse), destruction releases it.
// It must not outlive its pool. The generation counts how often the page was handed out: a
// reference that survived a release (a bug) is caught when it is used.
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept;
  PageRef& operator=(const PageRef& other);
  PageRef& operator=(PageRef&& other) noexcept;
  ~PageRef();

  bool valid() const { return pool_ != nullptr; }

  std::int32_t index() const { return index_; }

  std::uint32_t generation() const { return generation_; }

  std::byte* data() const;
  std::int32_t use_count() const;

 private:
  friend class PagePool;
  PageRef(PagePool* pool, std::int32_t index, std::uint32_t generation);
  PagePool* pool_ = nullptr;
  std::int32_t index_ = -1;
  std::uint32_t generation_ = 0;
};

class PagePool {
 public:
  // Reserves address space for num_pages pages (mmap; memory is taken on first use of a
  // page, on huge pages where the system has them).
  // Errors: invalid_argument for a geometry or page count that cannot be, exhausted with wanted and
  // available bytes when the pool is larger than the machine's memory or the mapping fails.
  static Result<std::unique_ptr<PagePool>> create(const KvGeometry& geometry,
                                                  std::int32_t num_pages);
  // Takes the memory of all pages now, so that no step waits for the system to find and clear it.
  // Errors: exhausted when the system has not that much.
  Status populate();
  // Every PageRef is gone by now.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const KvGeometry& geometry() const;
  std::int32_t num_pages() const;
  std::int32_t num_free() const;
  // Which free page is handed out next; tests use kShuffled to prove that placement never matters.
  enum class Placement : std::uint8_t { kLowestFirst, kShuffled };
  void set_placement(Placement placement, std::uint64_t seed);
  // Fills every page with NaN bit patterns when it is handed out, to prove that no result depends
  // on rows that were never written. Off by default.
  void set_poison(bool poison);
  // Errors: exhausted when no page is free, with pages and bytes wanted and available.
  Result<PageRef> allocate();
  // Whether the prefix cache holds one of the page's references; the mark goes with the last one.
  void set_cached(const PageRef& page, bool cached);
  // Pages that nobody but the prefix cache holds. Counted, not looked for: asked at every step.
  std::int32_t num_idle_cached() const;
  // Free list, counts and generations agree; a violation is described. For tests and idle checks.
  Status check_integrity() const;

 private:
  friend class PageRef;
  struct Impl;
  explicit PagePool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The error of a request for `wanted` pages that `pool` cannot give.
tl::unexpected<Error> pages_exhausted(const PagePool& pool, std::int64_t wanted);

// The pages of one sequence and its committed length. Movable, not copyable: fork() is the way to a
// second one.
class KvSequence {
 public:
  explicit KvSequence(PagePool& pool) : pool_(&pool) {}

  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;
  KvSequence(KvSequence&&) noexcept = default;
  KvSequence& operator=(KvSequence&&) noexcept = default;
  ~KvSequence() = default;

  std::int32_t length() const { return length_; }

  // Tokens that the pages at hand can hold; length() <= capacity().
  std::int32_t capacity() const;
  // Pages for tokens [0, upto). Errors: exhausted, and nothing was taken. A page shared with
  // another sequence that the coming tokens would write is copied first. upto <= length() asks for
  // nothing.
  Status reserve(std::int32_t upto);
  // Room in the page table for max_tokens tokens, so that reserve() up to there allocates no memory
  // but pages.
  void reserve_table(std::int32_t max_tokens);
  // Tokens [length, length + count) are now part of the sequence; reserve() covered them.
  void commit(std::int32_t count);
  // Begins an empty sequence with whole committed pages that another one wrote (prefix cache).
  void adopt(std::span<const PageRef> pages);
  // Back to `length` tokens (speculation, stop strings); whole pages past it are released.
  void truncate(std::int32_t length);
  // Another sequence with the same committed prefix, sharing its pages.
  KvSequence fork() const;

  // Base address of every page, in order; valid until the next call that changes the sequence.
  std::span<std::byte* const> page_data() const { return page_data_; }

  // The pages themselves, in order.
  std::span<const PageRef> pages() const { return pages_; }

  PagePool& pool() const { return *pool_; }

 private:
  PagePool* pool_;
  std::int32_t length_ = 0;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> page_data_;
};

}  // namespace trine
