// Families `attention` (keys and values in floats) and `attention_i8` (in eight-bit codes): one
// segment of the context against a block of queries.
//
// A segment is up to kSegmentTiles tiles of 32 keys at absolute positions that are multiples of
// kSegmentTiles * 32. Softmax is exact inside a segment; segments of one query are merged in
// ascending order (the recurrence of Milakov, Gimelshein 2018 and Dao et al. 2022 over segments),
// so they can be computed by different threads and the result is the same.
//
// Numeric contract, per query:
//   s_j = fma(k_j[d], q[d], s_j) for d ascending from s_j = 0; s_j *= scale; then
//   softcap * tanh(s_j / softcap) when softcap > 0.
//   max = the largest s_j of the visible keys; p_j = exp(s_j - max), exactly 0 for the others.
//   sum: sixteen lanes, lane l adds p_j of j = l, l + 16, ... ascending; folded as in linear.h.
//   acc[d] = fma(p_j, v_j[d], acc[d]) over the visible keys ascending, from 0.
// With eight-bit codes both products are exact integer sums of a code and a *wide* number: x in
// steps of its row's largest magnitude over 16256, n = round(x * (16256 / largest)), so n fits 15
// bits. (The codes have 8 bits, so nearly all of the error is theirs.)
//   q's wide numbers: n[d] over its dimensions, step = largest / 16256.
//   s_j = float(sum over d of code_j[d] * n[d]) * the key's scale; s_j *= step * scale; softcap,
//   max, p_j and sum as above. w_j = p_j * the value's scale; m_j its wide numbers over the
//   segment's keys, step likewise. acc[d] = float(sum over j of code_j[d] * m_j) * step.
// A row whose largest magnitude is below 1e-30 counts as zeros; one that holds a NaN, or magnitudes
// whose sum is not finite, has a NaN step.
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

// Types of KV elements in floats, as an index.
enum class KvElement : std::uint8_t { kF32, kF16, kBF16 };
inline constexpr int kNumKvElements = 3;

struct AttentionTile {
  const void* k;  // [dim_k][32]; codes: [dim_k / 4][32][4], then 32 scales
  const void* v;  // [32][dim_v]; codes: [8][dim_v][4], then 32 scales
};

// Wide numbers stand in fours of kWideQuadBytes, in an order that is the instruction set's own. A
// query's row has a header with its step and what the offset of the codes takes from its sums.
inline constexpr std::int64_t kWideQuadBytes = 8;
inline constexpr std::int64_t kQueryHeaderBytes = 16;

// Bytes of a query's row for attention_i8: a multiple of 16.
constexpr std::int64_t query_row_bytes(std::int64_t dim_k) {
  return kQueryHeaderBytes + (dim_k + 15) / 16 * 4 * kWideQuadBytes;
}

struct AttentionSegmentArgs {
  const float* q;  // [num_queries, dim_k]; not read by attention_i8
  std::int64_t q_stride;
  const unsigned char* q_rows;  // [num_queries, query_row_bytes(dim_k)], for attention_i8
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

struct AttentionI8Table {
  // Rows of segment()'s q_rows. dim_k is at most 1024, so that the sums fit.
  void (*quantize_queries)(const float* q, std::int64_t q_stride, std::int64_t num_queries,
                           std::int64_t dim_k, unsigned char* rows);
  void (*segment)(const AttentionSegmentArgs* args);
};

extern const AttentionTable kAttentionScalar;
extern const AttentionTable kAttentionAvx2;
extern const AttentionTable kAttentionAvx512;
extern const AttentionI8Table kAttentionI8Scalar;
extern const AttentionI8Table kAttentionI8Avx2;
extern const AttentionI8Table kAttentionI8AvxVnni;
extern const AttentionI8Table kAttentionI8Avx512;
extern const AttentionI8Table kAttentionI8Avx512Vnni;

}  // namespace trine::kernels
