// Geometry of a KV page, shared by the pool (kv/) and the kernels that read it (ops/).
// Thread rule: plain values.
#pragma once

#include <cstdint>

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

  std::int64_t page_bytes() const;
  std::int64_t bytes_per_token() const;
  // Byte offset inside a page of the [L, D] block of keys or values of one layer and kv head.
  std::int64_t key_offset(std::int32_t layer, std::int32_t kv_head) const;
  std::int64_t value_offset(std::int32_t layer, std::int32_t kv_head) const;
};

}  // namespace trine
