// Body of the packed family; contract in packed.h, layout in docs/formats/packed-weights.md.
// TRINE_DOT_LANES_HEADER names the instruction set's dot_lanes.h.
//
// One row: codes go from memory through registers into the dot products, nothing is stored.
// Up to kStreamRows rows: a segment (at most 128 columns of 32 rows) is decoded to bytes in the
// first-level cache and multiplied with every row there, so each weight is read and unpacked once.
// More rows: a whole block is decoded into the second-level cache and multiplied with tiles of
// rows.
#pragma once

#include <cstdint>

#include "kernels/math_inl.h"
#include "kernels/packed.h"
#include "kernels/packed_row_inl.h"
#include "kernels/packed_unpack_inl.h"
#include TRINE_DOT_LANES_HEADER

namespace trine::kernels {
namespace {

#if defined(TRINE_AMX)
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kStreamRows = 32;
#else
constexpr std::int64_t kTileRows = kMaxTileRows;
constexpr std::int64_t kStreamRows = 16;
#endif
constexpr std::int64_t kSegment = 128;  // columns that are decoded at a time for up to kStreamRows
// Activation codes of one pass over a block: a part of the second-level cache.
constexpr std::int64_t kRowsBytes = 512 * 1024;

// ---- several rows

// Decoded columns of a block: codes [2 strips][quads][16 rows][4], strips half_stride apart.
struct Segment {
  const std::uint8_t* codes;
  std::int64_t half_stride;
  std::int64_t col;
  std::int64_t group_idx;
  const float* scale;  // [32]
  const float* min;    // [32]
  std::int32_t quads;
  bool first;  // of its group
  bool last;
};

template <CodeKind kCodes>
TRINE_DOT_INLINE void decode_chunk(const std::uint8_t* p, std::uint8_t* to,
                                   std::int64_t half_stride) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
#pragma GCC unroll 16
  for (std::int64_t line = 0; line < 2 * kStrip; line += 64) {
    prefetch(p + kPrefetchBytes + line);
  }
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    B codes[8];
    unpack<kCodes>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
    std::uint8_t* const strip = to + strip_of(v) * half_stride + offset_in_strip(v);
#pragma GCC unroll 8
    for (unsigned q = 0; q < 8; ++q) {
      bstore(strip + 64 * q, codes[q]);
    }
  }
}

TRINE_DOT_INLINE void store_scales(const Header& header, unsigned part, bool has_min,
                                   float* scales) {
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    fstore(scales + kVectorRows * v, header.scale[part][v]);
    if (has_min) {
      fstore(scales + 32 + kVectorRows * v, header.min[part][v]);
    }
  }
}

// Decodes a block segment by segment and hands each to visit(). With `keep` every segment has a
// place of its own in codes and scales, else each overwrites the one before.
template <CodeKind kCodes, typename Visit>
TRINE_DOT_INLINE void walk_block(const Shape& s, const std::uint8_t* p, bool keep,
                                 std::uint8_t* codes, float* scales, Visit visit) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
  Header header{};
  std::int64_t group_idx = 0;
  for (std::int64_t col = 0; col < s.padded;) {
    if (s.super && col % kPackedSuper == 0) {
      p = read_super(s.scales, p, header);
    }
    p = read_header(s.scales, p, header);
    const std::int64_t unit_end = col + s.unit < s.padded ? col + s.unit : s.padded;
    if (s.group < kPackedChunk) {
      std::uint8_t* const to = keep ? codes + col * kPackedBlockRows : codes;
      decode_chunk<kCodes>(p, to, 512);
      p += 2 * kStrip;
      for (unsigned part = 0; part < 2; ++part, ++group_idx) {
        float* const at = keep ? scales + group_idx * 64 : scales;
        store_scales(header, part, s.has_min, at);
        visit(
            Segment{to + 256 * part, 512, col + 16 * part, group_idx, at, at + 32, 4, true, true});
      }
      col = unit_end;
      continue;
    }
    for (unsigned part = 0; col < unit_end; ++part, ++group_idx) {
      const std::int64_t begin = col;
      const std::int64_t end = col + s.group < unit_end ? col + s.group : unit_end;
      float* const at = keep ? scales + group_idx * 64 : scales;
      store_scales(header, part, s.has_min, at);
      while (col < end) {
        const std::int64_t count = keep || end - col < kSegment ? end - col : kSegment;
        std::uint8_t* const to = keep ? codes + col * kPackedBlockRows : codes;
        for (std::int64_t c = 0; c < count; c += kPackedChunk, p += 2 * kStrip) {
          decode_chunk<kCodes>(p, to + c * 16, count * 16);
        }
        visit(Segment{to, count * 16, col, group_idx, at, at + 32,
                      static_cast<std::int32_t>(count / 4), col == begin, col + count == end});
        col += count;
      }
    }
  }
}

