// Body of the packed family; contract in packed.h, layout in docs/formats/packed-weights.md.
// TRINE_DOT_LANES_HEADER names the instruction set's dot_lanes.h.
//
// A few rows: codes go from memory through registers into the dot products (packed_direct_inl.h).
// More rows: a panel, some columns of a block of 32 weight rows, is decoded to bytes in the
// first-level cache and multiplied with every row of a pass, tile by tile, so each weight is read
// and unpacked once per pass. The sums of the pass stay in the caches from panel to panel.
#pragma once

#include <cstdint>

#include "kernels/math_inl.h"
#include "kernels/packed.h"
#include "kernels/packed_direct_inl.h"
#include "kernels/packed_unpack_inl.h"
#include "kernels/tuning.h"
#include TRINE_DOT_LANES_HEADER

namespace trine::kernels {
namespace {

#if defined(TRINE_AMX)
constexpr std::int64_t kTileRows = 32;
#else
constexpr std::int64_t kTileRows = kMaxTileRows;
#endif
// Columns of a panel.
constexpr std::int64_t kPanel = 512;
// Most rows of a pass.
constexpr std::int64_t kPassRows = 256;
constexpr std::int64_t kPassTiles = (kPassRows + kTileRows - 1) / kTileRows;
// Sums of a tile, 32 of each row. Tiles 4096 bytes apart would look alike to the core's check of
// loads against earlier stores.
constexpr std::int64_t kTileSums = 32 * kTileRows + (kTileRows % 32 == 0 ? 64 : 0);
constexpr std::int64_t kMaxPanelGroups = kPanel / 16;

// A group, or the part of one that lies in a panel. Decoded codes: [2 strips][quads][16 rows][4],
// strips half_stride apart.
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
  // Chunks of weights, whose second halves are asked for while this segment is multiplied.
  const std::uint8_t* coming;
  std::int32_t num_coming;
};

struct Scratch {
  std::uint8_t codes[kPanel * kPackedBlockRows];
  float scales[kMaxPanelGroups * 64];
  Segment segments[kMaxPanelGroups];
  std::int64_t half_chunk;  // bytes of half a chunk of packed codes
  // Of each tile of the pass: float sums, and int32 sums of a group that goes on in the next panel.
  alignas(64) float acc[kPassTiles * kTileSums];
  alignas(64) std::int32_t dots[kPassTiles * kTileSums];
};

static_assert(sizeof(Scratch) <= kPackedScratchBytes);

// ---- panels

// Decoding alone would use the memory in bursts and leave it idle during the products, so it asks
// for the first half of a chunk's lines only; prefetch_coming() asks for the others.
template <CodeKind kCodes>
TRINE_DOT_INLINE void decode_chunk(const std::uint8_t* p, [[maybe_unused]] std::int32_t zero_point,
                                   std::uint8_t* to, std::int64_t half_stride, std::int64_t ahead) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
#pragma GCC unroll 16
  for (std::int64_t line = 0; line < kStrip; line += 64) {
    prefetch(p + ahead + line);
  }
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    B codes[8];
    unpack<kCodes, 0, 8>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
    std::uint8_t* const strip = to + strip_of(v) * half_stride + offset_in_strip(v);
#pragma GCC unroll 8
    for (std::int64_t q = 0; q < 8; ++q) {
      bstore(strip + 64 * q, decoded(codes[q], zero_point));
    }
  }
}

// `half` is half the bytes of a chunk.
TRINE_DOT_INLINE void prefetch_coming(const Segment& segment, std::int64_t half) {
  for (std::int64_t c = 0; c < segment.num_coming; ++c) {
    for (std::int64_t line = half; line < 2 * half; line += 64) {
      prefetch(segment.coming + 2 * half * c + line);
    }
  }
}

TRINE_DOT_INLINE void store_scales(const Header& header, std::int64_t part, bool has_min,
                                   float* scales) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    fstore(scales + kVectorRows * v, header.scale[part][v]);
    if (has_min) {
      fstore(scales + 32 + kVectorRows * v, header.min[part][v]);
    }
  }
}

// Reads a block from left to right.
struct BlockReader {
  const std::uint8_t* p;
  std::int64_t ahead;  // weights are asked for so many bytes before their use
  std::int64_t col = 0;
  std::int64_t group_idx = 0;
  Header header{};
};

