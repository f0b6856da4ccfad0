#include "kernels/dequant.h"

#include <immintrin.h>

#include "kernels/convert.h"

namespace trine::kernels {
namespace {

inline __attribute__((always_inline)) __m512 widen16(__m128i codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

inline __attribute__((always_inline)) void scale16(float* y, __m128i codes, float step) {
  _mm512_storeu_ps(y, _mm512_mul_ps(_mm512_set1_ps(step), widen16(codes)));
}

inline __attribute__((always_inline)) void affine16(float* y, __m128i codes, float step,
                                                    float offset) {
  const __m512 product = _mm512_mul_ps(_mm512_set1_ps(step), widen16(codes));
  _mm512_storeu_ps(y, _mm512_add_ps(product, _mm512_set1_ps(offset)));
}

#include "kernels/dequant_inl.h"

void row_f16(Bytes in, float* y, int64_t elems) {
  kConvertAvx512.f16_to_f32(in, y, elems);
}

void row_bf16(Bytes in, float* y, int64_t elems) {
  kConvertAvx512.bf16_to_f32(in, y, elems);
}

}  // namespace

constinit const DequantTable kDequantAvx512 = make_table(row_f16, row_bf16);

}  // namespace trine::kernels
