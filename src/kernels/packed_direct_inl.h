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

// Asks for the share of a chunk's lines at p that belongs to vector v and the quads from `first`
// on, of as many shares as the chunk has steps and vectors.
template <CodeKind kCodes, int kQuads>
TRINE_DOT_INLINE void prefetch_share(const std::uint8_t* p, std::int64_t v, std::int64_t first) {
  constexpr std::int64_t kBytes = 2 * packed_strip_bytes(kCodes);
  constexpr std::int64_t kShares = std::int64_t{kVectors} * (8 / kQuads);
  const std::int64_t share = first / kQuads * kVectors + v;
  const std::int64_t begin = kBytes * share / kShares / 64 * 64;
  const std::int64_t end = kBytes * (share + 1) / kShares / 64 * 64;
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

// kQuads quads of kStepVectors vectors of a chunk, from quad kFirst and vector kVector on, times
// the same columns of NX rows. Where the sums have registers of their own, neighbouring products
// belong to different sums, so that none waits for the one before it, and four activations in a
// register serve all vectors of the step; else one sum after the other is loaded and stored. Rows
// in threes, so that an address is base + {0, 1, 2} * stride and few registers hold them all.
template <CodeKind kCodes, int kFirst, int kQuads, unsigned kVector, unsigned NX>
TRINE_DOT_INLINE void dot_step(const std::uint8_t* p, const DirectRows& x,
                               D (&sums)[NX][kVectors]) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
  const std::int8_t* row = x.codes + std::int64_t{4} * kFirst;
  // Else the compiler keeps what the last step loaded, and pushes the sums out of the registers.
  __asm__("" : "+r"(row));
  if constexpr (kFirst > 0) {
    __asm__("" : "+r"(p));
  }
  B codes[kStepVectors][static_cast<unsigned>(kQuads)];
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < kStepVectors; ++i) {
    const std::int64_t v = kVector + i;
    prefetch_share<kCodes, kQuads>(p + x.ahead, v, kFirst);
    unpack<kCodes, kFirst, kQuads>(p + strip_of(v) * kStrip + offset_in_strip(v), codes[i]);
  }
  if constexpr (kStepVectors == 1) {
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NX; ++m) {
      row += m > 0 && m % 3 == 0 ? 3 * x.stride : 0;
#pragma GCC unroll 8
      for (std::int64_t q = 0; q < kQuads; ++q) {
        const std::int8_t* const at = row + x.stride * (m % 3) + 4 * q;
        sums[m][kVector] = ddot(sums[m][kVector], codes[0][q], xload(at));
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (std::int64_t q = 0; q < kQuads; ++q) {
    const std::int8_t* at = row + 4 * q;
#pragma GCC unroll 16
    for (std::int64_t m = 0; m < NX; ++m) {
      at += m > 0 && m % 3 == 0 ? 3 * x.stride : 0;
      const X four = xload(at + x.stride * (m % 3));
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kStepVectors; ++i) {
        sums[m][kVector + i] = ddot(sums[m][kVector + i], codes[i][q], four);
      }
    }
  }
}

// Quads [kFirst, kFirst + kCount) of all vectors.
template <CodeKind kCodes, int kFirst, int kCount, unsigned NX, unsigned kVector = 0>
TRINE_DOT_INLINE void dot_quads(const std::uint8_t* p, const DirectRows& x,
                                D (&sums)[NX][kVectors]) {
  constexpr int kQuads = kCount < kStepQuads ? kCount : kStepQuads;
  dot_step<kCodes, kFirst, kQuads, kVector, NX>(p, x, sums);
  if constexpr (kVector + kStepVectors < kVectors) {
    dot_quads<kCodes, kFirst, kCount, NX, kVector + kStepVectors>(p, x, sums);
  } else if constexpr (kCount > kQuads) {
    dot_quads<kCodes, kFirst + kQuads, kCount - kQuads, NX>(p, x, sums);
  }
}

