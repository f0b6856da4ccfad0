// The packed layout (docs/formats/packed-weights.md) to bytes and float32 scales in registers, for
// packed_inl.h. TRINE_DOT_LANES_HEADER names the instruction set's dot_lanes.h.
#pragma once

#include <cstdint>

#include "kernels/packed.h"
#include TRINE_DOT_LANES_HEADER

namespace trine::kernels {
namespace {

constexpr unsigned kVectors = 32 / kVectorRows;  // of a block's 32 rows

alignas(16) constexpr std::uint8_t kIq4NlCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};
// Twice the value, plus 16.
alignas(16) constexpr std::uint8_t kE2M1Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                                     16, 15, 14, 13, 12, 10, 8,  4};

// ---- codes

// Where vector `v` of a block lies in 64 bytes of a strip of 16 rows.
TRINE_DOT_INLINE std::int64_t strip_of(std::int64_t v) {
  return v * kVectorRows / 16;
}

TRINE_DOT_INLINE std::int64_t offset_in_strip(std::int64_t v) {
  return v * kVectorRows % 16 * 4;
}

TRINE_DOT_INLINE void unpack_nibbles(const std::uint8_t* p, B out[8]) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < 4; ++i) {
    const B both = bload(p + 64 * i);
    out[i] = bfield<0>(both, 15);
    out[i + 4] = bfield<4>(both, 15);
  }
}

template <int kTo>
TRINE_DOT_INLINE void unpack_crumbs(const std::uint8_t* p, B out[8]) {
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < 2; ++i) {
    const B four = bload(p + 64 * i);
    out[i] = bfield<0 - kTo>(four, 3 << kTo);
    out[i + 2] = bfield<2 - kTo>(four, 3 << kTo);
    out[i + 4] = bfield<4 - kTo>(four, 3 << kTo);
    out[i + 6] = bfield<6 - kTo>(four, 3 << kTo);
  }
}

// Adds bit q of each byte to the codes of quad q, as bit kTo.
template <int kTo>
TRINE_DOT_INLINE void add_bits(const std::uint8_t* p, B out[8]) {
  const B bits = bload(p);
  out[0] = bor(out[0], bfield<0 - kTo>(bits, 1 << kTo));
  out[1] = bor(out[1], bfield<1 - kTo>(bits, 1 << kTo));
  out[2] = bor(out[2], bfield<2 - kTo>(bits, 1 << kTo));
  out[3] = bor(out[3], bfield<3 - kTo>(bits, 1 << kTo));
  out[4] = bor(out[4], bfield<4 - kTo>(bits, 1 << kTo));
  out[5] = bor(out[5], bfield<5 - kTo>(bits, 1 << kTo));
  out[6] = bor(out[6], bfield<6 - kTo>(bits, 1 << kTo));
  out[7] = bor(out[7], bfield<7 - kTo>(bits, 1 << kTo));
}

TRINE_DOT_INLINE void lookup_all(const std::uint8_t* table, B out[8]) {
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < 8; ++i) {
    out[i] = blookup(table, out[i]);
  }
}

// The 8 quads (4 columns each) of a chunk, for one vector of rows. p: the strip, at the vector's
// offset.
template <CodeKind kCodes>
TRINE_DOT_INLINE void unpack(const std::uint8_t* p, B out[8]) {
  if constexpr (kCodes == CodeKind::kU8) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < 8; ++i) {
      out[i] = bload(p + 64 * i);
    }
  } else if constexpr (kCodes == CodeKind::kU2 || kCodes == CodeKind::kU3) {
    unpack_crumbs<0>(p, out);
    if constexpr (kCodes == CodeKind::kU3) {
      add_bits<2>(p + 128, out);
    }
  } else {
    unpack_nibbles(p, out);
    if constexpr (kCodes == CodeKind::kU5) {
      add_bits<4>(p + 256, out);
    } else if constexpr (kCodes == CodeKind::kU6) {
      B high[8];
      unpack_crumbs<4>(p + 256, high);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < 8; ++i) {
        out[i] = bor(out[i], high[i]);
      }
    } else if constexpr (kCodes == CodeKind::kIq4Nl) {
      lookup_all(kIq4NlCodes, out);
    } else if constexpr (kCodes == CodeKind::kE2M1) {
      lookup_all(kE2M1Codes, out);
    }
  }
}

