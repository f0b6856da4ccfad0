// Body of the rowwise family; contract in rowwise.h. TRINE_LANES_HEADER names the instruction set's
// lanes.h.
#pragma once

#include <cstdint>

#include "kernels/math_inl.h"
#include "kernels/rowwise.h"
#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

void rms_norm(const float* x, const float* weight, float weight_offset, float eps, std::int64_t n,
              float* y) {
  V sums = vzero();
  const std::int64_t whole = n & ~std::int64_t{15};
  for (std::int64_t i = 0; i < whole; i += 16) {
    const V xv = vload(x + i);
    sums = vfma(xv, xv, sums);
  }
  if (whole != n) {
    const V xv = vload_n(x + whole, n - whole);
    sums = vfma(xv, xv, sums);
  }
  const float mean = vreduce_add(sums) / static_cast<float>(n);
  const V inverse = vset(1.0f / scalar_sqrt(mean + eps));
  const V offset = vset(weight_offset);
  for (std::int64_t i = 0; i < whole; i += 16) {
    vstore(y + i, vmul(vmul(vload(x + i), inverse), vadd(vload(weight + i), offset)));
  }
  if (whole != n) {
    const std::int64_t rest = n - whole;
    vstore_n(
        y + whole,
        vmul(vmul(vload_n(x + whole, rest), inverse), vadd(vload_n(weight + whole, rest), offset)),
        rest);
  }
}

void add(float* x, const float* y, std::int64_t n) {
  const std::int64_t whole = n & ~std::int64_t{15};
  for (std::int64_t i = 0; i < whole; i += 16) {
    vstore(x + i, vadd(vload(x + i), vload(y + i)));
  }
  for (std::int64_t i = whole; i < n; ++i) {
    x[i] = x[i] + y[i];
  }
}

void scale(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = x[i] * factor;
  }
}

struct Silu {
  TRINE_LANES_INLINE V apply(V x) { return vdiv(x, vadd(vset(1.0f), vexp(vneg(x)))); }
};

struct GeluTanh {
  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  TRINE_LANES_INLINE V apply(V x) {
    const V cubic = vmul(vmul(x, x), vmul(x, vset(0.044715f)));
    const V t = vtanh(vmul(vset(0.7978845608028654f), vadd(x, cubic)));
    return vmul(vmul(vset(0.5f), x), vadd(vset(1.0f), t));
  }
};

struct GeluErf {
  // 0.5 x (1 + erf(x / sqrt(2)))
  TRINE_LANES_INLINE V apply(V x) {
    const V t = verf(vmul(x, vset(0.7071067811865476f)));
    return vmul(vmul(vset(0.5f), x), vadd(vset(1.0f), t));
  }
};

struct Exp {
  TRINE_LANES_INLINE V apply(V x) { return vexp(x); }
};

struct Tanh {
  TRINE_LANES_INLINE V apply(V x) { return vtanh(x); }
};

struct Erf {
  TRINE_LANES_INLINE V apply(V x) { return verf(x); }
};

template <typename Function>
void gated_rows(const float* gate, const float* up, std::int64_t n, float* out) {
  const std::int64_t whole = n & ~std::int64_t{15};
  for (std::int64_t i = 0; i < whole; i += 16) {
    vstore(out + i, vmul(Function::apply(vload(gate + i)), vload(up + i)));
  }
  if (whole != n) {
    const std::int64_t rest = n - whole;
    vstore_n(out + whole,
             vmul(Function::apply(vload_n(gate + whole, rest)), vload_n(up + whole, rest)), rest);
  }
}

template <typename Function>
void map_rows(const float* x, std::int64_t n, float* y) {
  const std::int64_t whole = n & ~std::int64_t{15};
  for (std::int64_t i = 0; i < whole; i += 16) {
    vstore(y + i, Function::apply(vload(x + i)));
  }
  if (whole != n) {
    vstore_n(y + whole, Function::apply(vload_n(x + whole, n - whole)), n - whole);
  }
}

void gated(GateKind kind, const float* gate, const float* up, std::int64_t n, float* out) {
  switch (kind) {
    case GateKind::kSilu:
      gated_rows<Silu>(gate, up, n, out);
      break;
    case GateKind::kGeluTanh:
      gated_rows<GeluTanh>(gate, up, n, out);
      break;
    case GateKind::kGeluErf:
      gated_rows<GeluErf>(gate, up, n, out);
      break;
  }
}

void unary(UnaryKind kind, const float* x, std::int64_t n, float* y) {
  switch (kind) {
    case UnaryKind::kExp:
      map_rows<Exp>(x, n, y);
      break;
    case UnaryKind::kTanh:
      map_rows<Tanh>(x, n, y);
      break;
    case UnaryKind::kErf:
      map_rows<Erf>(x, n, y);
      break;
  }
}

void rope_half(float* x, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
    x[i + half] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

void rope_interleaved(float* x, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
    x[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

void softmax(float* x, std::int64_t n) {
  const std::int64_t whole = n & ~std::int64_t{15};
  const std::int64_t rest = n - whole;
  const std::uint32_t rest_bits = (1u << rest) - 1u;
  const V lowest = vset(-__builtin_inff());
  V max = lowest;
  for (std::int64_t i = 0; i < whole; i += 16) {
    max = vmax(max, vload(x + i));
  }
  max = vmax(max, vselect_bits(rest_bits, vload_n(x + whole, rest), lowest));
  const V top = vset(vreduce_max(max));
  V sums = vzero();
  for (std::int64_t i = 0; i < whole; i += 16) {
    const V e = vexp(vsub(vload(x + i), top));
    vstore(x + i, e);
    sums = vadd(sums, e);
  }
  if (rest != 0) {
    const V e = vselect_bits(rest_bits, vexp(vsub(vload_n(x + whole, rest), top)), vzero());
    vstore_n(x + whole, e, rest);
    sums = vadd(sums, e);
  }
  const V sum = vset(vreduce_add(sums));
  for (std::int64_t i = 0; i < whole; i += 16) {
    vstore(x + i, vdiv(vload(x + i), sum));
  }
  if (rest != 0) {
    vstore_n(x + whole, vdiv(vload_n(x + whole, rest), sum), rest);
  }
}

}  // namespace
}  // namespace trine::kernels
