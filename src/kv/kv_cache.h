// Paged key/value storage: a pool of pages and, per sequence, a table of them.
//
// A page holds kPageTokens tokens of all layers of one sequence:
//   page  = [layer][K then V][G kv heads][L tokens][D head_dim]   in the pool's dtype (F32, F16 or
//   BF16).
// Keys are stored after RoPE. Pages are owned by the pool; a PageRef holds a reference count and
// gives the page back when the last one goes. A sequence's length is the number of committed
// tokens; rows written past it (a step in flight, rejected drafts) are overwritten later. Thread
// rule: pool and sequences belong to the engine thread; compute threads only read and write bytes
// of pages that the step's plan names.
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
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept;
  PageRef& operator=(PageRef other) noexcept;
  ~PageRef();

  bool valid() const { return pool_ != nullptr; }

  std::int32_t index() const { return index_; }

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
  // Reserves num_pages pages (mmap; touched on first use). Errors: exhausted, with both sizes.
  static Result<std::unique_ptr<PagePool>> create(const KvGeometry& geometry,
                                                  std::int32_t num_pages);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const KvGeometry& geometry() const;
  std::int32_t num_pages() const;
  std::int32_t num_free() const;
  // Which free page is handed out next; tests use kShuffled to prove that placement never matters.
  enum class Placement : std::uint8_t { kLowestFirst, kShuffled };
  void set_placement(Placement placement, std::uint64_t seed);
  // Errors: exhausted when no page is free.
  Result<PageRef> allocate();
  // Free list, counts and generations agree; a violation is described. For tests and idle checks.
  Status check_integrity() const;

 private:
  friend class PageRef;
  struct Impl;
  explicit PagePool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The pages of one sequence and its committed length.
class KvSequence {
 public:
  explicit KvSequence(PagePool& pool) : pool_(&pool) {}

  std::int32_t length() const { return length_; }

  // Pages for tokens [0, upto). Errors: exhausted, and nothing was taken. A page shared with
  // another sequence that the coming tokens would write is copied first.
  Status reserve(std::int32_t upto);
  // Tokens [length, length + count) are now part of the sequence; reserve() covered them.
  void commit(std::int32_t count);
  // Back to `length` tokens (speculation, stop strings); whole pages past it are released.
  void truncate(std::int32_t length);
  // Another sequence with the same committed prefix, sharing its pages.
  KvSequence fork() const;

  // Base address of every page, in order; valid until the next call that changes the sequence.
  std::span<std::byte* const> page_data() const { return page_data_; }

  PagePool& pool() const { return *pool_; }

 private:
  PagePool* pool_;
  std::int32_t length_ = 0;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> page_data_;
};

}  // namespace trine
