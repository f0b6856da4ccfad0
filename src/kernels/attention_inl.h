// Body of the attention family; contract in attention.h. TRINE_LANES_HEADER names the instruction
// set's lanes.h.
//
// Two passes over the segment's tiles, keys then values. Each loads an element once for a group of
// queries and widens it in registers. While a tile is computed the same bytes of a later one are
// fetched, so that the core's outstanding misses never run dry at a page's border.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_softmax_inl.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

// Sixteen elements of each type, as float32, from element `i` of a block.
struct ElementF32 {
  static constexpr std::int64_t kBytes = 4;

  TRINE_LANES_INLINE V load(const void* block, std::int64_t i) {
    return vload(static_cast<const float*>(block) + i);
  }
};

struct ElementF16 {
  static constexpr std::int64_t kBytes = 2;

  TRINE_LANES_INLINE V load(const void* block, std::int64_t i) {
    return vload_f16(static_cast<const unsigned char*>(block) + 2 * i);
  }
};

struct ElementBF16 {
  static constexpr std::int64_t kBytes = 2;

  TRINE_LANES_INLINE V load(const void* block, std::int64_t i) {
    return vload_bf16(static_cast<const unsigned char*>(block) + 2 * i);
  }
};

// Scores of NQ queries for the keys of NT tiles, not yet scaled by args.scale. `aheads` are the
// blocks to fetch meanwhile, one for each tile.
template <typename Element, unsigned NQ, unsigned NT>
TRINE_LANES_INLINE void score_tiles_of(const AttentionSegmentArgs& args, std::int64_t query,
                                       std::int64_t tile, const char* const* aheads) {
  constexpr std::int64_t kRowBytes = kKeys * Element::kBytes;
  const float* q = args.q + query * args.q_stride;
  float* scores = args.scores + query * kScoresStride + tile * kKeys;
  const void* k[NT];
  const char* ahead[NT];
#pragma GCC unroll 4
  for (std::int64_t t = 0; t < NT; ++t) {
    k[t] = args.tiles[tile + t].k;
    ahead[t] = aheads[t];
  }
  for (std::int64_t part = 0; part < 2; part += kScoreVectors) {
    V s[NQ][NT][kScoreVectors];
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 4
      for (std::int64_t t = 0; t < NT; ++t) {
#pragma GCC unroll 2
        for (std::int64_t n = 0; n < kScoreVectors; ++n) {
          s[m][t][n] = vzero();
        }
      }
    }
    for (std::int64_t d = 0; d < args.dim_k; ++d) {
      V kv[NT][kScoreVectors];
#pragma GCC unroll 4
      for (std::int64_t t = 0; t < NT; ++t) {
        for (std::int64_t line = 0; line < kRowBytes; line += 64) {
          __builtin_prefetch(ahead[t] + d * kRowBytes + line);
        }
#pragma GCC unroll 2
        for (std::int64_t n = 0; n < kScoreVectors; ++n) {
          kv[t][n] = Element::load(k[t], d * kKeys + 16 * (part + n));
        }
      }
#pragma GCC unroll 16
      for (std::int64_t m = 0; m < NQ; ++m) {
        const V qv = vset(q[m * args.q_stride + d]);
#pragma GCC unroll 4
        for (std::int64_t t = 0; t < NT; ++t) {
#pragma GCC unroll 2
          for (std::int64_t n = 0; n < kScoreVectors; ++n) {
            s[m][t][n] = vfma(kv[t][n], qv, s[m][t][n]);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 4
      for (std::int64_t t = 0; t < NT; ++t) {
#pragma GCC unroll 2
        for (std::int64_t n = 0; n < kScoreVectors; ++n) {
          vstore(scores + m * kScoresStride + t * kKeys + 16 * (part + n), s[m][t][n]);
        }
      }
    }
  }
}

template <typename Element, unsigned NQ>
void score_queries(const AttentionSegmentArgs& args, std::int64_t query, std::int64_t count,
                   std::int64_t tile, const char* ahead) {
  if constexpr (NQ > 0) {
    if (count == NQ) {
      score_tiles_of<Element, NQ, 1>(args, query, tile, &ahead);
    } else {
      score_queries<Element, NQ - 1>(args, query, count, tile, ahead);
    }
  }
}

// The segment's tiles in groups, for as few queries as NQ. Returns the first tile that is left.
template <typename Element, unsigned NQ>
std::int64_t score_few(const AttentionSegmentArgs& args, std::int64_t distance) {
  constexpr unsigned kTiles = score_tiles(NQ);
  std::int64_t tile = 0;
  for (; tile + kTiles <= args.num_tiles; tile += kTiles) {
    const char* aheads[kTiles];
    for (unsigned t = 0; t < kTiles; ++t) {
      aheads[t] = block_at(args, tile + t + distance);
    }
    score_tiles_of<Element, NQ, kTiles>(args, 0, tile, aheads);
  }
  return tile;
}

template <typename Element>
void score_segment(const AttentionSegmentArgs& args, std::int64_t distance) {
  std::int64_t tile = 0;
  if (args.num_queries == 1) {
    tile = score_few<Element, 1>(args, distance);
  } else if (args.num_queries == 2) {
    tile = score_few<Element, 2>(args, distance);
  }
  for (; tile < args.num_tiles; ++tile) {
    const char* ahead = block_at(args, tile + distance);
    for (std::int64_t query = 0; query < args.num_queries; query += kMaxScoreQueries) {
      const std::int64_t rest = args.num_queries - query;
      const std::int64_t count = rest < kMaxScoreQueries ? rest : kMaxScoreQueries;
      if (tile_seen(args, query, count, tile)) {
        score_queries<Element, kMaxScoreQueries>(args, query, count, tile, ahead);
        ahead = static_cast<const char*>(args.tiles[tile].k);  // is being read: costs nothing
      }
    }
  }
}

// acc += w * v for NQ queries that see the same keys of a tile, NV vectors of dimensions from d.
template <typename Element, unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void accumulate_dims(const AttentionSegmentArgs& args, std::int64_t query,
                                        std::int64_t tile, std::uint32_t bits, std::int64_t d,
                                        const char* ahead) {
  constexpr std::int64_t kBytes = std::int64_t{16} * NV * Element::kBytes;
  const void* v = args.tiles[tile].v;
  const float* w = args.scores + query * kScoresStride + tile * kKeys;
  float* to = args.acc + query * args.acc_stride + d;
  V acc[NQ][NV];
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      acc[m][n] = vload(to + m * args.acc_stride + 16 * n);
    }
  }
  const auto step = [&](std::int64_t key) __attribute__((always_inline)) {
    const std::int64_t at = key * args.dim_v + d;
    for (std::int64_t line = 0; line < kBytes; line += 64) {
      __builtin_prefetch(ahead + at * Element::kBytes + line);
    }
    V weight[NQ];
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NQ; ++m) {
      weight[m] = vset(w[m * kScoresStride + key]);
    }
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      const V value = Element::load(v, at + 16 * n);
#pragma GCC unroll 16
      for (std::int64_t m = 0; m < NQ; ++m) {
        acc[m][n] = vfma(weight[m], value, acc[m][n]);
      }
    }
  };
  if (bits == ~std::uint32_t{0}) {
    for (std::int64_t key = 0; key < kKeys; ++key) {
      step(key);
    }
  } else {
    for (; bits != 0; bits &= bits - 1) {
      step(__builtin_ctz(bits));
    }
  }
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 8
    for (std::int64_t n = 0; n < NV; ++n) {
      vstore(to + m * args.acc_stride + 16 * n, acc[m][n]);
    }
  }
}

