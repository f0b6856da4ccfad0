// Element types of tensors as stored in files and memory, and their block geometry.
// Quantized types are blocks of `block_elems` consecutive weights along the contiguous dimension.
// Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trine {

enum class DType : std::uint8_t {
  // plain
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  // GGUF blocks that decode
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4NL,
  kIQ4XS,
  kMXFP4,
  kNVFP4,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kQ2_0,
  // GGUF codebook blocks: known by name and size, refused as weights
  kIQ2XXS,
  kIQ2XS,
  kIQ2S,
  kIQ3XXS,
  kIQ3S,
  kIQ1S,
  kIQ1M,
  // safetensors types known by name and size only; sub-byte types are blocks that fill whole bytes
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kC64,
  kCount,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kCount);

struct DTypeInfo {
  std::string_view name;  // as GGUF and safetensors tools print it: "Q4_K", "BF16"
  std::int32_t block_elems;
  std::int32_t block_bytes;
  bool decodes_to_f32;  // a dequantizer exists; false for integers and codebook types
};

const DTypeInfo& dtype_info(DType type);

// Bytes of a row of `elems` elements. `elems` must be a multiple of block_elems; nullopt when it is
// not or when the size does not fit 63 bits.
std::optional<std::int64_t> dtype_row_bytes(DType type, std::int64_t elems);

}  // namespace trine
