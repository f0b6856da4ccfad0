#include "kernels/convert.h"

#include <immintrin.h>

namespace trine::kernels {
namespace {

inline __attribute__((always_inline)) __m512 widen_f16(__m256i h) {
  return _mm512_cvtph_ps(h);
}

inline __attribute__((always_inline)) __m512 widen_bf16(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

inline __attribute__((always_inline)) __m256i narrow_f16(__m512 x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

inline __attribute__((always_inline)) __m256i narrow_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i top = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet));
}

template <__m512 (*Widen)(__m256i)>
void widen(const void* src, float* dst, std::int64_t n) {
  const auto* bytes = static_cast<const unsigned char*>(src);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(dst + i,
                     Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 2 * i))));
  }
  if (i < n) {
    const auto rest = static_cast<__mmask16>((1u << (n - i)) - 1u);
    _mm512_mask_storeu_ps(dst + i, rest, Widen(_mm256_maskz_loadu_epi16(rest, bytes + 2 * i)));
  }
}

template <__m256i (*Narrow)(__m512)>
void narrow(const float* src, void* dst, std::int64_t n) {
  auto* bytes = static_cast<unsigned char*>(dst);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 2 * i),
                        Narrow(_mm512_loadu_ps(src + i)));
  }
  if (i < n) {
    const auto rest = static_cast<__mmask16>((1u << (n - i)) - 1u);
    _mm256_mask_storeu_epi16(bytes + 2 * i, rest, Narrow(_mm512_maskz_loadu_ps(rest, src + i)));
  }
}

}  // namespace

extern const ConvertTable kConvertAvx512 = {&widen<widen_f16>, &widen<widen_bf16>,
                                            &narrow<narrow_f16>, &narrow<narrow_bf16>};

}  // namespace trine::kernels
