// Bytes, int32 sums and floats of the packed family in zmm registers. Contracts in
// scalar/dot_lanes.h.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/avx512/lanes.h"

#define TRINE_DOT_INLINE TRINE_LANES_INLINE

namespace trine::kernels {
namespace {

constexpr unsigned kVectorRows = 16;
// What a step of packed_direct_inl.h keeps unpacked in registers.
constexpr unsigned kStepVectors = 2;
constexpr int kStepQuads = 4;
#if defined(TRINE_FEW_TILES)
constexpr unsigned kMaxTileRows = 2;
constexpr unsigned kMaxDirectRows = 2;
#else
constexpr unsigned kMaxTileRows = 12;  // 24 sums, two weight vectors, one activation
// Rows that codes in registers are multiplied with at once: 20 sums beside 8 vectors of codes.
// Without the dot instruction a product takes four times the code.
#if defined(TRINE_VNNI)
constexpr unsigned kMaxDirectRows = 10;
#else
constexpr unsigned kMaxDirectRows = 4;
#endif
#endif

using B = __m512i;
using D = __m512i;
using F = __m512;

TRINE_DOT_INLINE B bload(const std::uint8_t* p) {
  return _mm512_loadu_si512(p);
}

TRINE_DOT_INLINE void bstore(std::uint8_t* p, B a) {
  _mm512_storeu_si512(p, a);
}

template <int kShift>
TRINE_DOT_INLINE B bfield(B a, int mask) {
  if constexpr (kShift > 0) {
    a = _mm512_srli_epi16(a, kShift);
  } else if constexpr (kShift < 0) {
    a = _mm512_slli_epi16(a, -kShift);
  }
  return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask)));
}

TRINE_DOT_INLINE B bor(B a, B b) {
  return _mm512_or_si512(a, b);
}

TRINE_DOT_INLINE B blookup(const std::uint8_t* table, B index) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), index);
}

TRINE_DOT_INLINE D dset(std::int32_t a) {
  return _mm512_set1_epi32(a);
}

TRINE_DOT_INLINE D dload(const std::int32_t* p) {
  return _mm512_loadu_si512(p);
}

TRINE_DOT_INLINE void dstore(std::int32_t* p, D a) {
  _mm512_storeu_si512(p, a);
}

#if defined(TRINE_VNNI)
using X = __m512i;

TRINE_DOT_INLINE X xload(const std::int8_t* p) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

TRINE_DOT_INLINE D ddot(D sums, B weights, X x) {
  return _mm512_dpbusd_epi32(sums, weights, x);
}
#else
// Without the dot instruction: even and odd bytes as 16-bit numbers, whose pairwise products cannot
// overflow 32 bits. (The 8-bit multiply-add saturates at 16 bits.)
struct X {
  __m512i even;
  __m512i odd;
};

TRINE_DOT_INLINE X xload(const std::int8_t* p) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  const __m512i all = _mm512_set1_epi32(four);
  return {_mm512_srai_epi16(_mm512_slli_epi16(all, 8), 8), _mm512_srai_epi16(all, 8)};
}

TRINE_DOT_INLINE D ddot(D sums, B weights, X x) {
  const __m512i even = _mm512_and_si512(weights, _mm512_set1_epi16(255));
  const __m512i odd = _mm512_srli_epi16(weights, 8);
  return _mm512_add_epi32(_mm512_add_epi32(sums, _mm512_madd_epi16(even, x.even)),
                          _mm512_madd_epi16(odd, x.odd));
}
#endif

// ddot with the four activations where they stand. The instruction reads and spreads them itself,
// so no register and no other instruction is spent on them; the compiler does not make that form.
TRINE_DOT_INLINE D ddot_at(D sums, B weights, const std::int8_t* x) {
#if defined(TRINE_VNNI)
  struct Four {
    std::int8_t values[4];
  };

  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums)
          : "v"(weights), "m"(*reinterpret_cast<const Four*>(x)));
  return sums;
#else
  return ddot(sums, weights, xload(x));
#endif
}

