// The tiles of packed_inl.h on the AMX int8 unit: 16 or 32 rows of x against 32 rows of w. Up to 64
// columns are one instruction per 16 x 16 results: A holds 16 rows of activation codes as they lie,
// B the decoded codes of a strip (its 64-byte lines are what the instruction wants), C int32 sums.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/packed.h"

namespace trine::kernels {
namespace {

// Tile registers: C 0..3 = (16 rows of x) x (strip), A 4 and 5, B 6 and 7.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Configures the unit for `rows0` and `rows1` rows of x and `columns` columns, a multiple of 4 up
// to
// 64. Clears the tiles.
void configure(std::int64_t rows0, std::int64_t rows1, std::int64_t columns) {
  TileConfig config;
  const auto set = [&](int tile, std::int64_t rows, std::int64_t bytes) {
    config.rows[tile] = static_cast<std::uint8_t>(rows);
    config.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  };
  const std::int64_t second = rows1 > 0 ? rows1 : 1;  // a tile without rows is not allowed
  set(0, rows0, 64);
  set(1, rows0, 64);
  set(2, second, 64);
  set(3, second, 64);
  set(4, rows0, columns);
  set(5, second, columns);
  set(6, columns / 4, 64);
  set(7, columns / 4, 64);
  _tile_loadconfig(&config);
}

// What the unit is configured for; 0 columns: nothing yet.
struct TileState {
  std::int64_t rows0 = 0;
  std::int64_t rows1 = 0;
  std::int64_t columns = 0;

  void want(std::int64_t first, std::int64_t second, std::int64_t cols) {
    if (first != rows0 || second != rows1 || cols != columns) {
      configure(first, second, cols);
      rows0 = first;
      rows1 = second;
      columns = cols;
    }
  }

  // Gives the tiles back: their state costs time at every context switch.
  void release() const {
    if (columns != 0) {
      _tile_release();
    }
  }
};

// `count` columns of a segment from column `at` of it, in steps of `step`: sums go on in C.
TRINE_DOT_INLINE void multiply_tiles(const Segment& segment, std::int64_t at, std::int64_t count,
                                     std::int64_t step, bool two, const std::int8_t* x,
                                     std::int64_t stride) {
  for (; count >= step; count -= step, at += step) {
    const std::uint8_t* const codes = segment.codes + at * 16;
    _tile_loadd(6, codes, 64);
    _tile_loadd(4, x + at, stride);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, codes + segment.half_stride, 64);
    _tile_dpbsud(1, 4, 7);
    if (two) {
      _tile_loadd(5, x + at + 16 * stride, stride);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    }
  }
}

constexpr std::int64_t kDotsStride = 32 * 4;

TRINE_DOT_INLINE void store_tiles(std::int32_t* dots, bool two) {
  _tile_stored(0, dots, kDotsStride);
  _tile_stored(1, dots + 16, kDotsStride);
  if (two) {
    _tile_stored(2, dots + 16 * 32, kDotsStride);
    _tile_stored(3, dots + 16 * 32 + 16, kDotsStride);
  }
}

TRINE_DOT_INLINE void load_tiles(const std::int32_t* dots, bool two) {
  _tile_loadd(0, dots, kDotsStride);
  _tile_loadd(1, dots + 16, kDotsStride);
  if (two) {
    _tile_loadd(2, dots + 16 * 32, kDotsStride);
    _tile_loadd(3, dots + 16 * 32 + 16, kDotsStride);
  }
}

TRINE_DOT_INLINE void clear_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

TRINE_DOT_INLINE void finish_group(const Shape& s, const Segment& segment, const PackedRows& x,
                                   std::int64_t row0, std::int64_t num_rows, TileSums& sums) {
  const std::int64_t activation_group = segment.group_idx >> s.activation_shift;
  const F scale0 = fload(segment.scale);
  const F scale1 = fload(segment.scale + 16);
  const std::int32_t* x_sums = x.sums + row0 * x.sum_stride + segment.group_idx;
  const float* x_scales = x.scales + row0 * x.group_stride + activation_group;
  if (!s.has_min) {
    for (std::int64_t m = 0; m < num_rows; ++m) {
      const D start = dset(-s.zero_point * x_sums[m * x.sum_stride]);
      const F x_scale = fset(x_scales[m * x.group_stride]);
      float* const acc = sums.acc + 32 * m;
      const D dot0 = _mm512_add_epi32(dload(sums.dots + 32 * m), start);
      const D dot1 = _mm512_add_epi32(dload(sums.dots + 32 * m + 16), start);
      fstore(acc, ffma(fconvert(dot0), fmul(scale0, x_scale), fload(acc)));
      fstore(acc + 16, ffma(fconvert(dot1), fmul(scale1, x_scale), fload(acc + 16)));
    }
    return;
  }
  const F min0 = fload(segment.min);
  const F min1 = fload(segment.min + 16);
  const float* x_scaled = x.scaled_sums + row0 * x.sum_stride + segment.group_idx;
  for (std::int64_t m = 0; m < num_rows; ++m) {
    const F x_scale = fset(x_scales[m * x.group_stride]);
    const F x_sum = fset(x_scaled[m * x.sum_stride]);
    float* const acc = sums.acc + 32 * m;
    const F dot0 = fconvert(dload(sums.dots + 32 * m));
    const F dot1 = fconvert(dload(sums.dots + 32 * m + 16));
    fstore(acc, ffma(min0, x_sum, ffma(dot0, fmul(scale0, x_scale), fload(acc))));
    fstore(acc + 16, ffma(min1, x_sum, ffma(dot1, fmul(scale1, x_scale), fload(acc + 16))));
  }
}

// num_rows rows of x, at most 32, against one segment.
TRINE_DOT_INLINE void tile_segment(TileState& state, const Shape& s, const Segment& segment,
                                   const PackedRows& x, std::int64_t row0, std::int64_t num_rows,
                                   TileSums& sums) {
  const std::int64_t rows0 = num_rows < 16 ? num_rows : 16;
  const std::int64_t rows1 = num_rows - rows0;
  const bool two = rows1 > 0;
  const std::int64_t columns = segment.quads * 4;
  const std::int64_t step = columns < 64 ? columns : 64;
  const std::int64_t rest = columns % step;
  const std::int8_t* const codes = x.codes + row0 * x.code_stride + segment.col;
  state.want(rows0, rows1, step);
  if (segment.first) {
    clear_tiles();
  } else {
    load_tiles(sums.dots, two);
  }
  multiply_tiles(segment, 0, columns, step, two, codes, x.code_stride);
  if (rest != 0) {
    store_tiles(sums.dots, two);
    state.want(rows0, rows1, rest);
    load_tiles(sums.dots, two);
    multiply_tiles(segment, columns - rest, rest, rest, two, codes, x.code_stride);
  }
  store_tiles(sums.dots, two);
  if (segment.last) {
    finish_group(s, segment, x, row0, num_rows, sums);
  }
}

// All rows of x, at most kStreamRows, against one segment.
TRINE_DOT_INLINE void segment_rows(TileState& state, const Shape& s, const Segment& segment,
                                   const PackedRows& x, TileSums& sums) {
  tile_segment(state, s, segment, x, 0, x.num_rows, sums);
}

// `count` rows of x, at most kTileRows, against a decoded block.
void decoded_rows(TileState& state, const Shape& s, const PackedRows& x, std::int64_t row0,
                  std::int64_t count, const Scratch& scratch) {
  walk_decoded(s, scratch, [&](const Segment& segment) {
    tile_segment(state, s, segment, x, row0, count, *scratch.sums);
  });
}

}  // namespace
}  // namespace trine::kernels
