#include "kernels/convert.h"

#include <immintrin.h>

namespace trine::kernels {
namespace {

using Bits = std::uint16_t;

inline __attribute__((always_inline)) __m256 widen_f16(__m128i h) {
  return _mm256_cvtph_ps(h);
}

inline __attribute__((always_inline)) __m256 widen_bf16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

inline __attribute__((always_inline)) __m128i narrow_f16(__m256 x) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

inline __attribute__((always_inline)) __m128i narrow_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

template <__m256 (*Widen)(__m128i)>
void widen(const void* src, float* dst, std::int64_t n) {
  const auto* bytes = static_cast<const unsigned char*>(src);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(dst + i,
                     Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i))));
  }
  if (i < n) {
    alignas(16) Bits in[8] = {};
    alignas(32) float out[8];
    __builtin_memcpy(in, bytes + 2 * i, static_cast<unsigned long>(n - i) * sizeof(Bits));
    _mm256_store_ps(out, Widen(_mm_load_si128(reinterpret_cast<const __m128i*>(in))));
    __builtin_memcpy(dst + i, out, static_cast<unsigned long>(n - i) * sizeof(float));
  }
}

template <__m128i (*Narrow)(__m256)>
void narrow(const float* src, void* dst, std::int64_t n) {
  auto* bytes = static_cast<unsigned char*>(dst);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + 2 * i), Narrow(_mm256_loadu_ps(src + i)));
  }
  if (i < n) {
    alignas(32) float in[8] = {};
    alignas(16) Bits out[8];
    __builtin_memcpy(in, src + i, static_cast<unsigned long>(n - i) * sizeof(float));
    _mm_store_si128(reinterpret_cast<__m128i*>(out), Narrow(_mm256_load_ps(in)));
    __builtin_memcpy(bytes + 2 * i, out, static_cast<unsigned long>(n - i) * sizeof(Bits));
  }
}

}  // namespace

extern const ConvertTable kConvertAvx2 = {&widen<widen_f16>, &widen<widen_bf16>,
                                          &narrow<narrow_f16>, &narrow<narrow_bf16>};

}  // namespace trine::kernels
