// Family `attention_tile`: one tile of keys and values against a block of queries, with online
// softmax (Milakov, Gimelshein 2018; Dao et al. 2022).
//
// Numeric contract, per query: score_j = dot(q, k_j) with linear.h's chain, times scale, then
// softcap * tanh(score / softcap) when softcap > 0. The tile's maximum over its visible keys
// updates the running maximum; when it grows, sum and accumulator are multiplied by exp(old - new).
// p_j = exp(score_j - max) for visible keys and exactly 0 for the others; sum += (p_0..15 +
// p_16..31 folded as in linear.h). Then for the visible keys j in ascending order acc[d] = fma(p_j,
// v_j[d], acc[d]). A key that is not visible is never read into a result, so whatever it holds (NaN
// too) cannot change one. A query that sees no key of the tile keeps its state. Shapes: q
// [num_queries, dim_k], k [32, dim_k], v [32, dim_v], acc [num_queries, dim_v]; dim_k and dim_v are
// multiples of 16 (callers pad with zeros). Errors: none. Thread rule: pure functions on the
// caller's state.
#pragma once

#include <cstdint>

namespace trine::kernels {

inline constexpr int kAttentionTileKeys = 32;

struct AttentionTileArgs {
  const float* q;
  std::int64_t q_stride;
  std::int64_t num_queries;
  const float* k;
  std::int64_t k_stride;
  const float* v;
  std::int64_t v_stride;
  std::int64_t dim_k;
  std::int64_t dim_v;
  float scale;
  float softcap;
  const std::uint32_t* visible;  // [num_queries], bit j: key j of the tile is seen
  float* scores;                 // [num_queries, 32] scratch
  // State of each query; starts as max = -inf, sum = 0, acc = 0.
  float* max;
  float* sum;
  float* acc;
  std::int64_t acc_stride;
};

struct AttentionTileTable {
  void (*tile)(const AttentionTileArgs* args);
  // out[d] = acc[d] / sum for d in [0, n)
  void (*finish)(const float* acc, float sum, std::int64_t n, float* out);
};

extern const AttentionTileTable kAttentionTileScalar;
extern const AttentionTileTable kAttentionTileAvx2;
extern const AttentionTileTable kAttentionTileAvx512;

}  // namespace trine::kernels
