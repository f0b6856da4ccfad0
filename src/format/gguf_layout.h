// What the GGUF reader and writer share: limits, type numbers and size arithmetic. Internal to
// format/. Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "tensor/dtype.h"

namespace trine::gguf_layout {

inline constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t kMaxStringBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxTensors = 1'000'000;
inline constexpr std::uint32_t kMaxDims = 4;
inline constexpr std::uint64_t kMaxNameBytes =
    63;  // 64 with the terminator that other readers store
inline constexpr std::uint32_t kMinAlignment = 8;
inline constexpr std::uint32_t kMaxAlignment = 65536;
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::string_view kAlignmentKey = "general.alignment";

// The DType of a tensor type number. Errors: unsupported, naming the number and what it was.
Result<DType> dtype_of_id(std::uint32_t id);

Status check_alignment(std::uint32_t alignment);

// Bytes of a tensor whose dimensions are in file order (contiguous first). Checks the number of
// dimensions, their values, the block size and every product. Errors: corrupt_data.
Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> dims);

// `value` rounded up to a multiple of a power of two; nullopt on overflow.
std::optional<std::uint64_t> align_up(std::uint64_t value, std::uint64_t alignment);

}  // namespace trine::gguf_layout
