#include "platform/huge_buffer.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "platform/memory.h"

namespace trine {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Result<HugeBuffer> HugeBuffer::allocate(std::size_t bytes) {
  HugeBuffer out;
  if (bytes == 0) {
    return out;
  }
  const std::int64_t available = available_memory_bytes();
  if (bytes > static_cast<std::size_t>(available)) {
    return fail(ErrorCode::kExhausted,
                "cannot allocate {} bytes for the weights: {} bytes of memory are available", bytes,
                available);
  }
  const std::size_t mapped = bytes + kHugePage;
  void* mapping = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    return fail(ErrorCode::kExhausted, "cannot allocate {} bytes for the weights: {}", bytes,
                std::strerror(error));
  }
  out.mapping_ = mapping;
  out.mapped_bytes_ = mapped;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  out.data_ = static_cast<std::uint8_t*>(mapping) + (kHugePage - address % kHugePage) % kHugePage;
  out.size_ = bytes;
  // Advice: without huge pages everything works, slower.
  static_cast<void>(::madvise(out.data_, bytes, MADV_HUGEPAGE));
  return out;
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapped_bytes_);
  }
}

}  // namespace trine
