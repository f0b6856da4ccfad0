// A few rows of activations against a block, for packed_inl.h: codes go from memory through
// registers into the dot products of every row, nothing is stored. Lines to come are asked for
// evenly between the products, so that the core's outstanding misses are always in use and
// arithmetic hides behind them.
#pragma once

#include <cstdint>

#include "kernels/packed.h"
#include "kernels/packed_unpack_inl.h"

namespace trine::kernels {
namespace {

// Asks for vector v's share of a chunk's lines, as many as the chunk has, at p.
template <CodeKind kCodes>
TRINE_DOT_INLINE void prefetch_share(const std::uint8_t* p, std::int64_t v) {
  constexpr std::int64_t kBytes = 2 * packed_strip_bytes(kCodes);
  const std::int64_t begin = kBytes * v / kVectors / 64 * 64;
  const std::int64_t end = kBytes * (v + 1) / kVectors / 64 * 64;
#pragma GCC unroll 16
  for (std::int64_t line = begin; line < end; line += 64) {
    prefetch(p + line);
  }
}

// Activation codes of NX rows.
struct DirectRows {
  const std::int8_t* codes;
  std::int64_t stride;
  std::int64_t ahead;  // weights are asked for so many bytes before their use
};

// Quads [first, first + count) of unpacked codes times the same columns of NX rows. Rows in threes,
// so that an address is base + {0, 1, 2} * stride and few registers hold them all. Activations are
// read again for every vector of weights: kept, they would push the sums out of the registers.
template <unsigned NX>
TRINE_DOT_INLINE void dot_quads(const B (&codes)[8], std::int64_t first, std::int64_t count,
                                const DirectRows& x, std::int64_t v, D (&sums)[NX][kVectors]) {
  const std::int8_t* row = x.codes;
  __asm__("" : "+r"(row));  // the compiler cannot know that the last vector's loads were the same
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NX; ++m) {
    if (m > 0 && m % 3 == 0) {
      row += 3 * x.stride;
    }
#pragma GCC unroll 8
    for (std::int64_t q = first; q < first + count; ++q) {
      sums[m][v] = ddot_at(sums[m][v], codes[q], row + x.stride * (m % 3) + 4 * q);
    }
  }
}

// Codes of `num_chunks` chunks times x; the sums go on in `sums`.
template <CodeKind kCodes, unsigned NX>
TRINE_DOT_INLINE const std::uint8_t* dot_chunks(const std::uint8_t* p, std::int64_t num_chunks,
                                                DirectRows x, D (&sums)[NX][kVectors]) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
  for (std::int64_t c = 0; c < num_chunks; ++c) {
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      prefetch_share<kCodes>(p + x.ahead, v);
      B codes[8];
      unpack<kCodes>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
      dot_quads<NX>(codes, 0, 8, x, v, sums);
    }
    p += 2 * kStrip;
    x.codes += kPackedChunk;
  }
  return p;
}

// Two groups of 16 columns: the quads of a chunk belong to the first and the second half.
template <CodeKind kCodes, unsigned NX>
TRINE_DOT_INLINE const std::uint8_t* dot_half_chunks(const std::uint8_t* p, const DirectRows& x,
                                                     D (&first)[NX][kVectors],
                                                     D (&second)[NX][kVectors]) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    prefetch_share<kCodes>(p + x.ahead, v);
    B codes[8];
    unpack<kCodes>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
    dot_quads<NX>(codes, 0, 4, x, v, first);
    dot_quads<NX>(codes, 4, 4, x, v, second);
  }
  return p + 2 * kStrip;
}

template <unsigned NX>
TRINE_DOT_INLINE void start_group(const Shape& s, const PackedRows& x, std::int64_t row0,
                                  std::int64_t group_idx, D (&sums)[NX][kVectors]) {
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NX; ++m) {
    const std::int32_t start = -s.zero_point * x.sums[(row0 + m) * x.sum_stride + group_idx];
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      sums[m][v] = dset(start);
    }
  }
}

template <unsigned NX>
TRINE_DOT_INLINE void add_group(const Shape& s, const Header& header, std::int64_t part,
                                const PackedRows& x, std::int64_t row0, std::int64_t group_idx,
                                const D (&sums)[NX][kVectors], float* out) {
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NX; ++m) {
    const std::int64_t row = row0 + m;
    const F scale = fset(x.scales[row * x.group_stride + (group_idx >> s.activation_shift)]);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const at = out + 32 * m + kVectorRows * v;
      F acc = ffma(fconvert(sums[m][v]), fmul(header.scale[part][v], scale), fload(at));
      if (s.has_min) {
        const F scaled_sum = fset(x.scaled_sums[row * x.sum_stride + group_idx]);
        acc = ffma(header.min[part][v], scaled_sum, acc);
      }
      fstore(at, acc);
    }
  }
}

// NX rows of x from row0 on against the block at p; out is [NX, 32]. The float sums live there, in
// the first-level cache: the integer ones need the registers.
template <CodeKind kCodes, unsigned NX>
void multiply_direct(const PackedMatrix& w, const PackedRows& x, std::int64_t row0,
                     const std::uint8_t* p, float* out, std::int64_t ahead) {
  const Shape s = shape_of(w);
  const std::int8_t* const codes = x.codes + row0 * x.code_stride;
  const std::int64_t stride = x.code_stride;
  Header header{};
  for (std::int64_t i = 0; i < 32 * std::int64_t{NX}; i += kVectorRows) {
    fstore(out + i, fset(0.0f));
  }
  std::int64_t group_idx = 0;
  for (std::int64_t col = 0; col < s.padded;) {
    if (s.super && col % kPackedSuper == 0) {
      p = read_super(s.scales, p, header);
    }
    p = read_header(s.scales, p, header);
    const std::int64_t unit_end = col + s.unit < s.padded ? col + s.unit : s.padded;
    if (s.group < kPackedChunk) {
      D first[NX][kVectors];
      D second[NX][kVectors];
      start_group<NX>(s, x, row0, group_idx, first);
      start_group<NX>(s, x, row0, group_idx + 1, second);
      p = dot_half_chunks<kCodes, NX>(p, {codes + col, stride, ahead}, first, second);
      add_group<NX>(s, header, 0, x, row0, group_idx, first, out);
      add_group<NX>(s, header, 1, x, row0, group_idx + 1, second, out);
      group_idx += 2;
      col = unit_end;
      continue;
    }
    for (std::int64_t part = 0; col < unit_end; ++part, ++group_idx) {
      const std::int64_t end = col + s.group < unit_end ? col + s.group : unit_end;
      D sums[NX][kVectors];
      start_group<NX>(s, x, row0, group_idx, sums);
      p = dot_chunks<kCodes, NX>(p, (end - col) / kPackedChunk, {codes + col, stride, ahead}, sums);
      add_group<NX>(s, header, part, x, row0, group_idx, sums, out);
      col = end;
    }
  }
}

// `count` rows, at most NX.
template <CodeKind kCodes, unsigned NX>
void multiply_few(const PackedMatrix& w, const PackedRows& x, std::int64_t row0, std::int64_t count,
                  const std::uint8_t* p, float* out, std::int64_t ahead) {
  if constexpr (NX > 0) {
    if (count == NX) {
      multiply_direct<kCodes, NX>(w, x, row0, p, out, ahead);
    } else {
      multiply_few<kCodes, NX - 1>(w, x, row0, count, p, out, ahead);
    }
  }
}

}  // namespace
}  // namespace trine::kernels
