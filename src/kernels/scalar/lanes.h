// Sixteen float32 lanes in plain C++: the reference for the same type in avx2/ and avx512/.
//
// The kernels are written once, in the *_inl.h files, on this type and its functions; each
// translation unit of an instruction set includes its own lanes.h first. So the order of operations
// has one source, and what can differ between instruction sets is only what stands in these three
// headers. They are in an unnamed namespace and always inlined: an inline function with external
// linkage, compiled with AVX flags, could be the copy that the linker keeps for the whole program.
// vmax follows maxps: a > b ? a : b, so the second operand wins when either is NaN.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/linear.h"

#define TRINE_LANES_INLINE static inline __attribute__((always_inline))

namespace trine::kernels {
namespace {

struct V {
  float v[16];
};

// Shape of the register tiles: kMaxX activation rows; w_rows(x) weight rows for x activation rows.
constexpr unsigned kMaxTileX = 1;

constexpr unsigned tile_w_rows(unsigned) {
  return 1;
}

// Attention's register tiles: vectors of 16 keys, queries, and tiles for so many queries, for
// scores; queries, and vectors of 16 dimensions for so many queries, for values.
constexpr unsigned kScoreVectors = 1;
constexpr unsigned kMaxScoreQueries = 1;
constexpr unsigned kMaxValueQueries = 1;

constexpr unsigned score_tiles(unsigned) {
  return 1;
}

constexpr unsigned value_vectors(unsigned) {
  return 1;
}

TRINE_LANES_INLINE V vset(float x) {
  V r;
  for (float& e : r.v) {
    e = x;
  }
  return r;
}

TRINE_LANES_INLINE V vzero() {
  return vset(0.0f);
}

TRINE_LANES_INLINE V vload(const float* p) {
  V r;
  __builtin_memcpy(r.v, p, sizeof(r.v));
  return r;
}

// The first n of 16 lanes, zero in the others; reads nothing past them. n is 0 to 16: vector masks
// are made by a shift that a larger n overflows.
TRINE_LANES_INLINE V vload_n(const float* p, std::int64_t n) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = i < n ? p[i] : 0.0f;
  }
  return r;
}

// Sixteen stored elements of two bytes (binary16, bfloat16), as float32.
TRINE_LANES_INLINE V vload_f16(const unsigned char* p) {
  std::uint16_t halves[16];
  __builtin_memcpy(halves, p, sizeof(halves));
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = f16_to_f32(halves[i]);
  }
  return r;
}

TRINE_LANES_INLINE V vload_bf16(const unsigned char* p) {
  std::uint16_t halves[16];
  __builtin_memcpy(halves, p, sizeof(halves));
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = bf16_to_f32(halves[i]);
  }
  return r;
}

TRINE_LANES_INLINE void vstore(float* p, V a) {
  __builtin_memcpy(p, a.v, sizeof(a.v));
}

TRINE_LANES_INLINE void vstore_n(float* p, V a, std::int64_t n) {
  for (int i = 0; i < n; ++i) {
    p[i] = a.v[i];
  }
}

#define TRINE_LANES_BINARY(name, expression) \
  TRINE_LANES_INLINE V name(V a, V b) {      \
    V r;                                     \
    for (int i = 0; i < 16; ++i) {           \
      r.v[i] = expression;                   \
    }                                        \
    return r;                                \
  }

TRINE_LANES_BINARY(vadd, a.v[i] + b.v[i])
TRINE_LANES_BINARY(vsub, a.v[i] - b.v[i])
TRINE_LANES_BINARY(vmul, a.v[i] * b.v[i])
TRINE_LANES_BINARY(vdiv, a.v[i] / b.v[i])
TRINE_LANES_BINARY(vmax, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
TRINE_LANES_BINARY(vmin, a.v[i] < b.v[i] ? a.v[i] : b.v[i])
TRINE_LANES_BINARY(vcopysign, __builtin_copysignf(a.v[i], b.v[i]))

// a * b + c, rounded once.
TRINE_LANES_INLINE V vfma(V a, V b, V c) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  }
  return r;
}

TRINE_LANES_INLINE V vneg(V a) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = -a.v[i];
  }
  return r;
}

TRINE_LANES_INLINE V vabs(V a) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = __builtin_fabsf(a.v[i]);
  }
  return r;
}

