// Bounds-checked reading of little-endian bytes from untrusted memory, and overflow-checked size
// arithmetic. Thread rule: a reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace trine {

// a * b and a + b, or nullopt when the result does not fit 64 bits.
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) {
    return std::nullopt;
  }
  return out;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) {
    return std::nullopt;
  }
  return out;
}

// Reads forward through a byte span. Every read names what it wanted when the bytes run out.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }

  std::size_t remaining() const { return bytes_.size() - position_; }

  // A little-endian arithmetic value; `what` names the field in the error.
  template <typename T>
    requires std::is_arithmetic_v<T>
  Result<T> read(std::string_view what) {
    if (remaining() < sizeof(T)) {
      return fail(ErrorCode::kCorruptData,
                  "{}: {} bytes needed at offset {}, {} left (truncated file?)", what, sizeof(T),
                  position_, remaining());
    }
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // The next `count` bytes, viewed in place.
  Result<std::span<const std::byte>> read_bytes(std::uint64_t count, std::string_view what) {
    if (count > remaining()) {
      return fail(ErrorCode::kCorruptData,
                  "{}: {} bytes needed at offset {}, {} left (truncated file?)", what, count,
                  position_, remaining());
    }
    const auto out = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += static_cast<std::size_t>(count);
    return out;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace trine
