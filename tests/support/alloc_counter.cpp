#include "support/alloc_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> g_allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) {
    std::abort();  // a test has no use for bad_alloc
  }
  return memory;
}

}  // namespace

namespace trine::test {

std::int64_t num_allocations() {
  return g_allocations.load(std::memory_order_relaxed);
}

}  // namespace trine::test

// Every form: the address sanitizer's own array forms would not call the plain ones.
void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(max_align_t));
}

void* operator new[](std::size_t bytes) {
  return allocate(bytes, alignof(max_align_t));
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}

void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}

// std::stable_sort's temporary buffer comes through these.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, alignof(max_align_t));
}

void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, alignof(max_align_t));
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete[](void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