// a < b ? x : y
TRINE_LANES_INLINE V vselect_less(V a, V b, V x, V y) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  }
  return r;
}

// Lane i is a's where bit i of `bits` is set, else b's.
TRINE_LANES_INLINE V vselect_bits(std::uint32_t bits, V a, V b) {
  V r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = ((bits >> i) & 1u) != 0 ? a.v[i] : b.v[i];
  }
  return r;
}

// p * 2^n, where `shifted` = n + 1.5 * 2^23 holds the integer n in its low bits. Two factors keep
// both exponents in range; the first product is exact, so a subnormal result is rounded once.
TRINE_LANES_INLINE V vscale_pow2(V p, V, V shifted) {
  V r;
  for (int i = 0; i < 16; ++i) {
    const std::int32_t n =
        static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, shifted.v[i]) - 0x4b400000u);
    const std::int32_t n1 = n >> 1;
    const std::uint32_t n2 = static_cast<std::uint32_t>(n) - static_cast<std::uint32_t>(n1);
    const float f1 = __builtin_bit_cast(float, (static_cast<std::uint32_t>(n1) + 127u) << 23);
    const float f2 = __builtin_bit_cast(float, (n2 + 127u) << 23);
    r.v[i] = p.v[i] * f1 * f2;
  }
  return r;
}

// The fold of linear.h.
TRINE_LANES_INLINE float vreduce_add(V a) {
  for (int d = 8; d > 0; d /= 2) {
    for (int i = 0; i < d; ++i) {
      a.v[i] = a.v[i] + a.v[i + d];
    }
  }
  return a.v[0];
}

TRINE_LANES_INLINE float vreduce_max(V a) {
  for (int d = 8; d > 0; d /= 2) {
    for (int i = 0; i < d; ++i) {
      a.v[i] = a.v[i] > a.v[i + d] ? a.v[i] : a.v[i + d];
    }
  }
  return a.v[0];
}

TRINE_LANES_INLINE void vreduce_add4(V a, V b, V c, V d, float out[4]) {
  out[0] = vreduce_add(a);
  out[1] = vreduce_add(b);
  out[2] = vreduce_add(c);
  out[3] = vreduce_add(d);
}

TRINE_LANES_INLINE float scalar_sqrt(float x) {
  return __builtin_sqrtf(x);
}

// The part of the lanes that a register tile is computed in at a time (linear_inl.h): all of them.
using P = V;
constexpr unsigned kParts = 1;

TRINE_LANES_INLINE P pzero() {
  return vzero();
}

TRINE_LANES_INLINE P pfma(P a, P b, P c) {
  return vfma(a, b, c);
}

TRINE_LANES_INLINE V vjoin(const P (&parts)[kParts]) {
  return parts[0];
}

struct PartLoad {
  __attribute__((always_inline)) P operator()(const float* p) const { return vload(p); }

  __attribute__((always_inline)) P operator()(const StoredF16* p) const {
    return vload_f16(p->bytes);
  }

  __attribute__((always_inline)) P operator()(const StoredBF16* p) const {
    return vload_bf16(p->bytes);
  }

  // 2^8 times the number with these bits as a binary16, whose exponent is one bit wider.
  __attribute__((always_inline)) P operator()(const StoredF8E4M3* p) const {
    V r;
    for (int i = 0; i < 16; ++i) {
      const unsigned bits = p[i].bytes[0];
      const unsigned magnitude = bits & 0x7fu;
      const unsigned half = (bits & 0x80u) << 8 | (magnitude == 0x7fu ? 0x7e00u : magnitude << 7);
      r.v[i] = f16_to_f32(static_cast<std::uint16_t>(half)) * 256.0f;
    }
    return r;
  }
};

// The first n lanes, zero in the others.
struct PartLoadFirst {
  std::int64_t n;

  __attribute__((always_inline)) P operator()(const float* p) const { return vload_n(p, n); }

  template <typename W>
  __attribute__((always_inline)) P operator()(const W* p) const {
    W first[16] = {};
    for (std::int64_t i = 0; i < n && i < 16; ++i) {
      first[i] = p[i];
    }
    return PartLoad{}(first);
  }
};

}  // namespace
}  // namespace trine::kernels
