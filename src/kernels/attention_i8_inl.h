// Body of the attention_i8 family; contract in attention.h. TRINE_LANES_HEADER and
// TRINE_DOT_LANES_HEADER name the instruction set's lanes.h and dot_lanes.h.
//
// Codes stand in pages as 128 + code, the unsigned operand of the dot-product instructions, in
// fours that one instruction multiplies with four wide numbers. A sum starts at -128 times the sum
// of the wide numbers, which takes the offset out again. Sums are exact, so their order is free.
#pragma once

#include <cstdint>

#include "kernels/attention_softmax_inl.h"
#include TRINE_DOT_LANES_HEADER

namespace trine::kernels {
namespace {

constexpr float kWideMax = 16256.0f;   // 127 * 128: two signed pieces of 8 and 7 bits
constexpr float kWideTiny = 1e-30f;    // below, 16256 / largest could overflow
constexpr float kRounder = 0x1.8p23f;  // added: rounds to an integer in the low bits
constexpr float kLargest = 0x1.fffffep127f;
constexpr std::int64_t kTileWideBytes = kKeys / 4 * kWideQuadBytes;
// Where the header of a query's weights stands in its row of scores, behind the wide numbers.
constexpr std::int64_t kWeightHeader = kSegmentTiles * kTileWideBytes;
// Values that are read once for each group of queries stay in the first-level cache.
constexpr std::int64_t kChunkBytes = 16384;
constexpr std::int64_t kVectorsPerTile = kKeys / kVectorRows;

// How a row of numbers becomes wide ones, and what to multiply sums with afterwards.
struct WideStep {
  float inverse;
  float step;
};

TRINE_LANES_INLINE WideStep wide_step(float largest, float total) {
  if (!(total <= kLargest)) {
    return {0.0f, __builtin_nanf("")};
  }
  if (largest < kWideTiny) {
    return {0.0f, 0.0f};
  }
  return {kWideMax / largest, largest / kWideMax};
}

// Sixteen numbers as wide ones at `to`; adds them to `total`.
TRINE_LANES_INLINE void put_wide(unsigned char* to, V x, float inverse, V& total) {
  const V rounder = vset(kRounder);
  const V shifted = inverse == 0.0f ? rounder : vfma(x, vset(inverse), rounder);
  wstore(to, shifted);
  total = vadd(total, vsub(shifted, rounder));
}

struct WideHeader {
  float step;
  std::int32_t start;
};

TRINE_LANES_INLINE void put_header(unsigned char* to, float step, V total) {
  // At most 2^24 in magnitude on the way, so the float sum is exact.
  const WideHeader header{step, -128 * static_cast<std::int32_t>(vreduce_add(total))};
  __builtin_memcpy(to, &header, sizeof header);
}

TRINE_LANES_INLINE WideHeader get_header(const unsigned char* from) {
  WideHeader header;
  __builtin_memcpy(&header, from, sizeof header);
  return header;
}

// Elements [d, d + 16) of a row of `dim`, zeros behind its end.
TRINE_LANES_INLINE V load_sixteen(const float* row, std::int64_t d, std::int64_t dim) {
  const std::int64_t rest = dim - d;
  return rest < 16 ? vload_n(row + d, rest) : vload(row + d);
}

void quantize_queries(const float* q, std::int64_t q_stride, std::int64_t num_queries,
                      std::int64_t dim_k, unsigned char* rows) {
  for (std::int64_t query = 0; query < num_queries; ++query) {
    const float* x = q + query * q_stride;
    unsigned char* row = rows + query * query_row_bytes(dim_k);
    V largest = vzero();
    V magnitudes = vzero();
    for (std::int64_t d = 0; d < dim_k; d += 16) {
      const V a = vabs(load_sixteen(x, d, dim_k));
      largest = vmax(largest, a);
      magnitudes = vadd(magnitudes, a);
    }
    const WideStep wide = wide_step(vreduce_max(largest), vreduce_add(magnitudes));
    V total = vzero();
    for (std::int64_t d = 0; d < dim_k; d += 16) {
      put_wide(row + kQueryHeaderBytes + d / 4 * kWideQuadBytes, load_sixteen(x, d, dim_k),
               wide.inverse, total);
    }
    put_header(row, wide.step, total);
  }
}

TRINE_LANES_INLINE const unsigned char* query_row(const AttentionSegmentArgs& args,
                                                  std::int64_t query) {
  return args.q_rows + query * query_row_bytes(args.dim_k);
}

TRINE_LANES_INLINE unsigned char* weight_row(const AttentionSegmentArgs& args, std::int64_t query) {
  return reinterpret_cast<unsigned char*>(args.scores + query * kScoresStride);
}

// Scores of NQ queries for the 32 keys of one tile, without the query's step; NV vectors of keys at
// a time.
template <unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void score_codes(const AttentionSegmentArgs& args, std::int64_t query,
                                    std::int64_t tile, const char* ahead) {
  const auto* k = static_cast<const std::uint8_t*>(args.tiles[tile].k);
  const std::int64_t num_quads = (args.dim_k + 3) / 4;
  float* scores = args.scores + query * kScoresStride + tile * kKeys;
  for (std::int64_t part = 0; part < kVectorsPerTile; part += NV) {
    const std::int64_t first = part * kVectorRows;
    S sums[NQ][NV];
    const unsigned char* wide[NQ];
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NQ; ++m) {
#pragma GCC unroll 4
      for (std::int64_t n = 0; n < NV; ++n) {
        sums[m][n] = sset(get_header(query_row(args, query + m)).start);
      }
      wide[m] = query_row(args, query + m) + kQueryHeaderBytes;
    }
    for (std::int64_t quad = 0; quad < num_quads; ++quad) {
      const std::int64_t at = (quad * kKeys + first) * 4;
#pragma GCC unroll 4
      for (std::int64_t n = 0; n < NV; ++n) {
        const std::int64_t vector = at + n * kVectorRows * 4;
        __builtin_prefetch(ahead + vector);
        const B codes = bload(k + vector);
#pragma GCC unroll 16
        for (std::int64_t m = 0; m < NQ; ++m) {
          sums[m][n] = sdot(sums[m][n], codes, wide[m] + quad * kWideQuadBytes);
        }
      }
    }
#pragma GCC unroll 4
    for (std::int64_t n = 0; n < NV; ++n) {
      const std::int64_t at = first + n * kVectorRows;
      const F key_scale = fload_f16(k + num_quads * kKeys * 4 + at * 2);
#pragma GCC unroll 16
      for (std::int64_t m = 0; m < NQ; ++m) {
        fstore(scores + m * kScoresStride + at, fmul(fconvert(sjoin(sums[m][n])), key_scale));
      }
    }
  }
}

template <unsigned NQ>
void score_code_queries(const AttentionSegmentArgs& args, std::int64_t query, std::int64_t count,
                        std::int64_t tile, const char* ahead) {
  if constexpr (NQ > 0) {
    if (count == NQ) {
      constexpr unsigned kVectors = wide_vectors(NQ);
      score_codes < NQ, kVectors<kVectorsPerTile ? kVectors : unsigned{kVectorsPerTile}>(
                            args, query, tile, ahead);
    } else {
      score_code_queries<NQ - 1>(args, query, count, tile, ahead);
    }
  }
}

TRINE_LANES_INLINE std::int64_t group_size(const AttentionSegmentArgs& args, std::int64_t query) {
  const std::int64_t rest = args.num_queries - query;
  return rest < std::int64_t{kMaxWideQueries} ? rest : std::int64_t{kMaxWideQueries};
}

void score_code_segment(const AttentionSegmentArgs& args, std::int64_t distance) {
  for (std::int64_t tile = 0; tile < args.num_tiles; ++tile) {
    const char* ahead = block_at(args, tile + distance);
    for (std::int64_t query = 0; query < args.num_queries; query += kMaxWideQueries) {
      const std::int64_t count = group_size(args, query);
      if (tile_seen(args, query, count, tile)) {
        score_code_queries<kMaxWideQueries>(args, query, count, tile, ahead);
        ahead = static_cast<const char*>(args.tiles[tile].k);  // is being read: costs nothing
      }
    }
  }
}

// Scores of one query become wide weights, in the place of the scores.
void weigh_query(const AttentionSegmentArgs& args, std::int64_t query) {
  float* scores = args.scores + query * kScoresStride;
  V largest = vzero();
  V total = vzero();
  softmax_query(
      args, query, get_header(query_row(args, query)).step * args.scale,
      [&](std::int64_t part, V p) __attribute__((always_inline)) {
        const auto* v = static_cast<const unsigned char*>(args.tiles[part / 2].v);
        const std::uint32_t bits =
            args.visible[part / 2 * args.num_queries + query] >> (part % 2 * 16);
        V w = vmul(p, vload_f16(v + args.dim_v * kKeys + part % 2 * 32));
        // The scale of a key that is not seen may be anything.
        w = vselect_bits(bits & 0xffffu, w, vzero());
        largest = vmax(largest, w);
        total = vadd(total, w);
        vstore(scores + 16 * part, w);
      });
  const WideStep wide = wide_step(vreduce_max(largest), vreduce_add(total));
  unsigned char* row = weight_row(args, query);
  total = vzero();
  for (std::int64_t part = 0; part < std::int64_t{2} * args.num_tiles; ++part) {
    // Sixteen floats become 32 bytes: never ahead of what is still to be read.
    put_wide(row + part * 4 * kWideQuadBytes, vload(scores + 16 * part), wide.inverse, total);
  }
  put_header(row + kWeightHeader, wide.step, total);
}

// Sums of NQ queries over the tiles [begin, end), NV vectors of dimensions from d.
template <unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void accumulate_codes(const AttentionSegmentArgs& args, std::int64_t query,
                                         std::int64_t begin, std::int64_t end, std::int64_t d,
                                         std::int64_t distance) {
  S sums[NQ][NV];
  const unsigned char* wide[NQ];
  float* to = args.acc + query * args.acc_stride + d;
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NQ; ++m) {
    wide[m] = weight_row(args, query + m);
#pragma GCC unroll 4
    for (std::int64_t n = 0; n < NV; ++n) {
      const float* resume = to + m * args.acc_stride + n * kVectorRows;
      sums[m][n] = begin == 0 ? sset(get_header(wide[m] + kWeightHeader).start)
                              : sresume(reinterpret_cast<const std::int32_t*>(resume));
    }
  }
  for (std::int64_t tile = begin; tile < end; ++tile) {
    if (!tile_seen(args, query, NQ, tile)) {
      continue;
    }
    const auto* v = static_cast<const std::uint8_t*>(args.tiles[tile].v);
    const char* ahead = query == 0 ? block_at(args, args.num_tiles + tile + distance)
                                   : reinterpret_cast<const char*>(v);
    for (std::int64_t quad = 0; quad < kKeys / 4; ++quad) {
#pragma GCC unroll 4
      for (std::int64_t n = 0; n < NV; ++n) {
        const std::int64_t at = (quad * args.dim_v + d + n * kVectorRows) * 4;
        __builtin_prefetch(ahead + at);
        const B codes = bload(v + at);
#pragma GCC unroll 16
        for (std::int64_t m = 0; m < NQ; ++m) {
          sums[m][n] =
              sdot(sums[m][n], codes, wide[m] + tile * kTileWideBytes + quad * kWideQuadBytes);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NQ; ++m) {
    const F step = fset(get_header(wide[m] + kWeightHeader).step);
#pragma GCC unroll 4
    for (std::int64_t n = 0; n < NV; ++n) {
      const D sum = sjoin(sums[m][n]);
      float* at = to + m * args.acc_stride + n * kVectorRows;
      if (end == args.num_tiles) {
        fstore(at, fmul(fconvert(sum), step));
      } else {
        dstore(reinterpret_cast<std::int32_t*>(at), sum);
      }
    }
  }
}

// Dimensions [d, dim_v) in blocks of NV vectors, what is left in smaller ones.
template <unsigned NQ, unsigned NV>
TRINE_LANES_INLINE void accumulate_codes_rest(const AttentionSegmentArgs& args, std::int64_t query,
                                              std::int64_t begin, std::int64_t end, std::int64_t d,
                                              std::int64_t distance) {
  constexpr std::int64_t kDims = std::int64_t{NV} * kVectorRows;
  for (; d + kDims <= args.dim_v; d += kDims) {
    accumulate_codes<NQ, NV>(args, query, begin, end, d, distance);
  }
  if constexpr (NV > 1) {
    accumulate_codes_rest<NQ, NV / 2>(args, query, begin, end, d, distance);
  }
}

template <unsigned NQ>
void accumulate_code_queries(const AttentionSegmentArgs& args, std::int64_t query,
                             std::int64_t count, std::int64_t begin, std::int64_t end,
                             std::int64_t distance) {
  if constexpr (NQ > 0) {
    if (count == NQ) {
      accumulate_codes_rest<NQ, wide_vectors(NQ)>(args, query, begin, end, 0, distance);
    } else {
      accumulate_code_queries<NQ - 1>(args, query, count, begin, end, distance);
    }
  }
}

void attention_i8_segment(const AttentionSegmentArgs* arguments) {
  const AttentionSegmentArgs& args = *arguments;
  // Values are read in several passes, so only a whole segment ahead is early enough: values are
  // fetched while keys are computed, and the other way round.
  const std::int64_t distance = args.num_tiles;
  score_code_segment(args, distance);
  for (std::int64_t query = 0; query < args.num_queries; ++query) {
    weigh_query(args, query);
  }
  const std::int64_t fitting = kChunkBytes / (args.dim_v * kKeys);
  const std::int64_t chunk = fitting > 1 ? fitting : 1;
  for (std::int64_t begin = 0; begin < args.num_tiles; begin += chunk) {
    const std::int64_t end = begin + chunk < args.num_tiles ? begin + chunk : args.num_tiles;
    for (std::int64_t query = 0; query < args.num_queries; query += kMaxWideQueries) {
      accumulate_code_queries<kMaxWideQueries>(args, query, group_size(args, query), begin, end,
                                               distance);
    }
  }
}

}  // namespace
}  // namespace trine::kernels
