// A large block of memory on huge pages where the system has them: weights are read end to end
// every step, and with 4 KiB pages the hardware prefetcher would stop at every page border. Errors:
// exhausted with the bytes wanted and available. Thread rule: a plain owner of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace trine {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Zeroed, aligned to 2 MiB; memory is taken when a page is first written.
  static Result<HugeBuffer> allocate(std::size_t bytes);
  ~HugeBuffer();

  HugeBuffer(HugeBuffer&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}

  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::uint8_t* data() { return data_; }

  const std::uint8_t* data() const { return data_; }

  std::size_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trine
