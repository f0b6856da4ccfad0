// What the packed family (packed_inl.h) computes with, in plain C++: the reference of the vector
// ones in avx2/ and avx512/.
//   B  4 bytes of each of kVectorRows rows      D  one int32 for each row     F  one float for each
//   row X  four activation codes, the same for every row, in the form that ddot() wants
// bfield<s>(a, mask): each byte shifted right by s (left for s < 0), then masked; the mask drops
// what came from the neighbouring byte. ddot: sum of the four products of unsigned weights and
// signed activations, exact, added to the sum. store_codes: the low byte of each lane's bits.
//   S      int32 sums of codes times wide numbers (attention.h), exact modulo 2^32
// wstore: the low 16 bits of sixteen lanes as wide numbers, in fours. sdot: the four products of
// codes and wide numbers of each row, added to its sum. sresume, sjoin: from and to plain sums.
// make_opaque: the compiler must believe that the value could be anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/scalar/lanes.h"

// Not forced: inlining all of it takes minutes to compile and brings nothing.
#define TRINE_DOT_INLINE static inline

namespace trine::kernels {
namespace {

constexpr unsigned kVectorRows = 16;
// What a step of packed_direct_inl.h keeps unpacked in registers.
constexpr unsigned kStepVectors = 1;
constexpr int kStepQuads = 8;
constexpr unsigned kMaxTileRows = 1;
// Rows that codes in registers are multiplied with at once.
constexpr unsigned kMaxDirectRows = 1;
// Queries that codes of keys or values in a register are multiplied with.
constexpr unsigned kMaxWideQueries = 1;

// Vectors of kVectorRows for so many queries, at most those of a tile of keys times two.
constexpr unsigned wide_vectors(unsigned) {
  return 1;
}

struct B {
  std::uint8_t v[4 * kVectorRows];
};

struct D {
  std::int32_t v[kVectorRows];
};

using F = V;

struct X {
  std::int8_t v[4];
};

TRINE_DOT_INLINE B bload(const std::uint8_t* p) {
  B a;
  __builtin_memcpy(a.v, p, sizeof a.v);
  return a;
}

TRINE_DOT_INLINE void bstore(std::uint8_t* p, const B& a) {
  __builtin_memcpy(p, a.v, sizeof a.v);
}

template <int kShift>
TRINE_DOT_INLINE B bfield(B a, int mask) {
  for (std::uint8_t& byte : a.v) {
    int shifted = byte;
    if constexpr (kShift > 0) {
      shifted >>= kShift;
    } else {
      shifted <<= -kShift;
    }
    byte = static_cast<std::uint8_t>(shifted & mask);
  }
  return a;
}

TRINE_DOT_INLINE B bor(B a, const B& b) {
  for (unsigned i = 0; i < sizeof a.v; ++i) {
    a.v[i] = static_cast<std::uint8_t>(a.v[i] | b.v[i]);
  }
  return a;
}

TRINE_DOT_INLINE B blookup(const std::uint8_t* table, B index) {
  for (std::uint8_t& byte : index.v) {
    byte = table[byte];
  }
  return index;
}

TRINE_DOT_INLINE D dset(std::int32_t a) {
  D out;
  for (std::int32_t& lane : out.v) {
    lane = a;
  }
  return out;
}

TRINE_DOT_INLINE D dload(const std::int32_t* p) {
  D out;
  __builtin_memcpy(out.v, p, sizeof out.v);
  return out;
}

TRINE_DOT_INLINE void dstore(std::int32_t* p, const D& a) {
  __builtin_memcpy(p, a.v, sizeof a.v);
}

TRINE_DOT_INLINE X xload(const std::int8_t* p) {
  return {{p[0], p[1], p[2], p[3]}};
}

TRINE_DOT_INLINE D ddot(D sums, const B& weights, const X& x) {
  for (unsigned row = 0; row < kVectorRows; ++row) {
    for (unsigned i = 0; i < 4; ++i) {
      sums.v[row] += weights.v[4 * row + i] * x.v[i];
    }
  }
  return sums;
}

TRINE_DOT_INLINE D ddot_at(D sums, B weights, const std::int8_t* x) {
  return ddot(sums, weights, xload(x));
}

using S = D;

TRINE_DOT_INLINE void wstore(unsigned char* p, const V& shifted) {
  for (std::size_t i = 0; i < 16; ++i) {
    __builtin_memcpy(p + 2 * i, &shifted.v[i], 2);
  }
}

TRINE_DOT_INLINE S sset(std::int32_t a) {
  return dset(a);
}

TRINE_DOT_INLINE S sresume(const std::int32_t* p) {
  return dload(p);
}

TRINE_DOT_INLINE S sdot(S sums, const B& codes, const unsigned char* quad) {
  std::int16_t wide[4];
  __builtin_memcpy(wide, quad, sizeof wide);
  for (unsigned row = 0; row < kVectorRows; ++row) {
    auto sum = static_cast<std::uint32_t>(sums.v[row]);
    for (unsigned i = 0; i < 4; ++i) {
      sum += static_cast<std::uint32_t>(codes.v[4 * row + i] * wide[i]);
    }
    sums.v[row] = static_cast<std::int32_t>(sum);
  }
  return sums;
}

TRINE_DOT_INLINE D sjoin(const S& a) {
  return a;
}

TRINE_DOT_INLINE F fconvert(const D& a) {
  F out;
  for (unsigned i = 0; i < kVectorRows; ++i) {
    out.v[i] = static_cast<float>(a.v[i]);
  }
  return out;
}

TRINE_DOT_INLINE F fset(float a) {
  return vset(a);
}

TRINE_DOT_INLINE F fload(const float* p) {
  return vload(p);
}

TRINE_DOT_INLINE void fstore(float* p, F a) {
  vstore(p, a);
}

TRINE_DOT_INLINE F fload_f16(const std::uint8_t* p) {
  F out;
  for (std::int64_t i = 0; i < kVectorRows; ++i) {
    std::uint16_t half = 0;
    __builtin_memcpy(&half, p + 2 * i, sizeof half);
    out.v[i] = f16_to_f32(half);
  }
  return out;
}

TRINE_DOT_INLINE F fload_i8(const std::uint8_t* p) {
  F out;
  for (unsigned i = 0; i < kVectorRows; ++i) {
    out.v[i] = static_cast<float>(static_cast<std::int8_t>(p[i]));
  }
  return out;
}

TRINE_DOT_INLINE F fload_u8(const std::uint8_t* p) {
  F out;
  for (unsigned i = 0; i < kVectorRows; ++i) {
    out.v[i] = static_cast<float>(p[i]);
  }
  return out;
}

TRINE_DOT_INLINE F fmul(F a, F b) {
  return vmul(a, b);
}

TRINE_DOT_INLINE F fadd(F a, F b) {
  return vadd(a, b);
}

TRINE_DOT_INLINE F fneg(F a) {
  return vneg(a);
}

TRINE_DOT_INLINE F ffma(F a, F b, F c) {
  return vfma(a, b, c);
}

TRINE_DOT_INLINE void store_codes(std::int8_t* p, V shifted) {
  for (unsigned i = 0; i < 16; ++i) {
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, &shifted.v[i], sizeof bits);
    p[i] = static_cast<std::int8_t>(bits & 255u);
  }
}

TRINE_DOT_INLINE void make_opaque(B& a) {
  __asm__ volatile("" : "+m"(a));
}

TRINE_DOT_INLINE void prefetch(const std::uint8_t*) {}

}  // namespace
}  // namespace trine::kernels
