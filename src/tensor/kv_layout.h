// Geometry of a KV page, shared by the pool (kv/) and the code that reads it (ops/, kernels/).
//
// page = [layer][key blocks of the G kv heads, then their value blocks], dense:
//   key block   = [D][L] elements: a vector of lanes holds one dimension of neighbouring tokens, so
//                 scores need no sum across lanes;
//   value block = [L][Dv] elements, Dv = head_dim_v rounded up to 16 (zeros), so that a vector
//                 holds neighbouring dimensions of one token.
// I8 blocks hold bytes, 128 + code, in fours as the dot-product instructions take them, and end
// with L binary16 scales, one per token: element = code * scale.
//   key block   = [D / 4][L][4], D rounded up to 4 (zeros): four dimensions of one token;
//   value block = [L / 4][Dv][4]: one dimension of four tokens.
// Pages are sent to other machines as they are, so the layout has no pointers and no padding that
// depends on one.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "tensor/dtype.h"

namespace trine {

// L, tokens per page. The attention tile is the same number, so page borders never change a result.
inline constexpr std::int32_t kPageTokens = 32;

// Largest head that I8 pages hold: products of longer ones could overflow their 32-bit sums.
inline constexpr std::int32_t kMaxCodeDim = 1024;

struct KvGeometry {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;  // G
  std::int32_t head_dim_k = 0;    // D of keys
  std::int32_t head_dim_v = 0;    // D of values
  DType dtype = DType::kF16;

  // Bytes of one element; 0 for a type that a page cannot hold (only F32, F16, BF16 and I8 can).
  std::int64_t element_bytes() const {
    switch (dtype) {
      case DType::kF32:
        return 4;
      case DType::kF16:
      case DType::kBF16:
        return 2;
      case DType::kI8:
        return 1;
      default:
        return 0;
    }
  }

  // The keys of one token in a page, zeros past head_dim_k.
  std::int64_t padded_dim_k() const {
    return dtype == DType::kI8 ? (std::int64_t{head_dim_k} + 3) / 4 * 4 : head_dim_k;
  }

  // Dv: the values of one token in a page, zeros past head_dim_v.
  std::int64_t padded_dim_v() const { return (std::int64_t{head_dim_v} + 15) / 16 * 16; }

  // Bytes of one page, or nullopt when a dimension is not positive, the dtype is not one of the
  // four, a head is too large for codes, or the product does not fit 63 bits. PagePool::create()
  // turns that into an error, so that everything after it may use the plain functions below.
  std::optional<std::int64_t> checked_page_bytes() const {
    if (num_layers <= 0 || num_kv_heads <= 0 || head_dim_k <= 0 || head_dim_v <= 0 ||
        element_bytes() == 0) {
      return std::nullopt;
    }
    if (dtype == DType::kI8 && (head_dim_k > kMaxCodeDim || head_dim_v > kMaxCodeDim)) {
      return std::nullopt;
    }
    // Dimensions are below 2^31, so one head of one token fits.
    std::int64_t bytes = head_bytes_per_token();
    for (const std::int64_t factor :
         {std::int64_t{num_layers}, std::int64_t{num_kv_heads}, std::int64_t{kPageTokens}}) {
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

  // Byte offset inside a page of the block of keys or values of one layer and kv head.
  std::int64_t key_offset(std::int32_t layer, std::int32_t kv_head) const {
    TRINE_DCHECK(layer >= 0 && layer < num_layers && kv_head >= 0 && kv_head < num_kv_heads);
    return layer * layer_bytes_per_token() * kPageTokens + kv_head * key_block_bytes();
  }

  std::int64_t value_offset(std::int32_t layer, std::int32_t kv_head) const {
    return key_offset(layer, 0) + num_kv_heads * key_block_bytes() + kv_head * value_block_bytes();
  }

  std::int64_t key_block_bytes() const {
    return (padded_dim_k() * element_bytes() + scale_bytes()) * kPageTokens;
  }

  std::int64_t value_block_bytes() const {
    return (padded_dim_v() * element_bytes() + scale_bytes()) * kPageTokens;
  }

  // Byte offsets inside a block: of dimension d of one token, and of the token's scale.
  std::int64_t key_element(std::int64_t token, std::int64_t d) const {
    if (dtype == DType::kI8) {
      return (d / 4 * kPageTokens + token) * 4 + d % 4;
    }
    return (d * kPageTokens + token) * element_bytes();
  }

  std::int64_t value_element(std::int64_t token, std::int64_t d) const {
    if (dtype == DType::kI8) {
      return (token / 4 * padded_dim_v() + d) * 4 + token % 4;
    }
    return (token * padded_dim_v() + d) * element_bytes();
  }

  std::int64_t key_scale(std::int64_t token) const {
    return padded_dim_k() * element_bytes() * kPageTokens + token * scale_bytes();
  }

  std::int64_t value_scale(std::int64_t token) const {
    return padded_dim_v() * element_bytes() * kPageTokens + token * scale_bytes();
  }

  // Bytes of one token's scale in a block: 2 (binary16) for I8, else 0.
  std::int64_t scale_bytes() const { return dtype == DType::kI8 ? 2 : 0; }

 private:
  std::int64_t head_bytes_per_token() const {
    return (padded_dim_k() + padded_dim_v()) * element_bytes() + 2 * scale_bytes();
  }

  std::int64_t layer_bytes_per_token() const { return num_kv_heads * head_bytes_per_token(); }
};

}  // namespace trine
