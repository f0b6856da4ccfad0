// The sixteen lanes of scalar/lanes.h in two ymm registers. Contracts there.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/linear.h"

#define TRINE_LANES_INLINE static inline __attribute__((always_inline))

namespace trine::kernels {
namespace {

struct V {
  __m256 lo;
  __m256 hi;
};

// Twelve of the sixteen registers hold sums, eight for one or two rows.
constexpr unsigned kMaxTileX = 3;

constexpr unsigned tile_w_rows(unsigned num_x) {
  return num_x == 1 ? 8 : 4;
}

// Attention: 12 registers of sums.
constexpr unsigned kScoreVectors = 1;
constexpr unsigned kMaxScoreQueries = 6;
constexpr unsigned kMaxValueQueries = 4;

constexpr unsigned score_tiles(unsigned num_queries) {
  return num_queries == 1 ? 4 : num_queries == 2 ? 2 : 1;
}

constexpr unsigned value_vectors(unsigned num_queries) {
  return num_queries == 1 ? 4 : num_queries == 2 ? 2 : 1;
}

TRINE_LANES_INLINE V vset(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

TRINE_LANES_INLINE V vzero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}

TRINE_LANES_INLINE V vload(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

TRINE_LANES_INLINE __m256i first_lanes(std::int64_t n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), index);
}

TRINE_LANES_INLINE V vload_n(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))};
}

TRINE_LANES_INLINE V vload_f16(const unsigned char* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}

TRINE_LANES_INLINE __m256 widen_bf16(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

TRINE_LANES_INLINE V vload_bf16(const unsigned char* p) {
  return {widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}

TRINE_LANES_INLINE void vstore(float* p, V a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}

TRINE_LANES_INLINE void vstore_n(float* p, V a, std::int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.lo);
  _mm256_maskstore_ps(p + 8, first_lanes(n - 8), a.hi);
}

TRINE_LANES_INLINE V vadd(V a, V b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vsub(V a, V b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vmul(V a, V b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vdiv(V a, V b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vmax(V a, V b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vmin(V a, V b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

TRINE_LANES_INLINE V vfma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

TRINE_LANES_INLINE V vabs(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}

TRINE_LANES_INLINE V vneg(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi)};
}

TRINE_LANES_INLINE V vcopysign(V a, V b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.lo), _mm256_and_ps(sign, b.lo)),
          _mm256_or_ps(_mm256_andnot_ps(sign, a.hi), _mm256_and_ps(sign, b.hi))};
}

TRINE_LANES_INLINE V vselect_less(V a, V b, V x, V y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}

TRINE_LANES_INLINE __m256 lanes_of_bits(std::uint32_t bits) {
  const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bit));
}

TRINE_LANES_INLINE V vselect_bits(std::uint32_t bits, V a, V b) {
  return {_mm256_blendv_ps(b.lo, a.lo, lanes_of_bits(bits)),
          _mm256_blendv_ps(b.hi, a.hi, lanes_of_bits(bits >> 8))};
}

TRINE_LANES_INLINE __m256 scale_pow2_half(__m256 p, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4b400000));
  const __m256i n1 = _mm256_srai_epi32(n, 1);
  const __m256i n2 = _mm256_sub_epi32(n, n1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n1, bias), 23));
  const __m256 f2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n2, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(p, f1), f2);
}

TRINE_LANES_INLINE V vscale_pow2(V p, V, V shifted) {
  return {scale_pow2_half(p.lo, shifted.lo), scale_pow2_half(p.hi, shifted.hi)};
}

TRINE_LANES_INLINE float vreduce_add(V a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

TRINE_LANES_INLINE float vreduce_max(V a) {
  const __m256 s8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

// Four folds at once: the same additions per vector, fewer shuffles.
TRINE_LANES_INLINE void vreduce_add4(V a, V b, V c, V d, float out[4]) {
  const __m256 a8 = _mm256_add_ps(a.lo, a.hi);
  const __m256 b8 = _mm256_add_ps(b.lo, b.hi);
  const __m256 c8 = _mm256_add_ps(c.lo, c.hi);
  const __m256 d8 = _mm256_add_ps(d.lo, d.hi);
  const __m256 ab =
      _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
  const __m256 cd =
      _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
  // Each 128-bit half: two sums of the first, two of the second vector.
  const __m256 s2 = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  const __m256 s1 = _mm256_add_ps(s2, _mm256_movehdup_ps(s2));
  // Halves are (a, c) and (b, d), in elements 0 and 2.
  const __m128 ac = _mm256_castps256_ps128(s1);
  const __m128 bd = _mm256_extractf128_ps(s1, 1);
  const __m128 mixed = _mm_shuffle_ps(ac, bd, 0x88);  // a c b d
  _mm_storeu_ps(out, _mm_shuffle_ps(mixed, mixed, 0xd8));
}

TRINE_LANES_INLINE float scalar_sqrt(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

// The part of the lanes that a register tile is computed in at a time (linear_inl.h): half of them,
// so that twelve sums and their operands fill the sixteen registers.
using P = __m256;
constexpr unsigned kParts = 2;

TRINE_LANES_INLINE P pzero() {
  return _mm256_setzero_ps();
}

TRINE_LANES_INLINE P pfma(P a, P b, P c) {
  return _mm256_fmadd_ps(a, b, c);
}

TRINE_LANES_INLINE V vjoin(const P (&parts)[kParts]) {
  return {parts[0], parts[1]};
}

struct PartLoad {
  __attribute__((always_inline)) P operator()(const float* p) const { return _mm256_loadu_ps(p); }

  __attribute__((always_inline)) P operator()(const StoredF16* p) const {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p->bytes)));
  }

  __attribute__((always_inline)) P operator()(const StoredBF16* p) const {
    return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p->bytes)));
  }

  // 2^8 times the number with these bits as a binary16, whose exponent is one bit wider.
  __attribute__((always_inline)) P operator()(const StoredF8E4M3* p) const {
    const __m128i bits =
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p->bytes)));
    const __m128i largest = _mm_set1_epi16(0x7f);
    const __m128i magnitude = _mm_and_si128(bits, largest);
    const __m128i sign = _mm_slli_epi16(_mm_andnot_si128(largest, bits), 8);
    const __m128i half = _mm_blendv_epi8(_mm_slli_epi16(magnitude, 7), _mm_set1_epi16(0x7e00),
                                         _mm_cmpeq_epi16(magnitude, largest));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, sign)), _mm256_set1_ps(256.0f));
  }
};

// The first n lanes, zero in the others; n may be negative.
struct PartLoadFirst {
  std::int64_t n;

  __attribute__((always_inline)) P operator()(const float* p) const {
    return _mm256_maskload_ps(p, first_lanes(n));
  }

  template <typename W>
  __attribute__((always_inline)) P operator()(const W* p) const {
    W first[8] = {};
    for (std::int64_t i = 0; i < n && i < 8; ++i) {
      first[i] = p[i];
    }
    return PartLoad{}(first);
  }
};

}  // namespace
}  // namespace trine::kernels