// Codes of `num_chunks` chunks times x; the sums go on in `sums`.
template <CodeKind kCodes, unsigned NX>
TRINE_DOT_INLINE const std::uint8_t* dot_chunks(const std::uint8_t* p, std::int64_t num_chunks,
                                                DirectRows x, D (&sums)[NX][kVectors]) {
  for (std::int64_t c = 0; c < num_chunks; ++c) {
    dot_quads<kCodes, 0, 8, NX>(p, x, sums);
    p += 2 * packed_strip_bytes(kCodes);
    x.codes += kPackedChunk;
  }
  return p;
}

// Two groups of 16 columns: the quads of a chunk belong to the first and the second half.
template <CodeKind kCodes, unsigned NX>
TRINE_DOT_INLINE const std::uint8_t* dot_half_chunks(const std::uint8_t* p, const DirectRows& x,
                                                     D (&first)[NX][kVectors],
                                                     D (&second)[NX][kVectors]) {
  dot_quads<kCodes, 0, 4, NX>(p, x, first);
  dot_quads<kCodes, 4, 4, NX>(p, x, second);
  return p + 2 * packed_strip_bytes(kCodes);
}

template <unsigned NX>
TRINE_DOT_INLINE void start_group(const Shape& s, const PackedRows& x, std::int64_t row0,
                                  std::int64_t group_idx, D (&sums)[NX][kVectors]) {
  const std::int32_t* sum = x.sums + row0 * x.sum_stride + group_idx;
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NX; ++m, sum += x.sum_stride) {
    const std::int32_t start = -s.zero_point * *sum;
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      sums[m][v] = dset(start);
    }
  }
}

template <bool kHasMin, unsigned NX>
TRINE_DOT_INLINE void add_products(const Shape& s, const F* scale, const F* min,
                                   const PackedRows& x, std::int64_t row0, std::int64_t group_idx,
                                   const D (&sums)[NX][kVectors], float* out) {
  const float* x_scale = x.scales + row0 * x.group_stride + (group_idx >> s.activation_shift);
  const float* scaled_sum = x.scaled_sums + row0 * x.sum_stride + group_idx;
#pragma GCC unroll 16
  for (std::int64_t m = 0; m < NX; ++m, x_scale += x.group_stride, scaled_sum += x.sum_stride) {
    const F row_scale = fset(*x_scale);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const at = out + 32 * m + kVectorRows * v;
      F acc = ffma(fconvert(sums[m][v]), fmul(scale[v], row_scale), fload(at));
      if constexpr (kHasMin) {
        acc = ffma(min[v], fset(*scaled_sum), acc);
      }
      fstore(at, acc);
    }
  }
}

// The float chain's step after the products of a group.
template <unsigned NX>
TRINE_DOT_INLINE void add_group(const Shape& s, const F* scale, const F* min, const PackedRows& x,
                                std::int64_t row0, std::int64_t group_idx,
                                const D (&sums)[NX][kVectors], float* out) {
  if (s.has_min) {
    add_products<true, NX>(s, scale, min, x, row0, group_idx, sums, out);
  } else {
    add_products<false, NX>(s, scale, min, x, row0, group_idx, sums, out);
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
      add_group<NX>(s, header.scale[0], header.min[0], x, row0, group_idx, first, out);
      add_group<NX>(s, header.scale[1], header.min[1], x, row0, group_idx + 1, second, out);
      group_idx += 2;
      col = unit_end;
      continue;
    }
    for (std::int64_t part = 0; col < unit_end; ++part, ++group_idx) {
      const std::int64_t end = col + s.group < unit_end ? col + s.group : unit_end;
      D sums[NX][kVectors];
      start_group<NX>(s, x, row0, group_idx, sums);
      p = dot_chunks<kCodes, NX>(p, (end - col) / kPackedChunk, {codes + col, stride, ahead}, sums);
      add_group<NX>(s, header.scale[part], header.min[part], x, row0, group_idx, sums, out);
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
