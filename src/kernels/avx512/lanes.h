// The sixteen lanes of scalar/lanes.h in one zmm register. Contracts there.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/linear.h"

#define TRINE_LANES_INLINE static inline __attribute__((always_inline))

namespace trine::kernels {
namespace {

using V = __m512;

// 24 sums in registers, and at least 8 for one row: two FMA units times four cycles of latency.
constexpr unsigned kMaxTileX = 6;

constexpr unsigned tile_w_rows(unsigned num_x) {
  return num_x <= 3 ? 8 : 4;
}

// Attention: 16 sums for scores; for values as many vectors as 32 registers hold.
constexpr unsigned kScoreVectors = 2;
constexpr unsigned kMaxScoreQueries = 8;
constexpr unsigned kMaxValueQueries = 8;

// With few queries the sums of several tiles, so that none waits for the one before it.
constexpr unsigned score_tiles(unsigned num_queries) {
  return num_queries == 1 ? 4 : num_queries == 2 ? 2 : 1;
}

constexpr unsigned value_vectors(unsigned num_queries) {
  return num_queries <= 3 ? 8 : num_queries <= 6 ? 4 : 2;
}

TRINE_LANES_INLINE V vset(float x) {
  return _mm512_set1_ps(x);
}

TRINE_LANES_INLINE V vzero() {
  return _mm512_setzero_ps();
}

TRINE_LANES_INLINE V vload(const float* p) {
  return _mm512_loadu_ps(p);
}

TRINE_LANES_INLINE __mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}

TRINE_LANES_INLINE V vload_n(const float* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

TRINE_LANES_INLINE V vload_f16(const unsigned char* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

TRINE_LANES_INLINE V vload_bf16(const unsigned char* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TRINE_LANES_INLINE void vstore(float* p, V a) {
  _mm512_storeu_ps(p, a);
}

TRINE_LANES_INLINE void vstore_n(float* p, V a, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a);
}

TRINE_LANES_INLINE V vadd(V a, V b) {
  return _mm512_add_ps(a, b);
}

TRINE_LANES_INLINE V vsub(V a, V b) {
  return _mm512_sub_ps(a, b);
}

TRINE_LANES_INLINE V vmul(V a, V b) {
  return _mm512_mul_ps(a, b);
}

TRINE_LANES_INLINE V vdiv(V a, V b) {
  return _mm512_div_ps(a, b);
}

TRINE_LANES_INLINE V vmax(V a, V b) {
  return _mm512_max_ps(a, b);
}

TRINE_LANES_INLINE V vmin(V a, V b) {
  return _mm512_min_ps(a, b);
}

TRINE_LANES_INLINE V vfma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}

TRINE_LANES_INLINE V vabs(V a) {
  return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

TRINE_LANES_INLINE V vneg(V a) {
  return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a);
}

TRINE_LANES_INLINE V vcopysign(V a, V b) {
  const V sign = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}

TRINE_LANES_INLINE V vselect_less(V a, V b, V x, V y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

TRINE_LANES_INLINE V vselect_bits(std::uint32_t bits, V a, V b) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), b, a);
}

TRINE_LANES_INLINE V vscale_pow2(V p, V n, V) {
  return _mm512_scalef_ps(p, n);
}

TRINE_LANES_INLINE float vreduce_add(V a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

TRINE_LANES_INLINE float vreduce_max(V a) {
  const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

// Four folds at once: the same additions per vector, half the shuffles.
TRINE_LANES_INLINE void vreduce_add4(V a, V b, V c, V d, float out[4]) {
  const V ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const V cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  const V s4 =
      _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const V s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0x4e));
  const V s1 = _mm512_add_ps(s2, _mm512_permute_ps(s2, 0xb1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s1)));
}

TRINE_LANES_INLINE float scalar_sqrt(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
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
    const __m256i bits =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p->bytes)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7f), bits), 8);
    const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i half =
        _mm256_mask_blend_epi16(is_nan, _mm256_slli_epi16(magnitude, 7), _mm256_set1_epi16(0x7e00));
    return vmul(_mm512_cvtph_ps(_mm256_or_si256(half, sign)), vset(256.0f));
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
