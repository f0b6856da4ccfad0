// Geometry of a KV page, shared by the pool (kv/) and the kernels that read it (ops/).
// Layout: [layer][K then V][G kv heads][L tokens][D head dim], dense, in `dtype`.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "tensor/dtype.h"

namespace trine {

// L, tokens per page. The attention tile is the same number, so page borders never change a result.
inline constexpr std::int32_t kPageTokens = 32;

struct KvGeometry {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;  // G
  std::int32_t head_dim_k = 0;    // D of keys
  std::int32_t head_dim_v = 0;    // D of values
  DType dtype = DType::kF16;

  // Bytes of one element; 0 for a type that a page cannot hold (only F32, F16 and BF16 can).
  std::int64_t element_bytes() const {
    switch (dtype) {
      case DType::kF32:
        return 4;
      case DType::kF16:
      case DType::kBF16:
        return 2;
      default:
        return 0;
    }
  }

  // Bytes of one page, or nullopt when a dimension is not positive, the dtype is not one of the
  // three, or the product does not fit 63 bits. PagePool::create() turns that into an error, so
  // that everything after it may use the plain functions below.
  std::optional<std::int64_t> checked_page_bytes() const {
    const std::int64_t element = element_bytes();
    if (num_layers <= 0 || num_kv_heads <= 0 || head_dim_k <= 0 || head_dim_v <= 0 ||
        element == 0) {
      return std::nullopt;
    }
    std::int64_t bytes = std::int64_t{head_dim_k} + head_dim_v;
    for (const std::int64_t factor : {std::int64_t{num_layers}, std::int64_t{num_kv_heads},
                                      std::int64_t{kPageTokens}, element}) {
      if (__builtin_mul_overflow(bytes, factor, &bytes)) {
        return std::nullopt;
      }
    }
    return bytes;
  }

  std::int64_t page_bytes() const { return bytes_per_token() * kPageTokens; }

  std::int64_t bytes_per_token() const {
    return std::int64_t{num_layers} * layer_bytes_per_token();
  }

  // Byte offset inside a page of the [L, D] block of keys or values of one layer and kv head.
  std::int64_t key_offset(std::int32_t layer, std::int32_t kv_head) const {
    TRINE_DCHECK(layer >= 0 && layer < num_layers && kv_head >= 0 && kv_head < num_kv_heads);
    return layer * layer_bytes_per_token() * kPageTokens +
           std::int64_t{kv_head} * head_dim_k * kPageTokens * element_bytes();
  }

  std::int64_t value_offset(std::int32_t layer, std::int32_t kv_head) const {
    TRINE_DCHECK(layer >= 0 && layer < num_layers && kv_head >= 0 && kv_head < num_kv_heads);
    return layer * layer_bytes_per_token() * kPageTokens +
           (std::int64_t{num_kv_heads} * head_dim_k + std::int64_t{kv_head} * head_dim_v) *
               kPageTokens * element_bytes();
  }

 private:
  std::int64_t layer_bytes_per_token() const {
    return std::int64_t{num_kv_heads} * (std::int64_t{head_dim_k} + head_dim_v) * element_bytes();
  }
};

}  // namespace trine