// Decodes up to kPanel columns more and lists their segments; returns how many there are. A panel
// ends between groups, or inside a group that is larger than it.
template <CodeKind kCodes>
TRINE_DOT_INLINE std::int64_t decode_panel(const Shape& s, BlockReader& reader, Scratch& scratch) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
  std::int64_t count = 0;
  std::uint8_t* codes = scratch.codes;
  const std::int64_t panel_end = reader.col + kPanel < s.padded ? reader.col + kPanel : s.padded;
  while (reader.col < panel_end) {
    const std::int64_t in_unit = reader.col % s.unit;
    if (s.super && reader.col % kPackedSuper == 0) {
      reader.p = read_super(s.scales, reader.p, reader.header);
    }
    if (in_unit == 0) {
      reader.p = read_header(s.scales, reader.p, reader.header);
    }
    float* const scales = scratch.scales + count * 64;
    if (s.group < kPackedChunk) {  // two groups in a chunk: the first and the last four quads
      decode_chunk<kCodes>(reader.p, s.zero_point, codes, 512, reader.ahead);
      reader.p += 2 * kStrip;
      for (std::int64_t part = 0; part < 2; ++part, ++count) {
        float* const at = scales + 64 * part;
        store_scales(reader.header, part, s.has_min, at);
        scratch.segments[count] = {codes + 256 * part,
                                   512,
                                   reader.col + 16 * part,
                                   reader.group_idx++,
                                   at,
                                   at + 32,
                                   4,
                                   true,
                                   true,
                                   reader.p - 2 * kStrip + reader.ahead,
                                   part == 0 ? 1 : 0};
      }
      codes += kPackedChunk * kPackedBlockRows;
      reader.col += kPackedChunk;
      continue;
    }
    const std::int64_t in_group = reader.col % s.group;
    const std::int64_t group_end =
        reader.col - in_group + s.group < s.padded ? reader.col - in_group + s.group : s.padded;
    const std::int64_t end = group_end < panel_end ? group_end : panel_end;
    const std::int64_t columns = end - reader.col;
    store_scales(reader.header, in_unit < s.group ? 0 : 1, s.has_min, scales);
    const std::uint8_t* const coming = reader.p + reader.ahead;
    for (std::int64_t c = 0; c < columns; c += kPackedChunk, reader.p += 2 * kStrip) {
      decode_chunk<kCodes>(reader.p, s.zero_point, codes + c * 16, columns * 16, reader.ahead);
    }
    scratch.segments[count++] = {codes,
                                 columns * 16,
                                 reader.col,
                                 reader.group_idx,
                                 scales,
                                 scales + 32,
                                 static_cast<std::int32_t>(columns / 4),
                                 in_group == 0,
                                 end == group_end,
                                 coming,
                                 static_cast<std::int32_t>(columns / kPackedChunk)};
    codes += columns * kPackedBlockRows;
    reader.col = end;
    if (end == group_end) {
      ++reader.group_idx;
    }
  }
  return count;
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

// ---- products

TRINE_DOT_INLINE std::int64_t num_tiles(std::int64_t num_rows) {
  return (num_rows + kTileRows - 1) / kTileRows;
}

// The first row of a tile; all tiles have nearly one size.
TRINE_DOT_INLINE std::int64_t first_row(std::int64_t num_rows, std::int64_t tile) {
  return num_rows * tile / num_tiles(num_rows);
}

TRINE_DOT_INLINE void write_row(const float* acc, const float* bias, std::int64_t count, float* y) {
  if (count == kPackedBlockRows) {
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const F sum = fload(acc + kVectorRows * v);
      fstore(y + kVectorRows * v, bias == nullptr ? sum : fadd(sum, fload(bias + kVectorRows * v)));
    }
    return;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    y[n] = bias == nullptr ? acc[n] : acc[n] + bias[n];
  }
}