// Sums of a tile between segments: one row after the other, 32 each.
struct TileSums {
  float acc[32 * 32];
  std::int32_t dots[32 * 32];
};

struct Scratch {
  TileSums* sums;
  std::uint8_t* codes;
  float* scales;
};

// The segments of a decoded block in order; each is a whole group.
template <typename Visit>
TRINE_DOT_INLINE void walk_decoded(const Shape& s, const Scratch& scratch, Visit visit) {
  std::int64_t group_idx = 0;
  for (std::int64_t col = 0; col < s.padded; col += s.group, ++group_idx) {
    const float* const scale = scratch.scales + group_idx * 64;
    const std::int64_t count = col + s.group < s.padded ? s.group : s.padded - col;
    // Groups of 16 share a chunk: the second one's quads follow the first one's in each strip.
    const std::int64_t in_chunk = s.group < kPackedChunk ? col % kPackedChunk : 0;
    const std::int64_t half_stride = s.group < kPackedChunk ? 512 : count * 16;
    visit(Segment{scratch.codes + (col - in_chunk) * kPackedBlockRows + in_chunk * 16, half_stride,
                  col, group_idx, scale, scale + 32, static_cast<std::int32_t>(count / 4), true,
                  true});
  }
}

// Rows of x in tiles of nearly one size.
TRINE_DOT_INLINE std::int64_t tile_rows(std::int64_t rows_left) {
  const std::int64_t tiles = (rows_left + kTileRows - 1) / kTileRows;
  return (rows_left + tiles - 1) / tiles;
}

}  // namespace
}  // namespace trine::kernels

#if defined(TRINE_AMX)
#include "kernels/amx/tiles.h"
#else
#include "kernels/packed_tiles_inl.h"
#endif

