// Family `attention`: one segment of the context against a block of queries.
//
// A segment is up to kSegmentTiles tiles of 32 keys at absolute positions that are multiples of
// kSegmentTiles * 32. Softmax is exact inside a segment; segments of one query are merged in
// ascending order (the recurrence of Milakov, Gimelshein 2018 and Dao et al. 2022 over segments),
// so they can be computed by different threads and the result is the same.
//
// Numeric contract, per query:
//   s_j = fma(k_j[d], q[d], s_j) for d ascending from s_j = 0; for I8 s_j *= the key's scale; then
//   s_j *= scale; then softcap * tanh(s_j / softcap) when softcap > 0.
//   max = the largest s_j of the visible keys; p_j = exp(s_j - max), exactly 0 for the others.
//   sum: sixteen lanes, lane l adds p_j of j = l, l + 16, ... ascending; folded as in linear.h.
//   acc[d] = fma(w_j, v_j[d], acc[d]) over the visible keys ascending, from 0; w_j = p_j, for I8
//   p_j * the value's scale.
// A key that is not visible is never read into a result, so whatever it holds (NaN too) cannot
// change one. A query that sees no key of the segment gets sum = 0, which merge() skips; any other
// sum is at least 1, or NaN.
// merge: m = max of both; acc = fma(acc_2, exp(max_2 - m), acc_1 * exp(max_1 - m)), sum likewise.
//
// Tiles are blocks of tensor/kv_layout.h. Errors: none. Thread rule: pure functions on the caller's
// state.
#pragma once

#include <cstdint>

namespace trine::kernels {

inline constexpr int kAttentionTileKeys = 32;
inline constexpr int kSegmentTiles = 8;
inline constexpr int kSegmentKeys = kSegmentTiles * kAttentionTileKeys;

// Types of KV elements, as an index.
enum class KvElement : std::uint8_t { kF32, kF16, kBF16, kI8 };
inline constexpr int kNumKvElements = 4;

struct AttentionTile {
  const void* k;  // [dim_k][32], then for I8 32 scales
  const void* v;  // [32][dim_v], then for I8 32 scales
};

struct AttentionSegmentArgs {
  const float* q;  // [num_queries, dim_k]
  std::int64_t q_stride;
  std::int64_t num_queries;
  const AttentionTile* tiles;
  int num_tiles;     // 1..kSegmentTiles
  int tiles_coming;  // tiles after those that will be asked for next; they are fetched ahead
  std::int64_t dim_k;
  std::int64_t dim_v;  // a multiple of 16
  float scale;
  float softcap;
  std::int64_t prefetch_bytes;   // keys and values are asked for so many bytes before their use
  const std::uint32_t* visible;  // [num_tiles, num_queries], bit j: key j of the tile is seen
  float* scores;                 // [num_queries, kSegmentKeys] scratch
  // Results of each query.
  float* max;
  float* sum;
  float* acc;  // [num_queries, dim_v], rows acc_stride apart
  std::int64_t acc_stride;
};

struct AttentionTable {
  void (*segment[kNumKvElements])(const AttentionSegmentArgs* args);
  // (max, sum, acc [dim_v]) of one query takes in those of the segment after it.
  void (*merge)(float* max, float* sum, float* acc, float next_max, float next_sum,
                const float* next_acc, std::int64_t dim_v);
  // out[d] = acc[d] / sum for d in [0, n)
  void (*finish)(const float* acc, float sum, std::int64_t n, float* out);
};

extern const AttentionTable kAttentionScalar;
extern const AttentionTable kAttentionAvx2;
extern const AttentionTable kAttentionAvx512;

}  // namespace trine::kernels
