#include "kernels/dequant.h"

#include <immintrin.h>

#include "kernels/convert.h"

namespace trine::kernels {
namespace {

inline __attribute__((always_inline)) __m256 widen8(__m128i codes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}

inline __attribute__((always_inline)) void scale16(float* y, __m128i codes, float step) {
  const __m256 steps = _mm256_set1_ps(step);
  _mm256_storeu_ps(y, _mm256_mul_ps(steps, widen8(codes)));
  _mm256_storeu_ps(y + 8, _mm256_mul_ps(steps, widen8(_mm_srli_si128(codes, 8))));
}

inline __attribute__((always_inline)) void affine16(float* y, __m128i codes, float step,
                                                    float offset) {
  const __m256 steps = _mm256_set1_ps(step);
  const __m256 offsets = _mm256_set1_ps(offset);
  _mm256_storeu_ps(y, _mm256_add_ps(_mm256_mul_ps(steps, widen8(codes)), offsets));
  _mm256_storeu_ps(y + 8,
                   _mm256_add_ps(_mm256_mul_ps(steps, widen8(_mm_srli_si128(codes, 8))), offsets));
}

#include "kernels/dequant_inl.h"

void row_f16(Bytes in, float* y, int64_t elems) {
  kConvertAvx2.f16_to_f32(in, y, elems);
}

void row_bf16(Bytes in, float* y, int64_t elems) {
  kConvertAvx2.bf16_to_f32(in, y, elems);
}

}  // namespace

constinit const DequantTable kDequantAvx2 = make_table(row_f16, row_bf16);

}  // namespace trine::kernels