// Dimensions [d, dim_v) in blocks of NV vectors, what is left in smaller ones.
template <typename Element, unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void accumulate_rest(const AttentionSegmentArgs& args, std::int64_t query,
                                        std::int64_t tile, std::uint32_t bits, std::int64_t d,
                                        const char* ahead) {
  constexpr std::int64_t kDims = std::int64_t{16} * NV;
  for (; d + kDims <= args.dim_v; d += kDims) {
    accumulate_dims<Element, NQ, NV>(args, query, tile, bits, d, ahead);
  }
  if constexpr (NV > 1) {
    accumulate_rest<Element, NQ, NV / 2>(args, query, tile, bits, d, ahead);
  }
}

template <typename Element, unsigned NQ>
void accumulate_queries(const AttentionSegmentArgs& args, std::int64_t query, std::int64_t count,
                        std::int64_t tile, std::uint32_t bits, const char* ahead) {
  if constexpr (NQ > 0) {
    if (count == NQ) {
      accumulate_rest<Element, NQ, value_vectors(NQ)>(args, query, tile, bits, 0, ahead);
    } else {
      accumulate_queries<Element, NQ - 1>(args, query, count, tile, bits, ahead);
    }
  }
}

template <typename Element>
void accumulate_segment(const AttentionSegmentArgs& args, std::int64_t distance) {
  for (std::int64_t tile = 0; tile < args.num_tiles; ++tile) {
    const std::uint32_t* visible = args.visible + tile * args.num_queries;
    const char* ahead = block_at(args, args.num_tiles + tile + distance);
    for (std::int64_t query = 0; query < args.num_queries;) {
      const std::uint32_t bits = visible[query];
      std::int64_t count = 1;
      while (count < kMaxValueQueries && query + count < args.num_queries &&
             visible[query + count] == bits) {
        ++count;
      }
      if (bits != 0) {
        accumulate_queries<Element, kMaxValueQueries>(args, query, count, tile, bits, ahead);
        ahead = static_cast<const char*>(args.tiles[tile].v);
      }
      query += count;
    }
  }
}

