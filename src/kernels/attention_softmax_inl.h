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

// Scores of one query, scaled by `scale`, become weights: put(part, p) gets those of keys
// [16 * part, 16 * part + 16), zeros for keys that are not seen. Sets the query's maximum and sum.
template <typename Put>
TRINE_LANES_INLINE void softmax_query(const AttentionSegmentArgs& args, std::int64_t query,
                                      float scale_of_scores, Put&& put) {
  float* scores = args.scores + query * kScoresStride;
  const auto seen = [&](std::int64_t part) {
    return args.visible[part / 2 * args.num_queries + query] >> (part % 2 * 16) & 0xffffu;
  };
  const V scale = vset(scale_of_scores);
  const V lowest = vset(-__builtin_inff());
  std::uint32_t any = 0;
  V max = lowest;
  for (std::int64_t part = 0; part < std::int64_t{2} * args.num_tiles; ++part) {
    const std::uint32_t bits = seen(part);
    any |= bits;
    if (bits == 0) {
      continue;
    }
    V s = vmul(vload(scores + 16 * part), scale);
    if (args.softcap > 0.0f) {
      const V cap = vset(args.softcap);
      s = vmul(cap, vtanh(vdiv(s, cap)));
    }
    s = vselect_bits(bits, s, lowest);
    vstore(scores + 16 * part, s);
    max = vmax(max, s);
  }
  const float segment_max = vreduce_max(max);
  args.max[query] = segment_max;
  max = vset(segment_max);
  V sum = vzero();
  for (std::int64_t part = 0; part < std::int64_t{2} * args.num_tiles; ++part) {
    const std::uint32_t bits = seen(part);
    V p = vzero();
    if (bits != 0) {
      p = vselect_bits(bits, vexp(vsub(vload(scores + 16 * part), max)), vzero());
      sum = vadd(sum, p);
    }
    put(part, p);
  }
  args.sum[query] = any != 0 ? vreduce_add(sum) : 0.0f;
}

}  // namespace
}  // namespace trine::kernels
