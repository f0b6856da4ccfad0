#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include <sys/mman.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "kv/kv_cache.h"
#include "platform/memory.h"

namespace trine {

struct PagePool::Impl {
  KvGeometry geometry;
  std::int64_t page_bytes = 0;
  std::int32_t num_pages = 0;
  std::byte* memory = nullptr;
  std::size_t memory_bytes = 0;
  std::vector<std::int32_t> counts;        // references per page, 0 = free
  std::vector<std::uint32_t> generations;  // times the page was handed out
  std::vector<std::uint8_t> cached;        // 1: one of the references is the prefix cache's
  std::int32_t num_idle_cached = 0;        // cached pages with one reference
  std::vector<std::int32_t>
      free;  // a min-heap of indices under kLowestFirst, any order under kShuffled
  Placement placement = Placement::kLowestFirst;
  std::uint64_t seed = 0;
  std::uint64_t draws = 0;
  bool poison = false;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    if (memory != nullptr) {
      ::munmap(memory, memory_bytes);
    }
  }

  std::int32_t take() {
    if (placement == Placement::kShuffled) {
      const auto block = philox(seed, draws++, RngPurpose::kTest, 0);
      const auto pick = static_cast<std::size_t>(
          (std::uint64_t{block[0]} * static_cast<std::uint64_t>(free.size())) >> 32);
      std::swap(free[pick], free.back());
    } else {
      std::pop_heap(free.begin(), free.end(), std::greater<>());
    }
    const std::int32_t index = free.back();
    free.pop_back();
    return index;
  }

  void give(std::int32_t index) {
    free.push_back(index);
    if (placement == Placement::kLowestFirst) {
      std::push_heap(free.begin(), free.end(), std::greater<>());
    }
  }

  void add_reference(std::int32_t index) {
    const auto at = static_cast<std::size_t>(index);
    ++counts[at];
    if (cached[at] != 0 && counts[at] == 2) {
      --num_idle_cached;
    }
  }

  void drop_reference(std::int32_t index) {
    const auto at = static_cast<std::size_t>(index);
    --counts[at];
    if (cached[at] != 0 && counts[at] == 1) {
      ++num_idle_cached;
    }
    if (counts[at] == 0) {
      set_cached(at, false);
      give(index);
    }
  }

  void set_cached(std::size_t at, bool now) {
    if ((cached[at] != 0) == now) {
      return;
    }
    cached[at] = now ? 1 : 0;
    if (counts[at] <= 1) {  // 0: its last reference has just gone
      num_idle_cached += now ? 1 : -1;
    }
  }

  void check_alive(std::int32_t index, std::uint32_t generation) const {
    const auto at = static_cast<std::size_t>(index);
    TRINE_CHECK(counts[at] > 0 && generations[at] == generation);
  }
};

PageRef::PageRef(PagePool* pool, std::int32_t index, std::uint32_t generation)
    : pool_(pool), index_(index), generation_(generation) {}

PageRef::PageRef(const PageRef& other)
    : pool_(other.pool_), index_(other.index_), generation_(other.generation_) {
  if (pool_ != nullptr) {
    pool_->impl_->check_alive(index_, generation_);
    pool_->impl_->add_reference(index_);
  }
}

