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

template <int kQuad>
TRINE_DOT_INLINE B nibble(const std::uint8_t* p) {
  return bfield<kQuad / 4 * 4>(bload(p + std::int64_t{64} * (kQuad % 4)), 15);
}

// Two bits, as bits kTo and kTo + 1.
template <int kQuad, int kTo>
TRINE_DOT_INLINE B crumb(const std::uint8_t* p) {
  return bfield<kQuad / 2 * 2 - kTo>(bload(p + std::int64_t{64} * (kQuad % 2)), 3 << kTo);
}

template <int kQuad, int kTo>
TRINE_DOT_INLINE B bit(const std::uint8_t* p) {
  return bfield<kQuad - kTo>(bload(p), 1 << kTo);
}

// The codes of quad kQuad (4 columns) of a chunk's 8, for one vector of rows. p: the strip, at the
// vector's offset.
template <CodeKind kCodes, int kQuad>
TRINE_DOT_INLINE B unpack_quad(const std::uint8_t* p) {
  switch (kCodes) {
    case CodeKind::kU8:
      return bload(p + std::int64_t{64} * kQuad);
    case CodeKind::kU2:
      return crumb<kQuad, 0>(p);
    case CodeKind::kU3:
      return bor(crumb<kQuad, 0>(p), bit<kQuad, 2>(p + 128));
    case CodeKind::kU5:
      return bor(nibble<kQuad>(p), bit<kQuad, 4>(p + 256));
    case CodeKind::kU6:
      return bor(nibble<kQuad>(p), crumb<kQuad, 4>(p + 256));
    case CodeKind::kIq4Nl:
      return blookup(kIq4NlCodes, nibble<kQuad>(p));
    case CodeKind::kE2M1:
      return blookup(kE2M1Codes, nibble<kQuad>(p));
    case CodeKind::kU4:
      break;
  }
  return nibble<kQuad>(p);
}

// Quads [kFirst, kFirst + kCount).
template <CodeKind kCodes, int kFirst, int kCount>
TRINE_DOT_INLINE void unpack(const std::uint8_t* p, B* out) {
  *out = unpack_quad<kCodes, kFirst>(p);
  if constexpr (kCount > 1) {
    unpack<kCodes, kFirst + 1, kCount - 1>(p, out + 1);
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

// Floats at any address.
TRINE_DOT_INLINE F fload_bytes(const std::uint8_t* p) {
  F out;
  __builtin_memcpy(&out, p, sizeof out);
  return out;
}

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
      case ScaleKind::kF32:
        header.scale[0][v] = fload_bytes(p + 4 * row);
        break;
      case ScaleKind::kF16Min:
        header.scale[0][v] = fload_f16(p + 2 * row);
        header.min[0][v] = fload_f16(p + 64 + 2 * row);
        break;
      case ScaleKind::kF16Zero:
        header.scale[0][v] = fload_f16(p + 2 * row);
        header.min[0][v] = fneg(fmul(header.scale[0][v], fload_u8(p + 64 + row)));
        break;
      case ScaleKind::kF32Zero:
        header.scale[0][v] = fload_bytes(p + 4 * row);
        header.min[0][v] = fneg(fmul(header.scale[0][v], fload_u8(p + 128 + row)));
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
