// One row of activations against a block, for packed_inl.h: codes go from memory through registers
// into the dot products, nothing is stored.
#pragma once

#include <cstdint>

#include "kernels/packed.h"
#include "kernels/packed_unpack_inl.h"

namespace trine::kernels {
namespace {

// How far ahead of its use a line is asked for.
constexpr std::int64_t kPrefetchBytes = 8192;

// Codes of `num_chunks` chunks times the activation codes x; the sums go on in `sums`.
template <CodeKind kCodes>
TRINE_DOT_INLINE const std::uint8_t* dot_chunks(const std::uint8_t* p, std::int64_t num_chunks,
                                                const std::int8_t* x, D sums[kVectors]) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
  for (std::int64_t c = 0; c < num_chunks; ++c) {
#pragma GCC unroll 16
    for (std::int64_t line = 0; line < 2 * kStrip; line += 64) {
      prefetch(p + kPrefetchBytes + line);
    }
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v) {
      B codes[8];
      unpack<kCodes>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
#pragma GCC unroll 8
      for (std::int64_t q = 0; q < 8; ++q) {
        sums[v] = ddot(sums[v], codes[q], xload(x + 4 * q));
      }
    }
    p += 2 * kStrip;
    x += kPackedChunk;
  }
  return p;
}

TRINE_DOT_INLINE void add_group(const Header& header, std::int64_t part, bool has_min,
                                const D sums[kVectors], float scale, float scaled_sum,
                                F acc[kVectors]) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    acc[v] = ffma(fconvert(sums[v]), fmul(header.scale[part][v], fset(scale)), acc[v]);
    if (has_min) {
      acc[v] = ffma(header.min[part][v], fset(scaled_sum), acc[v]);
    }
  }
}

// Two groups of 16 columns: the quads of a chunk belong to the first and the second half.
template <CodeKind kCodes>
TRINE_DOT_INLINE const std::uint8_t* dot_half_chunks(const std::uint8_t* p, const std::int8_t* x,
                                                     D first[kVectors], D second[kVectors]) {
  constexpr std::int64_t kStrip = packed_strip_bytes(kCodes);
#pragma GCC unroll 16
  for (std::int64_t line = 0; line < 2 * kStrip; line += 64) {
    prefetch(p + kPrefetchBytes + line);
  }
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    B codes[8];
    unpack<kCodes>(p + strip_of(v) * kStrip + offset_in_strip(v), codes);
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < 4; ++q) {
      first[v] = ddot(first[v], codes[q], xload(x + 4 * q));
      second[v] = ddot(second[v], codes[q + 4], xload(x + 16 + 4 * q));
    }
  }
  return p + 2 * kStrip;
}

template <CodeKind kCodes>
void multiply_row(const PackedMatrix& w, const PackedRows& x, const std::uint8_t* p, float* out) {
  const Shape s = shape_of(w);
  Header header{};
  F acc[kVectors];
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    acc[v] = fset(0.0f);
  }
  std::int64_t group_idx = 0;
  for (std::int64_t col = 0; col < s.padded;) {
    if (s.super && col % kPackedSuper == 0) {
      p = read_super(s.scales, p, header);
    }
    p = read_header(s.scales, p, header);
    const std::int64_t unit_end = col + s.unit < s.padded ? col + s.unit : s.padded;
    if (s.group < kPackedChunk) {
      D sums[2][kVectors];
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[0][v] = dset(-s.zero_point * x.sums[group_idx]);
        sums[1][v] = dset(-s.zero_point * x.sums[group_idx + 1]);
      }
      p = dot_half_chunks<kCodes>(p, x.codes + col, sums[0], sums[1]);
      const float scale = x.scales[group_idx / 2];
      add_group(header, 0, s.has_min, sums[0], scale, x.scaled_sums[group_idx], acc);
      add_group(header, 1, s.has_min, sums[1], scale, x.scaled_sums[group_idx + 1], acc);
      group_idx += 2;
      col = unit_end;
      continue;
    }
    for (std::int64_t part = 0; col < unit_end; ++part, ++group_idx) {
      const std::int64_t end = col + s.group < unit_end ? col + s.group : unit_end;
      D sums[kVectors];
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[v] = dset(-s.zero_point * x.sums[group_idx]);
      }
      p = dot_chunks<kCodes>(p, (end - col) / kPackedChunk, x.codes + col, sums);
      add_group(header, part, s.has_min, sums, x.scales[group_idx], x.scaled_sums[group_idx], acc);
      col = end;
    }
  }
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    fstore(out + kVectorRows * v, acc[v]);
  }
}

}  // namespace
}  // namespace trine::kernels