PageRef::PageRef(PageRef&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      index_(std::exchange(other.index_, -1)),
      generation_(std::exchange(other.generation_, 0)) {}

PageRef& PageRef::operator=(const PageRef& other) {
  return *this = PageRef(other);
}

// The old page is released at once, not when `other` goes.
PageRef& PageRef::operator=(PageRef&& other) noexcept {
  PageRef taken(std::move(other));
  std::swap(pool_, taken.pool_);
  std::swap(index_, taken.index_);
  std::swap(generation_, taken.generation_);
  return *this;
}

PageRef::~PageRef() {
  if (pool_ == nullptr) {
    return;
  }
  PagePool::Impl& impl = *pool_->impl_;
  impl.check_alive(index_, generation_);
  impl.drop_reference(index_);
}

std::byte* PageRef::data() const {
  TRINE_CHECK(pool_ != nullptr);
  pool_->impl_->check_alive(index_, generation_);
  return pool_->impl_->memory + index_ * pool_->impl_->page_bytes;
}

std::int32_t PageRef::use_count() const {
  if (pool_ == nullptr) {
    return 0;
  }
  pool_->impl_->check_alive(index_, generation_);
  return pool_->impl_->counts[static_cast<std::size_t>(index_)];
}

PagePool::PagePool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PagePool::~PagePool() {
  TRINE_CHECK(num_free() == num_pages());
}

Result<std::unique_ptr<PagePool>> PagePool::create(const KvGeometry& geometry,
                                                   std::int32_t num_pages) {
  const auto page_bytes = geometry.checked_page_bytes();
  if (!page_bytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        "kv cache: {} layers, {} kv heads, head dims {} and {}, dtype {} do not make a page "
        "(positive sizes within 63 bits, dtype F32, F16, BF16, or I8 with heads of at most {})",
        geometry.num_layers, geometry.num_kv_heads, geometry.head_dim_k, geometry.head_dim_v,
        dtype_info(geometry.dtype).name, kMaxCodeDim);
  }
  if (num_pages < 1) {
    return fail(ErrorCode::kInvalidArgument, "kv cache: {} pages, at least 1 needed", num_pages);
  }
  const auto total =
      checked_mul(static_cast<std::uint64_t>(*page_bytes), static_cast<std::uint64_t>(num_pages));
  const auto physical = static_cast<std::uint64_t>(physical_memory_bytes());
  if (!total || *total > physical) {
    return fail(ErrorCode::kExhausted,
                "kv cache: {} pages of {} bytes wanted, the machine has {} bytes of memory; use a "
                "smaller context or a smaller kv dtype",
                num_pages, *page_bytes, physical);
  }
  auto impl = std::make_unique<Impl>();
  impl->geometry = geometry;
  impl->page_bytes = *page_bytes;
  impl->num_pages = num_pages;
  void* memory = ::mmap(nullptr, *total, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kExhausted,
                "kv cache: the system refused {} bytes ({} pages of {} bytes) of {} bytes of "
                "memory: {}",
                *total, num_pages, *page_bytes, physical, std::strerror(errno));
  }
  // Attention walks a block of a few KiB in every page: with small pages of memory each block would
  // cost a walk of the page tables. Where the system has no huge pages that is what happens.
  static_cast<void>(::madvise(memory, *total, MADV_HUGEPAGE));
  impl->memory = static_cast<std::byte*>(memory);
  impl->memory_bytes = *total;
  const auto count = static_cast<std::size_t>(num_pages);
  impl->counts.assign(count, 0);
  impl->generations.assign(count, 0);
  impl->cached.assign(count, 0);
  impl->free.resize(count);
  for (std::int32_t i = 0; i < num_pages; ++i) {
    impl->free[static_cast<std::size_t>(i)] = i;  // ascending order is a min-heap
  }
  return std::unique_ptr<PagePool>(new PagePool(std::move(impl)));
}

Status PagePool::populate() {
  if (::madvise(impl_->memory, impl_->memory_bytes, MADV_POPULATE_WRITE) == 0) {
    return {};
  }
  // EINVAL: an older system, where pages come when they are used, as without this call.
  if (const int error = errno; error != EINVAL) {
    return fail(ErrorCode::kExhausted,
                "kv cache: the system did not give the memory of all {} pages ({} bytes): {}; use "
                "fewer --kv-tokens, or --no-kv-populate",
                impl_->num_pages, impl_->memory_bytes, std::strerror(error));
  }
  return {};
}

const KvGeometry& PagePool::geometry() const {
  return impl_->geometry;
}

