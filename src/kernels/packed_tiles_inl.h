// Tiles of rows in vector registers, for packed_inl.h. amx/tiles.h has the same functions on the
// AMX unit.
#pragma once

#include "kernels/packed.h"

namespace trine::kernels {
namespace {

// NX rows of x, the first of them row0, against one segment; acc and dots are those of row0.
template <unsigned NX>
TRINE_DOT_INLINE void tile_step(const Shape& s, const Segment& segment, const PackedRows& x,
                                std::int64_t row0, float* acc, std::int32_t* dots) {
  D sums[NX][kVectors];
  if (segment.first) {
    start_group<NX>(s, x, row0, segment.group_idx, sums);
  } else {
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NX; ++m) {
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[m][v] = dload(dots + 32 * m + kVectorRows * v);
      }
    }
  }
  // Rows in threes, so that an address is base + {0, 1, 2} * stride and few registers hold them
  // all.
  const std::int64_t stride = x.code_stride;
  const std::int8_t* const codes = x.codes + row0 * stride + segment.col;
  const std::uint8_t* const weight_codes = segment.codes;
  const std::int64_t end = 64 * std::int64_t{segment.quads};
  for (std::int64_t at = 0; at < end; at += 64) {
    if (at % 1024 == 0) {  // a line of activations lasts 16 quads; the next tile's come now
      const std::int8_t* coming = codes + at / 16 + NX * stride;
      for (unsigned m = 0; m < NX; ++m, coming += stride) {
        prefetch(reinterpret_cast<const std::uint8_t*>(coming));
      }
    }
    B weights[kVectors];
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      weights[v] =
          bload(weight_codes + strip_of(v) * segment.half_stride + offset_in_strip(v) + at);
    }
    const std::int8_t* row = codes + at / 16;
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NX; ++m) {
      if (m > 0 && m % 3 == 0) {
        row += 3 * stride;
      }
      const X four = xload(row + stride * (m % 3));
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[m][v] = ddot(sums[m][v], weights[v], four);
      }
    }
  }
  if (!segment.last) {
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NX; ++m) {
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kVectors; ++v) {
        dstore(dots + 32 * m + kVectorRows * v, sums[m][v]);
      }
    }
    return;
  }
  F scale[kVectors];
  F min[kVectors];
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    scale[v] = fload(segment.scale + kVectorRows * v);
    min[v] = s.has_min ? fload(segment.min + kVectorRows * v) : scale[v];
  }
  add_group<NX>(s, scale, min, x, row0, segment.group_idx, sums, acc);
}

// All segments of a panel against NX rows.
template <unsigned NX>
void multiply_panel(std::int64_t count, const Shape& s, const PackedRows& x, std::int64_t row0,
                    std::int64_t num_segments, Scratch& scratch, std::int64_t tile) {
  if constexpr (NX > 0) {
    if (count != NX) {
      multiply_panel<NX - 1>(count, s, x, row0, num_segments, scratch, tile);
      return;
    }
    for (std::int64_t i = 0; i < num_segments; ++i) {
      if (tile == 0) {
        prefetch_coming(scratch.segments[i], scratch.half_chunk);
      }
      tile_step<NX>(s, scratch.segments[i], x, row0, scratch.acc + tile * kTileSums,
                    scratch.dots + tile * kTileSums);
    }
  }
}

// The tiles of amx/ have a state; these have none.
struct TileState {
  void release() {}
};

// `count` rows of x from row0 on, at most kTileRows, against the decoded panel; the sums are those
// of tile number `tile` of the pass.
void multiply_tile(TileState&, const Shape& s, const PackedRows& x, std::int64_t row0,
                   std::int64_t count, std::int64_t num_segments, Scratch& scratch,
                   std::int64_t tile) {
  multiply_panel<kMaxTileRows>(count, s, x, row0, num_segments, scratch, tile);
}

}  // namespace
}  // namespace trine::kernels
