// Bytes, int32 sums and floats of the packed family in ymm registers. Contracts in
// scalar/dot_lanes.h.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/avx2/lanes.h"

#define TRINE_DOT_INLINE TRINE_LANES_INLINE

namespace trine::kernels {
namespace {

constexpr unsigned kVectorRows = 8;
// What a step of packed_direct_inl.h keeps unpacked in registers.
constexpr unsigned kStepVectors = 1;
constexpr int kStepQuads = 8;
constexpr unsigned kMaxTileRows = 2;  // eight sums, four weight vectors
// Rows that codes in registers are multiplied with at once.
#if defined(TRINE_FEW_TILES)
constexpr unsigned kMaxDirectRows = 2;
#else
constexpr unsigned kMaxDirectRows = 4;
#endif

using B = __m256i;
using D = __m256i;
using F = __m256;

TRINE_DOT_INLINE B bload(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

TRINE_DOT_INLINE void bstore(std::uint8_t* p, B a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a);
}

template <int kShift>
TRINE_DOT_INLINE B bfield(B a, int mask) {
  if constexpr (kShift > 0) {
    a = _mm256_srli_epi16(a, kShift);
  } else if constexpr (kShift < 0) {
    a = _mm256_slli_epi16(a, -kShift);
  }
  return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask)));
}

TRINE_DOT_INLINE B bor(B a, B b) {
  return _mm256_or_si256(a, b);
}

TRINE_DOT_INLINE B blookup(const std::uint8_t* table, B index) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), index);
}

TRINE_DOT_INLINE D dset(std::int32_t a) {
  return _mm256_set1_epi32(a);
}

TRINE_DOT_INLINE D dload(const std::int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

TRINE_DOT_INLINE void dstore(std::int32_t* p, D a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a);
}

#if defined(TRINE_VNNI)
using X = __m256i;

TRINE_DOT_INLINE X xload(const std::int8_t* p) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

TRINE_DOT_INLINE D ddot(D sums, B weights, X x) {
  return _mm256_dpbusd_avx_epi32(sums, weights, x);
}
#else
// As in avx512/dot_lanes.h: exact 16-bit products instead of the saturating 8-bit ones.
struct X {
  __m256i even;
  __m256i odd;
};

TRINE_DOT_INLINE X xload(const std::int8_t* p) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  const __m256i all = _mm256_set1_epi32(four);
  return {_mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8), _mm256_srai_epi16(all, 8)};
}

TRINE_DOT_INLINE D ddot(D sums, B weights, X x) {
  const __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(255));
  const __m256i odd = _mm256_srli_epi16(weights, 8);
  return _mm256_add_epi32(_mm256_add_epi32(sums, _mm256_madd_epi16(even, x.even)),
                          _mm256_madd_epi16(odd, x.odd));
}
#endif

TRINE_DOT_INLINE D ddot_at(D sums, B weights, const std::int8_t* x) {
  return ddot(sums, weights, xload(x));
}

// Wide numbers (attention.h).
constexpr unsigned wide_vectors(unsigned num_queries) {
  return num_queries == 1 ? 4 : num_queries <= 3 ? 2 : 1;
}

#if defined(TRINE_VNNI)
constexpr unsigned kMaxWideQueries = 6;

// The wide number n as 128 * high + low with low in -64..63: two dot products of bytes.
struct S {
  D high;
  D low;
};

TRINE_DOT_INLINE void wstore_eight(unsigned char* p, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4b400000));
  const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(64)), 7);
  const __m256i low = _mm256_sub_epi32(n, _mm256_slli_epi32(high, 7));
  // In each half: four high words, four low words; then as bytes, twice.
  const __m256i words = _mm256_packs_epi32(high, low);
  const __m256i bytes = _mm256_packs_epi16(words, words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 8), _mm256_extracti128_si256(bytes, 1));
}

TRINE_DOT_INLINE void wstore(unsigned char* p, V shifted) {
  wstore_eight(p, shifted.lo);
  wstore_eight(p + 16, shifted.hi);
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
  return _mm256_add_epi32(_mm256_slli_epi32(a.high, 7), a.low);
}
#else
constexpr unsigned kMaxWideQueries = 8;

using S = D;

// Fours as (first, third), (second, fourth): what the even and the odd bytes are multiplied with.
TRINE_DOT_INLINE void wstore(unsigned char* p, V shifted) {
  const __m256i low_words = _mm256_set1_epi32(0xffff);
  const __m256i lo = _mm256_and_si256(_mm256_castps_si256(shifted.lo), low_words);
  const __m256i hi = _mm256_and_si256(_mm256_castps_si256(shifted.hi), low_words);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
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
  return _mm256_cvtepi32_ps(a);
}

TRINE_DOT_INLINE F fset(float a) {
  return _mm256_set1_ps(a);
}

TRINE_DOT_INLINE F fload(const float* p) {
  return _mm256_loadu_ps(p);
}

TRINE_DOT_INLINE void fstore(float* p, F a) {
  _mm256_storeu_ps(p, a);
}

TRINE_DOT_INLINE F fload_f16(const std::uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

TRINE_DOT_INLINE F fload_i8(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

TRINE_DOT_INLINE F fload_u8(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

TRINE_DOT_INLINE F fmul(F a, F b) {
  return _mm256_mul_ps(a, b);
}

TRINE_DOT_INLINE F fadd(F a, F b) {
  return _mm256_add_ps(a, b);
}

TRINE_DOT_INLINE F fneg(F a) {
  return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a);
}

TRINE_DOT_INLINE F ffma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}

TRINE_DOT_INLINE void store_codes(std::int8_t* p, V shifted) {
  const __m256i low_bytes = _mm256_set1_epi32(255);
  const __m256i lo = _mm256_and_si256(_mm256_castps_si256(shifted.lo), low_bytes);
  const __m256i hi = _mm256_and_si256(_mm256_castps_si256(shifted.hi), low_bytes);
  // Packing works within 128-bit halves: (lo0 hi0 lo1 hi1) is put in order before the last step.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

TRINE_DOT_INLINE void make_opaque(B& a) {
  __asm__ volatile("" : "+x"(a));
}

TRINE_DOT_INLINE void prefetch(const std::uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace
}  // namespace trine::kernels