std::int32_t PagePool::num_pages() const {
  return impl_->num_pages;
}

std::int32_t PagePool::num_free() const {
  return static_cast<std::int32_t>(impl_->free.size());
}

void PagePool::set_cached(const PageRef& page, bool cached) {
  TRINE_CHECK(page.pool_ == this);
  impl_->check_alive(page.index_, page.generation_);
  impl_->set_cached(static_cast<std::size_t>(page.index_), cached);
}

std::int32_t PagePool::num_idle_cached() const {
  return impl_->num_idle_cached;
}

void PagePool::set_placement(Placement placement, std::uint64_t seed) {
  impl_->placement = placement;
  impl_->seed = seed;
  impl_->draws = 0;
  // Sorted is a heap, and makes a shuffled order a function of the seed alone.
  std::sort(impl_->free.begin(), impl_->free.end());
}

void PagePool::set_poison(bool poison) {
  impl_->poison = poison;
}

Result<PageRef> PagePool::allocate() {
  if (impl_->free.empty()) {
    return pages_exhausted(*this, 1);
  }
  const std::int32_t index = impl_->take();
  const auto at = static_cast<std::size_t>(index);
  TRINE_CHECK(impl_->counts[at] == 0);
  impl_->counts[at] = 1;
  ++impl_->generations[at];
  PageRef page(this, index, impl_->generations[at]);
  if (impl_->poison) {
    std::memset(page.data(), 0xff, static_cast<std::size_t>(impl_->page_bytes));
  }
  return page;
}

Status PagePool::check_integrity() const {
  std::vector<bool> is_free(impl_->counts.size(), false);
  for (const std::int32_t index : impl_->free) {
    if (index < 0 || index >= impl_->num_pages) {
      return fail(ErrorCode::kInternal, "kv pool: free list holds page {} of {}", index,
                  impl_->num_pages);
    }
    const auto at = static_cast<std::size_t>(index);
    if (is_free[at]) {
      return fail(ErrorCode::kInternal, "kv pool: page {} is twice in the free list", index);
    }
    is_free[at] = true;
  }
  for (std::size_t at = 0; at < is_free.size(); ++at) {
    if (is_free[at] != (impl_->counts[at] == 0)) {
      return fail(ErrorCode::kInternal, "kv pool: page {} has {} references and is {}the free list",
                  at, impl_->counts[at], is_free[at] ? "in " : "not in ");
    }
    if (impl_->counts[at] > 0 && impl_->generations[at] == 0) {
      return fail(ErrorCode::kInternal, "kv pool: page {} is in use but was never handed out", at);
    }
  }
  std::int32_t idle = 0;
  for (std::size_t at = 0; at < is_free.size(); ++at) {
    idle += impl_->cached[at] != 0 && impl_->counts[at] == 1 ? 1 : 0;
    if (impl_->cached[at] != 0 && impl_->counts[at] == 0) {
      return fail(ErrorCode::kInternal, "kv pool: free page {} is marked as cached", at);
    }
  }
  if (idle != impl_->num_idle_cached) {
    return fail(ErrorCode::kInternal, "kv pool: {} pages are held by the cache alone, counted {}",
                idle, impl_->num_idle_cached);
  }
  if (impl_->placement == Placement::kLowestFirst &&
      !std::is_heap(impl_->free.begin(), impl_->free.end(), std::greater<>())) {
    return fail(ErrorCode::kInternal, "kv pool: the free list lost its heap order");
  }
  return {};
}

tl::unexpected<Error> pages_exhausted(const PagePool& pool, std::int64_t wanted) {
  const std::int64_t page_bytes = pool.geometry().page_bytes();
  return fail(ErrorCode::kExhausted,
              "kv cache: {} pages ({} bytes) wanted, {} of {} pages ({} bytes) free", wanted,
              wanted * page_bytes, pool.num_free(), pool.num_pages(), pool.num_free() * page_bytes);
}

}  // namespace trine