// num_rows rows of x from row0 on against one block; the sums are in scratch.acc then.
template <CodeKind kCodes>
void multiply_rows(TileState& state, const PackedMatrix& w, const PackedRows& x, std::int64_t row0,
                   std::int64_t num_rows, const std::uint8_t* block, Scratch& scratch,
                   std::int64_t ahead) {
  const Shape s = shape_of(w);
  for (std::int64_t i = 0; i < num_tiles(num_rows) * kTileSums; i += kVectorRows) {
    fstore(scratch.acc + i, fset(0.0f));
  }
  BlockReader reader{block, ahead};
  while (reader.col < s.padded) {
    const std::int64_t count = decode_panel<kCodes>(s, reader, scratch);
    scratch.half_chunk = packed_strip_bytes(kCodes);
    for (std::int64_t tile = 0; tile < num_tiles(num_rows); ++tile) {
      const std::int64_t first = first_row(num_rows, tile);
      multiply_tile(state, s, x, row0 + first, first_row(num_rows, tile + 1) - first, count,
                    scratch, tile);
    }
  }
}

template <CodeKind kCodes>
void multiply_codes(TileState& state, const PackedMatrix& w, const PackedRows& x, const float* bias,
                    float* y, std::int64_t y_stride, std::int64_t block_begin,
                    std::int64_t block_end, Scratch& scratch, const Tuning& tuning) {
  const std::int64_t block_bytes = packed_block_bytes(w.scheme, w.cols);
  const std::int64_t fitting =
      tuning.pass_bytes / packed_padded_cols(w.cols) / kTileRows * kTileRows;
  const std::int64_t pass_rows = fitting < 2 * kTileRows ? 2 * kTileRows
                                 : fitting > kPassRows   ? kPassRows
                                                         : fitting;
  for (std::int64_t row0 = 0; row0 < x.num_rows; row0 += pass_rows) {
    const std::int64_t rows = x.num_rows - row0 < pass_rows ? x.num_rows - row0 : pass_rows;
    for (std::int64_t b = block_begin; b < block_end; ++b) {
      const std::uint8_t* const block = w.data + b * block_bytes;
      const std::int64_t n = b * kPackedBlockRows;
      const std::int64_t count = w.rows - n < kPackedBlockRows ? w.rows - n : kPackedBlockRows;
      if (x.num_rows <= tuning.direct_rows) {
        // Passes after the first find the block in the caches.
        const std::int64_t passes = (x.num_rows + kMaxDirectRows - 1) / kMaxDirectRows;
        for (std::int64_t pass = 0; pass < passes; ++pass) {
          const std::int64_t first = x.num_rows * pass / passes;
          const std::int64_t end = x.num_rows * (pass + 1) / passes;
          multiply_few<kCodes, kMaxDirectRows>(w, x, first, end - first, block, scratch.acc,
                                               tuning.weight_prefetch_bytes);
          for (std::int64_t m = first; m < end; ++m) {
            write_row(scratch.acc + 32 * (m - first), bias == nullptr ? nullptr : bias + n, count,
                      y + m * y_stride + n);
          }
        }
        continue;
      }
      multiply_rows<kCodes>(state, w, x, row0, rows, block, scratch, tuning.weight_prefetch_bytes);
      for (std::int64_t tile = 0; tile < num_tiles(rows); ++tile) {
        const float* acc = scratch.acc + tile * kTileSums;
        for (std::int64_t m = first_row(rows, tile); m < first_row(rows, tile + 1); ++m) {
          write_row(acc, bias == nullptr ? nullptr : bias + n, count,
                    y + (row0 + m) * y_stride + n);
          acc += 32;
        }
      }
    }
  }
}

void multiply_packed(const PackedMatrix* w, const PackedRows* x, const float* bias, float* y,
                     std::int64_t y_stride, std::int64_t block_begin, std::int64_t block_end,
                     void* scratch, const Tuning* tuning) {
  using Multiply =
      void (*)(TileState&, const PackedMatrix&, const PackedRows&, const float*, float*,
               std::int64_t, std::int64_t, std::int64_t, Scratch&, const Tuning&);
  constexpr Multiply kMultiply[kNumCodeKinds] = {
      &multiply_codes<CodeKind::kU2>,    &multiply_codes<CodeKind::kU3>,
      &multiply_codes<CodeKind::kU4>,    &multiply_codes<CodeKind::kU5>,
      &multiply_codes<CodeKind::kU6>,    &multiply_codes<CodeKind::kU8>,
      &multiply_codes<CodeKind::kIq4Nl>, &multiply_codes<CodeKind::kE2M1>};
  TileState state;
  kMultiply[static_cast<int>(w->scheme.codes)](state, *w, *x, bias, y, y_stride, block_begin,
                                               block_end, *static_cast<Scratch*>(scratch), *tuning);
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
