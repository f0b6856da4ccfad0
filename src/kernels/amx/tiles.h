// The tiles of packed_inl.h on the AMX int8 unit: 16 or 32 rows of x against 32 rows of w. Up to 64
// columns are one instruction per 16 x 16 results: A holds 16 rows of activation codes as they lie,
// B the decoded codes of a strip (its 64-byte lines are what the instruction wants), C int32 sums.
// The sums of one group become floats while the unit works on the next one.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/amx/tile_config.h"
#include "kernels/packed.h"

namespace trine::kernels {
namespace {

// Tile registers: C 0..3 = (16 rows of x) x (strip), A 4 and 5, B 6 and 7.

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
  load_tile_config(config);
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

// `count` columns of a segment from column `at` of it, in steps of `step`: sums go on in C. Codes
// without a zero point are unsigned, the others were decoded to signed ones.
template <bool kSigned>
TRINE_DOT_INLINE void multiply_columns(const Segment& segment, std::int64_t at, std::int64_t count,
                                       std::int64_t step, bool two, const std::int8_t* x,
                                       std::int64_t stride) {
  for (; count >= step; count -= step, at += step) {
    const std::uint8_t* const codes = segment.codes + at * 16;
    _tile_loadd(6, codes, 64);
    _tile_loadd(4, x + at, stride);
    _tile_loadd(7, codes + segment.half_stride, 64);
    if constexpr (kSigned) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
    } else {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
    }
    if (two) {
      _tile_loadd(5, x + at + 16 * stride, stride);
      if constexpr (kSigned) {
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      } else {
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      }
    }
  }
}

constexpr std::int64_t kDotsStride = std::int64_t{32} * 4;
constexpr std::int64_t kSecondRows = std::int64_t{16} * 32;  // where the lower two tiles start

TRINE_DOT_INLINE void store_tiles(std::int32_t* dots, bool two) {
  _tile_stored(0, dots, kDotsStride);
  _tile_stored(1, dots + 16, kDotsStride);
  if (two) {
    _tile_stored(2, dots + kSecondRows, kDotsStride);
    _tile_stored(3, dots + kSecondRows + 16, kDotsStride);
  }
}

TRINE_DOT_INLINE void load_tiles(const std::int32_t* dots, bool two) {
  _tile_loadd(0, dots, kDotsStride);
  _tile_loadd(1, dots + 16, kDotsStride);
  if (two) {
    _tile_loadd(2, dots + kSecondRows, kDotsStride);
    _tile_loadd(3, dots + kSecondRows + 16, kDotsStride);
  }
}

TRINE_DOT_INLINE void clear_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// int32 sums of num_rows rows over one segment, into `dots`; what `dots` holds goes on when the
// group began before.
template <bool kSigned>
TRINE_DOT_INLINE void multiply_segment(TileState& state, const Segment& segment,
                                       const PackedRows& x, std::int64_t row0,
                                       std::int64_t num_rows, std::int32_t* dots) {
  const std::int64_t rows0 = num_rows < 16 ? num_rows : 16;
  const std::int64_t rows1 = num_rows - rows0;
  const bool two = rows1 > 0;
  const std::int64_t columns = std::int64_t{segment.quads} * 4;
  const std::int64_t step = columns < 64 ? columns : 64;
  const std::int64_t rest = columns % step;
  const std::int8_t* const codes = x.codes + row0 * x.code_stride + segment.col;
  state.want(rows0, rows1, step);
  settle_memory();  // the codes
  if (segment.first) {
    clear_tiles();
  } else {
    load_tiles(dots, two);
  }
  multiply_columns<kSigned>(segment, 0, columns, step, two, codes, x.code_stride);
  if (rest != 0) {  // configuring anew clears the tiles
    store_tiles(dots, two);
    state.want(rows0, rows1, rest);
    load_tiles(dots, two);
    multiply_columns<kSigned>(segment, columns - rest, rest, rest, two, codes, x.code_stride);
  }
  store_tiles(dots, two);
}

TRINE_DOT_INLINE void finish_group(const Shape& s, const Segment& segment, const PackedRows& x,
                                   std::int64_t row0, std::int64_t num_rows,
                                   const std::int32_t* dots, float* acc) {
  const float* const x_scales =
      x.scales + row0 * x.group_stride + (segment.group_idx >> s.activation_shift);
  const F scale0 = fload(segment.scale);
  const F scale1 = fload(segment.scale + 16);
  if (!s.has_min) {
    for (std::int64_t m = 0; m < num_rows; ++m) {
      const F x_scale = fset(x_scales[m * x.group_stride]);
      float* const at = acc + 32 * m;
      const F dot0 = fconvert(dload(dots + 32 * m));
      const F dot1 = fconvert(dload(dots + 32 * m + 16));
      fstore(at, ffma(dot0, fmul(scale0, x_scale), fload(at)));
      fstore(at + 16, ffma(dot1, fmul(scale1, x_scale), fload(at + 16)));
    }
    return;
  }
  const F min0 = fload(segment.min);
  const F min1 = fload(segment.min + 16);
  const float* const x_sums = x.scaled_sums + row0 * x.sum_stride + segment.group_idx;
  for (std::int64_t m = 0; m < num_rows; ++m) {
    const F x_scale = fset(x_scales[m * x.group_stride]);
    const F x_sum = fset(x_sums[m * x.sum_stride]);
    float* const at = acc + 32 * m;
    const F dot0 = fconvert(dload(dots + 32 * m));
    const F dot1 = fconvert(dload(dots + 32 * m + 16));
    fstore(at, ffma(min0, x_sum, ffma(dot0, fmul(scale0, x_scale), fload(at))));
    fstore(at + 16, ffma(min1, x_sum, ffma(dot1, fmul(scale1, x_scale), fload(at + 16))));
  }
}

template <bool kSigned>
void multiply_panel(TileState& state, const Shape& s, const PackedRows& x, std::int64_t row0,
                    std::int64_t count, std::int64_t num_segments, Scratch& scratch,
                    std::int64_t tile) {
  float* const acc = scratch.acc + tile * kTileSums;
  // Two places for the sums in turn. A group that is larger than a panel is alone in it, and its
  // sums are in the first place, which stays from panel to panel.
  alignas(64) std::int32_t spare[32 * 32];
  std::int32_t* const places[2] = {scratch.dots + tile * kTileSums, spare};
  const Segment* pending = nullptr;
  const std::int32_t* pending_dots = nullptr;
  for (std::int64_t i = 0; i < num_segments; ++i) {
    const Segment& segment = scratch.segments[i];
    std::int32_t* const dots = places[i % 2];
    if (tile == 0) {
      prefetch_coming(segment, scratch.half_chunk);
    }
    multiply_segment<kSigned>(state, segment, x, row0, count, dots);
    if (pending != nullptr) {
      finish_group(s, *pending, x, row0, count, pending_dots, acc);
    }
    pending = segment.last ? &segment : nullptr;
    pending_dots = segment.last ? dots : nullptr;
  }
  if (pending != nullptr) {
    finish_group(s, *pending, x, row0, count, pending_dots, acc);
  }
}

// `count` rows of x from row0 on, at most kTileRows, against the decoded panel; the sums are those
// of tile number `tile` of the pass.
void multiply_tile(TileState& state, const Shape& s, const PackedRows& x, std::int64_t row0,
                   std::int64_t count, std::int64_t num_segments, Scratch& scratch,
                   std::int64_t tile) {
  if (s.zero_point != 0) {
    multiply_panel<true>(state, s, x, row0, count, num_segments, scratch, tile);
  } else {
    multiply_panel<false>(state, s, x, row0, count, num_segments, scratch, tile);
  }
}

}  // namespace
}  // namespace trine::kernels
