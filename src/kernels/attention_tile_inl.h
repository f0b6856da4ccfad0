// Body of the attention_tile family; contract in attention_tile.h. TRINE_LANES_HEADER names the
// instruction set's lanes.h.
#pragma once

#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/linear_inl.h"
#include "kernels/math_inl.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

// Scores of one query become probabilities; maximum, sum and accumulator follow.
TRINE_LANES_INLINE void update_query(const AttentionTileArgs& args, std::int64_t query) {
  const std::uint32_t bits = args.visible[query];
  float* scores = args.scores + query * kAttentionTileKeys;
  const V scale = vset(args.scale);
  V low = vmul(vload(scores), scale);
  V high = vmul(vload(scores + 16), scale);
  if (args.softcap > 0.0f) {
    const V cap = vset(args.softcap);
    low = vmul(cap, vtanh(vdiv(low, cap)));
    high = vmul(cap, vtanh(vdiv(high, cap)));
  }
  const V lowest = vset(-__builtin_inff());
  low = vselect_bits(bits & 0xffffu, low, lowest);
  high = vselect_bits(bits >> 16, high, lowest);
  const float tile_max = vreduce_max(vmax(low, high));
  const float old_max = args.max[query];
  if (!(tile_max <= old_max)) {  // grows, or is NaN
    args.max[query] = tile_max;
    const V factor = vexp(vset(old_max - tile_max));
    float first[16];
    vstore(first, factor);
    args.sum[query] = args.sum[query] * first[0];
    float* acc = args.acc + query * args.acc_stride;
    for (std::int64_t d = 0; d < args.dim_v; d += 16) {
      vstore(acc + d, vmul(vload(acc + d), factor));
    }
  }
  const V max = vset(args.max[query]);
  low = vselect_bits(bits & 0xffffu, vexp(vsub(low, max)), vzero());
  high = vselect_bits(bits >> 16, vexp(vsub(high, max)), vzero());
  vstore(scores, low);
  vstore(scores + 16, high);
  args.sum[query] = args.sum[query] + vreduce_add(vadd(low, high));
}

// acc += p * v for NQ queries that see the same keys, NV vectors of 16 dimensions starting at d.
template <unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void accumulate_tile(const AttentionTileArgs& args, std::int64_t query,
                                        std::uint32_t bits, std::int64_t d) {
  V acc[NQ][NV];
#pragma GCC unroll 8
  for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      acc[m][n] = vload(args.acc + (query + m) * args.acc_stride + d + 16 * n);
    }
  }
  const float* p = args.scores + query * kAttentionTileKeys;
  for (; bits != 0; bits &= bits - 1) {
    const int key = __builtin_ctz(bits);
    const float* row = args.v + key * args.v_stride + d;
    V vv[NV];
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      vv[n] = vload(row + 16 * n);
    }
#pragma GCC unroll 8
    for (std::int64_t m = 0; m < NQ; ++m) {
      const V weight = vset(p[m * kAttentionTileKeys + key]);
#pragma GCC unroll 8
      for (std::int64_t n = 0; n < NV; ++n) {
        acc[m][n] = vfma(weight, vv[n], acc[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      vstore(args.acc + (query + m) * args.acc_stride + d + 16 * n, acc[m][n]);
    }
  }
}

template <unsigned NQ>
void accumulate_queries(const AttentionTileArgs& args, std::int64_t query, std::int64_t count,
                        std::uint32_t bits) {
  if constexpr (NQ > 0) {
    if (count != NQ) {
      accumulate_queries<NQ - 1>(args, query, count, bits);
      return;
    }
    constexpr std::int64_t kTileDims = std::int64_t{16} * kTileVectors;
    std::int64_t d = 0;
    for (; d + kTileDims <= args.dim_v; d += kTileDims) {
      accumulate_tile<NQ, kTileVectors>(args, query, bits, d);
    }
    for (; d < args.dim_v; d += 16) {
      accumulate_tile<NQ, 1>(args, query, bits, d);
    }
  }
}

void attention_tile(const AttentionTileArgs* arguments) {
  const AttentionTileArgs& args = *arguments;
  std::uint32_t any = 0;
  for (std::int64_t query = 0; query < args.num_queries; ++query) {
    any |= args.visible[query];
  }
  if (any == 0) {
    return;
  }
  const int first_key = __builtin_ctz(any);
  const int num_keys = 32 - __builtin_clz(any) - first_key;
  dot_rows(args.k + first_key * args.k_stride, args.k_stride, num_keys, args.q, args.q_stride,
           args.num_queries, args.dim_k, nullptr, args.scores + first_key, kAttentionTileKeys);
  for (std::int64_t query = 0; query < args.num_queries; ++query) {
    if (args.visible[query] != 0) {
      update_query(args, query);
    }
  }
  for (std::int64_t query = 0; query < args.num_queries;) {
    const std::uint32_t bits = args.visible[query];
    std::int64_t count = 1;
    while (count < kMaxTileQueries && query + count < args.num_queries &&
           args.visible[query + count] == bits) {
      ++count;
    }
    if (bits != 0) {
      accumulate_queries<kMaxTileQueries>(args, query, count, bits);
    }
    query += count;
  }
}

void attention_finish(const float* acc, float sum, std::int64_t n, float* out) {
  for (std::int64_t d = 0; d < n; ++d) {
    out[d] = acc[d] / sum;
  }
}

}  // namespace
}  // namespace trine::kernels
