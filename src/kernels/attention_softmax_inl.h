// What both attention families share: the order in which a segment's bytes are read, and softmax.
// Contracts in attention.h. TRINE_LANES_HEADER names the instruction set's lanes.h.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/math_inl.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

constexpr std::int64_t kKeys = kAttentionTileKeys;
constexpr std::int64_t kScoresStride = kSegmentKeys;

// What the segment reads in order: its keys, its values, then the keys of what follows.
TRINE_LANES_INLINE const char* block_at(const AttentionSegmentArgs& args, std::int64_t i) {
  if (i < args.num_tiles) {
    return static_cast<const char*>(args.tiles[i].k);
  }
  if (i < std::int64_t{2} * args.num_tiles) {
    return static_cast<const char*>(args.tiles[i - args.num_tiles].v);
  }
  const std::int64_t next = i - args.num_tiles;
  const std::int64_t last = args.num_tiles + args.tiles_coming - 1;
  return static_cast<const char*>(args.tiles[next < last ? next : last].k);
}

// Tiles between the one that is computed and the one that is fetched.
TRINE_LANES_INLINE std::int64_t tiles_ahead(const AttentionSegmentArgs& args,
                                            std::int64_t tile_bytes) {
  const std::int64_t wanted = (args.prefetch_bytes + tile_bytes - 1) / tile_bytes;
  return wanted < args.num_tiles ? wanted : args.num_tiles;
}

// Whether one of the queries [query, query + count) sees a key of the tile.
TRINE_LANES_INLINE bool tile_seen(const AttentionSegmentArgs& args, std::int64_t query,
                                  std::int64_t count, std::int64_t tile) {
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    any |= args.visible[tile * args.num_queries + query + i];
  }
  return any != 0;
}

// Whether the query sees every key of the segment, and whether it sees any.
struct Sight {
  bool whole;
  bool any;
};

TRINE_LANES_INLINE Sight sight_of(const AttentionSegmentArgs& args, std::int64_t query) {
  std::uint32_t all = ~std::uint32_t{0};
  std::uint32_t any = 0;
  for (std::int64_t tile = 0; tile < args.num_tiles; ++tile) {
    const std::uint32_t bits = args.visible[tile * args.num_queries + query];
    all &= bits;
    any |= bits;
  }
  return {all == ~std::uint32_t{0}, any != 0};
}

// softmax_query() with or without keys to leave out.
template <bool kWhole, typename Put>
TRINE_LANES_INLINE void softmax_scores(const AttentionSegmentArgs& args, std::int64_t query,
                                       float scale_of_scores, bool any, Put&& put) {
  float* scores = args.scores + query * kScoresStride;
  const std::int64_t num_parts = std::int64_t{2} * args.num_tiles;
  const auto seen = [&](std::int64_t part) -> std::uint32_t {
    if constexpr (kWhole) {
      return 0xffffu;
    } else {
      return args.visible[part / 2 * args.num_queries + query] >> (part % 2 * 16) & 0xffffu;
    }
  };
  const auto among = [](std::uint32_t bits, V x, V other) {
    return kWhole ? x : vselect_bits(bits, x, other);
  };
  const V scale = vset(scale_of_scores);
  const V lowest = vset(-__builtin_inff());
  V max = lowest;
  for (std::int64_t part = 0; part < num_parts; ++part) {
    const std::uint32_t bits = seen(part);
    if (bits == 0) {
      continue;
    }
    V s = vmul(vload(scores + 16 * part), scale);
    if (args.softcap > 0.0f) {
      const V cap = vset(args.softcap);
      s = vmul(cap, vtanh(vdiv(s, cap)));
    }
    s = among(bits, s, lowest);
    vstore(scores + 16 * part, s);
    max = vmax(max, s);
  }
  const float segment_max = vreduce_max(max);
  args.max[query] = segment_max;
  max = vset(segment_max);
  V sum = vzero();
  for (std::int64_t part = 0; part < num_parts; ++part) {
    const std::uint32_t bits = seen(part);
    V p = vzero();
    if (bits != 0) {
      p = among(bits, vexp_below(vsub(vload(scores + 16 * part), max)), vzero());
      sum = vadd(sum, p);
    }
    put(part, p);
  }
  args.sum[query] = any ? vreduce_add(sum) : 0.0f;
}

// Scores of one query, scaled by `scale`, become weights: put(part, p) gets those of keys
// [16 * part, 16 * part + 16), zeros for keys that are not seen. Sets the query's maximum and sum.
template <typename Put>
TRINE_LANES_INLINE void softmax_query(const AttentionSegmentArgs& args, std::int64_t query,
                                      float scale_of_scores, Put&& put) {
  const Sight sight = sight_of(args, query);
  if (sight.whole) {
    softmax_scores<true>(args, query, scale_of_scores, true, put);
  } else {
    softmax_scores<false>(args, query, scale_of_scores, sight.any, put);
  }
}

}  // namespace
}  // namespace trine::kernels