template <typename Element>
void attention_segment(const AttentionSegmentArgs* arguments) {
  const AttentionSegmentArgs& args = *arguments;
  const std::int64_t distance = tiles_ahead(args, args.dim_k * kKeys * Element::kBytes);
  score_segment<Element>(args, distance);
  for (std::int64_t query = 0; query < args.num_queries; ++query) {
    float* scores = args.scores + query * kScoresStride;
    softmax_query(
        args, query, args.scale, [&](std::int64_t part, V p) __attribute__((always_inline)) {
          vstore(scores + 16 * part, p);
        });
    for (std::int64_t d = 0; d < args.dim_v; d += 16) {
      vstore(args.acc + query * args.acc_stride + d, vzero());
    }
  }
  accumulate_segment<Element>(args, distance);
}

void attention_merge(float* max, float* sum, float* acc, float next_max, float next_sum,
                     const float* next_acc, std::int64_t dim_v) {
  if (next_sum == 0.0f) {
    return;
  }
  if (*sum == 0.0f) {
    *max = next_max;
    *sum = next_sum;
    for (std::int64_t d = 0; d < dim_v; d += 16) {
      vstore(acc + d, vload(next_acc + d));
    }
    return;
  }
  const V first = vset(*max);
  const V second = vset(next_max);
  const V both = vmax(first, second);
  const V first_factor = vexp_below(vsub(first, both));
  const V second_factor = vexp_below(vsub(second, both));
  float lanes[16];
  vstore(lanes, vfma(vset(next_sum), second_factor, vmul(vset(*sum), first_factor)));
  *sum = lanes[0];
  vstore(lanes, both);
  *max = lanes[0];
  for (std::int64_t d = 0; d < dim_v; d += 16) {
    vstore(acc + d, vfma(vload(next_acc + d), second_factor, vmul(vload(acc + d), first_factor)));
  }
}

void attention_finish(const float* acc, float sum, std::int64_t n, float* out) {
  for (std::int64_t d = 0; d < n; ++d) {
    out[d] = acc[d] / sum;
  }
}

}  // namespace
}  // namespace trine::kernels