// Wide numbers (attention.h).
constexpr unsigned wide_vectors(unsigned num_queries) {
  return num_queries <= 2 ? 4 : num_queries <= 4 ? 2 : 1;
}

#if defined(TRINE_VNNI)
constexpr unsigned kMaxWideQueries = 8;

// The wide number n as 128 * high + low with low in -64..63: two dot products of bytes.
struct S {
  D high;
  D low;
};

TRINE_DOT_INLINE void wstore(unsigned char* p, V shifted) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4b400000));
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(64)), 7);
  const __m512i low = _mm512_sub_epi32(n, _mm512_slli_epi32(high, 7));
  const __m128i high_bytes = _mm512_cvtepi32_epi8(high);
  const __m128i low_bytes = _mm512_cvtepi32_epi8(low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(high_bytes, low_bytes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm_unpackhi_epi32(high_bytes, low_bytes));
}

TRINE_DOT_INLINE S sset(std::int32_t a) {
  return {dset(0), dset(a)};
}

TRINE_DOT_INLINE S sresume(const std::int32_t* p) {
  return {dset(0), dload(p)};
}

TRINE_DOT_INLINE S sdot(S sums, B codes, const unsigned char* quad) {
  const auto* pieces = reinterpret_cast<const std::int8_t*>(quad);
  return {ddot_at(sums.high, codes, pieces), ddot_at(sums.low, codes, pieces + 4)};
}

TRINE_DOT_INLINE D sjoin(S a) {
  return _mm512_add_epi32(_mm512_slli_epi32(a.high, 7), a.low);
}
#else
constexpr unsigned kMaxWideQueries = 8;

using S = D;

// Fours as (first, third), (second, fourth): what the even and the odd bytes are multiplied with.
TRINE_DOT_INLINE void wstore(unsigned char* p, V shifted) {
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_castps_si512(shifted));
  const __m256i fours = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), fours);
}

TRINE_DOT_INLINE S sset(std::int32_t a) {
  return dset(a);
}

TRINE_DOT_INLINE S sresume(const std::int32_t* p) {
  return dload(p);
}

TRINE_DOT_INLINE S sdot(S sums, B codes, const unsigned char* quad) {
  std::int32_t even_pair = 0;
  std::int32_t odd_pair = 0;
  __builtin_memcpy(&even_pair, quad, sizeof even_pair);
  __builtin_memcpy(&odd_pair, quad + 4, sizeof odd_pair);
  return ddot(sums, codes, {dset(even_pair), dset(odd_pair)});
}

TRINE_DOT_INLINE D sjoin(S a) {
  return a;
}
#endif

TRINE_DOT_INLINE F fconvert(D a) {
  return _mm512_cvtepi32_ps(a);
}

TRINE_DOT_INLINE F fset(float a) {
  return _mm512_set1_ps(a);
}

TRINE_DOT_INLINE F fload(const float* p) {
  return _mm512_loadu_ps(p);
}

TRINE_DOT_INLINE void fstore(float* p, F a) {
  _mm512_storeu_ps(p, a);
}

TRINE_DOT_INLINE F fload_f16(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

TRINE_DOT_INLINE F fload_i8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

TRINE_DOT_INLINE F fload_u8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

TRINE_DOT_INLINE F fmul(F a, F b) {
  return _mm512_mul_ps(a, b);
}

TRINE_DOT_INLINE F fadd(F a, F b) {
  return _mm512_add_ps(a, b);
}

TRINE_DOT_INLINE F fneg(F a) {
  return vneg(a);
}

TRINE_DOT_INLINE F ffma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}

// The integers that 1.5 * 2^23 + n hold in their low bits, as bytes.
TRINE_DOT_INLINE void store_codes(std::int8_t* p, V shifted) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}

// The compiler must believe that `a` could be anything.
TRINE_DOT_INLINE void make_opaque(B& a) {
  __asm__ volatile("" : "+v"(a));
}

TRINE_DOT_INLINE void prefetch(const std::uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace
}  // namespace trine::kernels