// What a panel holds of a code: the dot products on vectors want unsigned codes and start at minus
// the zero point's share; the matrix unit takes signed ones.
TRINE_DOT_INLINE B decoded(B codes, [[maybe_unused]] std::int32_t zero_point) {
#if defined(TRINE_AMX)
  return _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(zero_point)));
#else
  return codes;
#endif
}

// ---- scales

// The scales of a unit in float32; a unit has one or two groups.
struct Header {
  F scale[2][kVectors];
  F min[2][kVectors];
  F super[kVectors];
  F super_min[kVectors];
};

TRINE_DOT_INLINE const std::uint8_t* read_super(ScaleKind kind, const std::uint8_t* p,
                                                Header& header) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    header.super[v] = fload_f16(p + 2 * (kVectorRows * v));
    if (kind == ScaleKind::kSuperU8Min) {
      header.super_min[v] = fneg(fload_f16(p + 64 + 2 * (kVectorRows * v)));
    }
  }
  return p + packed_super_bytes(kind);
}

TRINE_DOT_INLINE const std::uint8_t* read_header(ScaleKind kind, const std::uint8_t* p,
                                                 Header& header) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const std::int64_t row = kVectorRows * v;
    switch (kind) {
      case ScaleKind::kF16:
        header.scale[0][v] = fload_f16(p + 2 * row);
        break;
      case ScaleKind::kF32: {
        F scale;
        __builtin_memcpy(&scale, p + 4 * row, sizeof scale);
        header.scale[0][v] = scale;
        break;
      }
      case ScaleKind::kF16Min:
        header.scale[0][v] = fload_f16(p + 2 * row);
        header.min[0][v] = fload_f16(p + 64 + 2 * row);
        break;
      case ScaleKind::kF16Zero:
        header.scale[0][v] = fload_f16(p + 2 * row);
        header.min[0][v] = fneg(fmul(header.scale[0][v], fload_u8(p + 64 + row)));
        break;
      case ScaleKind::kSuperI8:
        header.scale[0][v] = fmul(header.super[v], fload_i8(p + row));
        header.scale[1][v] = fmul(header.super[v], fload_i8(p + 32 + row));
        break;
      case ScaleKind::kSuperU8Min:
        header.scale[0][v] = fmul(header.super[v], fload_u8(p + row));
        header.scale[1][v] = fmul(header.super[v], fload_u8(p + 32 + row));
        header.min[0][v] = fmul(header.super_min[v], fload_u8(p + 64 + row));
        header.min[1][v] = fmul(header.super_min[v], fload_u8(p + 96 + row));
        break;
    }
  }
  return p + packed_header_bytes(kind);
}

// The loops over a block need these again and again.
struct Shape {
  ScaleKind scales;
  bool has_min;
  bool super;
  std::int64_t padded;
  std::int64_t group;
  std::int64_t unit;
  int activation_shift;  // activation group = weight group >> this
  std::int32_t zero_point;
};

TRINE_DOT_INLINE Shape shape_of(const PackedMatrix& w) {
  const std::int64_t group = packed_group(w.scheme, w.cols);
  return {w.scheme.scales,
          packed_has_min(w.scheme),
          packed_is_super(w.scheme),
          packed_padded_cols(w.cols),
          group,
          packed_unit(w.scheme, w.cols),
          group < kPackedChunk ? 1 : 0,
          packed_zero_point(w.scheme)};
}

}  // namespace
}  // namespace trine::kernels