namespace trine::kernels {
namespace {

TRINE_DOT_INLINE void write_row(const float* acc, const float* bias, std::int64_t count, float* y) {
  if (count == kPackedBlockRows) {
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      const F sum = fload(acc + kVectorRows * v);
      fstore(y + kVectorRows * v, bias == nullptr ? sum : fadd(sum, fload(bias + kVectorRows * v)));
    }
    return;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    y[n] = bias == nullptr ? acc[n] : acc[n] + bias[n];
  }
}

TRINE_DOT_INLINE void clear(TileSums& sums, std::int64_t num_rows) {
  for (std::int64_t i = 0; i < 32 * num_rows; i += kVectorRows) {
    fstore(sums.acc + i, fset(0.0f));
  }
}

template <CodeKind kCodes>
void stream_rows(TileState& state, const PackedMatrix& w, const PackedRows& x,
                 const std::uint8_t* block, const Scratch& scratch) {
  const Shape s = shape_of(w);
  TileSums& sums = *scratch.sums;
  clear(sums, x.num_rows);
  walk_block<kCodes>(s, block, false, scratch.codes, scratch.scales,
                     [&](const Segment& segment) { segment_rows(state, s, segment, x, sums); });
}

// Decodes the whole block.
template <CodeKind kCodes>
void decode_block(const PackedMatrix& w, const std::uint8_t* block, const Scratch& scratch) {
  walk_block<kCodes>(shape_of(w), block, true, scratch.codes, scratch.scales,
                     [](const Segment&) {});
}

template <CodeKind kCodes>
void multiply_codes(TileState& state, const PackedMatrix& w, const PackedRows& x, const float* bias,
                    float* y, std::int64_t y_stride, std::int64_t block_begin,
                    std::int64_t block_end, const Scratch& scratch) {
  const std::int64_t block_bytes = packed_block_bytes(w.scheme, w.cols);
  const Shape s = shape_of(w);
  TileSums& sums = *scratch.sums;
  std::int64_t rows_per_pass = kRowsBytes / s.padded / kTileRows * kTileRows;
  rows_per_pass = rows_per_pass < 2 * kTileRows ? 2 * kTileRows : rows_per_pass;
  for (std::int64_t row0 = 0; row0 < x.num_rows; row0 += rows_per_pass) {
    const std::int64_t pass_rows =
        x.num_rows - row0 < rows_per_pass ? x.num_rows - row0 : rows_per_pass;
    for (std::int64_t b = block_begin; b < block_end; ++b) {
      const std::uint8_t* const block = w.data + b * block_bytes;
      const std::int64_t n = b * kPackedBlockRows;
      const std::int64_t count = w.rows - n < kPackedBlockRows ? w.rows - n : kPackedBlockRows;
      const float* const block_bias = bias == nullptr ? nullptr : bias + n;
      if (x.num_rows <= kStreamRows) {
        if (x.num_rows == 1) {
          multiply_row<kCodes>(w, x, block, sums.acc);
        } else {
          stream_rows<kCodes>(state, w, x, block, scratch);
        }
        for (std::int64_t m = 0; m < x.num_rows; ++m) {
          write_row(sums.acc + 32 * m, block_bias, count, y + m * y_stride + n);
        }
        continue;
      }
      decode_block<kCodes>(w, block, scratch);
      for (std::int64_t m = row0; m < row0 + pass_rows;) {
        const std::int64_t tile = tile_rows(row0 + pass_rows - m);
        clear(sums, tile);
        decoded_rows(state, s, x, m, tile, scratch);
        for (std::int64_t i = 0; i < tile; ++i) {
          write_row(sums.acc + 32 * i, block_bias, count, y + (m + i) * y_stride + n);
        }
        m += tile;
      }
    }
  }
}

void multiply_packed(const PackedMatrix* w, const PackedRows* x, const float* bias, float* y,
                     std::int64_t y_stride, std::int64_t block_begin, std::int64_t block_end,
                     void* scratch) {
  static_assert(sizeof(TileSums) <= 16 * 1024);
  auto* const bytes = static_cast<std::uint8_t*>(scratch);
  const Scratch parts{
      reinterpret_cast<TileSums*>(bytes), bytes + 16 * 1024,
      reinterpret_cast<float*>(bytes + 16 * 1024 + packed_padded_cols(w->cols) * kPackedBlockRows)};
  using Multiply = void (*)(TileState&, const PackedMatrix&, const PackedRows&, const float*,
                            float*, std::int64_t, std::int64_t, std::int64_t, const Scratch&);
  constexpr Multiply kMultiply[kNumCodeKinds] = {
      &multiply_codes<CodeKind::kU2>,    &multiply_codes<CodeKind::kU3>,
      &multiply_codes<CodeKind::kU4>,    &multiply_codes<CodeKind::kU5>,
      &multiply_codes<CodeKind::kU6>,    &multiply_codes<CodeKind::kU8>,
      &multiply_codes<CodeKind::kIq4Nl>, &multiply_codes<CodeKind::kE2M1>};
  TileState state;
  kMultiply[static_cast<int>(w->scheme.codes)](state, *w, *x, bias, y, y_stride, block_begin,
                                               block_end, parts);
  state.release();
}

// ---- activations

void quantize_group(const float* x, std::int64_t count, std::int8_t* codes, float* scale) {
  const std::int64_t whole = count & ~std::int64_t{15};
  V max = vzero();
  V finite = vzero();  // stays 0 unless something is infinite or not a number
  for (std::int64_t i = 0; i < whole; i += 16) {
    const V values = vload(x + i);
    max = vmax(max, vabs(values));
    finite = vfma(values, vzero(), finite);
  }
  if (whole != count) {
    const V values = vload_n(x + whole, count - whole);
    max = vmax(max, vabs(values));
    finite = vfma(values, vzero(), finite);
  }
  const float absmax = vreduce_max(max);
  const bool bad = !(vreduce_add(finite) == 0.0f);
  if (bad || absmax < 0x1p-100f) {
    *scale = bad ? __builtin_nanf("") : 0.0f;
    __builtin_memset(codes, 0, static_cast<std::size_t>(count));
    return;
  }
  *scale = absmax / 127.0f;
  const V inverse = vset(127.0f / absmax);
  const V magic = vset(0x1.8p23f);  // adding it rounds to an integer in the low mantissa bits
  for (std::int64_t i = 0; i < whole; i += 16) {
    store_codes(codes + i, vadd(vmul(vload(x + i), inverse), magic));
  }
  if (whole != count) {
    std::int8_t rest[16];
    store_codes(rest, vadd(vmul(vload_n(x + whole, count - whole), inverse), magic));
    __builtin_memcpy(codes + whole, rest, static_cast<std::size_t>(count - whole));
  }
}

void quantize_row(const float* x, std::int64_t cols, std::int64_t group, std::int64_t sum_group,
                  std::int8_t* codes, float* scales, std::int32_t* sums, float* scaled_sums) {
  const std::int64_t padded = packed_padded_cols(cols);
  for (std::int64_t col = 0; col < padded; col += group) {
    const std::int64_t count = cols - col < group ? cols - col : group;
    const std::int64_t padded_count = padded - col < group ? padded - col : group;
    quantize_group(x + col, count, codes + col, scales);
    __builtin_memset(codes + col + count, 0, static_cast<std::size_t>(padded_count - count));
    for (std::int64_t i = 0; i < padded_count; i += sum_group) {
      const std::int64_t end = padded_count - i < sum_group ? padded_count : i + sum_group;
      std::int32_t sum = 0;
      for (std::int64_t k = i; k < end; ++k) {
        sum += codes[col + k];
      }
      *sums++ = sum;
      *scaled_sums++ = static_cast<float>(sum) * *scales;
    }
    ++scales;
  }
}

}  // namespace
}  // namespace trine::kernels
