// Family `convert`: float32 to and from binary16 and bfloat16.
//
// Numeric contract: round to nearest even, subnormals kept, NaN stays NaN (made quiet); the bits of
// base/half.h on every instruction set. Shapes: n >= 0 elements, no alignment assumed. Errors:
// none. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace trine::kernels {

struct ConvertTable {
  void (*f16_to_f32)(const void* src, float* dst, std::int64_t n);
  void (*bf16_to_f32)(const void* src, float* dst, std::int64_t n);
  void (*f32_to_f16)(const float* src, void* dst, std::int64_t n);
  void (*f32_to_bf16)(const float* src, void* dst, std::int64_t n);
};

extern const ConvertTable kConvertScalar;
extern const ConvertTable kConvertAvx2;
extern const ConvertTable kConvertAvx512;

}  // namespace trine::kernels
