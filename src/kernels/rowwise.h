// Family `rowwise`: norms, activations, rotary embedding, softmax and other elementwise work on one
// row.
//
// Numeric contract: each element is one fixed sequence of IEEE float32 operations with fma where
// written; sums run in sixteen lanes folded as in linear.h. Every instruction set gives the same
// bits (NaN payloads excepted). Division and square root are the correctly rounded ones.
//   exp    argument reduction by ln 2 in two parts, degree-7 polynomial, exact scaling; at most 2
//   ulp from the
//          true value over the whole range (tests: <= 1.1), subnormal results included; exp(0) = 1
//          and exp(-inf) = 0 exactly
//   tanh   odd polynomial below 0.625, (1 - e) / (1 + e) with e = exp(-2|x|) above; at most 3 ulp
//   erf    odd polynomial below 0.921875, 1 - exp(polynomial) above; at most 3 ulp
// Shapes: lengths n >= 0 in floats, no alignment assumed; outputs may be the inputs.
// Errors: none. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace trine::kernels {

enum class UnaryKind : std::uint8_t { kExp, kTanh, kErf };
enum class GateKind : std::uint8_t { kSilu, kGeluTanh, kGeluErf };

struct RowwiseTable {
  // y = x * (1 / sqrt(sum(x^2) / n + eps)) * (weight + weight_offset)
  void (*rms_norm)(const float* x, const float* weight, float weight_offset, float eps,
                   std::int64_t n, float* y);
  // x += y
  void (*add)(float* x, const float* y, std::int64_t n);
  // x *= factor
  void (*scale)(float* x, float factor, std::int64_t n);
  // out = act(gate) * up
  void (*gated)(GateKind kind, const float* gate, const float* up, std::int64_t n, float* out);
  void (*unary)(UnaryKind kind, const float* x, std::int64_t n, float* y);
  // Rotates the pairs (x[i], x[i + half]) by the angles with these cosines and sines, i in [0,
  // half).
  void (*rope_half)(float* x, const float* cos, const float* sin, std::int64_t half);
  // Rotates the pairs (x[2i], x[2i + 1]).
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, std::int64_t half);
  // x = exp(x - max) / sum
  void (*softmax)(float* x, std::int64_t n);
};

extern const RowwiseTable kRowwiseScalar;
extern const RowwiseTable kRowwiseAvx2;
extern const RowwiseTable kRowwiseAvx512;

}  // namespace trine::kernels
