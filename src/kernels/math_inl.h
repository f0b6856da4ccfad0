// exp, tanh and erf on sixteen lanes; accuracy in rowwise.h. TRINE_LANES_HEADER names the
// instruction set's lanes.h. The coefficients are minimax fits (Lawson iteration on a dense grid,
// weighted for relative error).
#pragma once

#include TRINE_LANES_HEADER

namespace trine::kernels {
namespace {

// vexp() of what is not above 89, in bits too. The polynomial is evaluated as Estrin does, in three
// dependent steps instead of five: where exponentials stand one after another, the chain of one is
// longer than the processor looks ahead.
TRINE_LANES_INLINE V vexp_below(V x) {
  // Below -104 the result is 0 anyway. A NaN passes: it is the second operand.
  x = vmax(vset(-104.0f), x);
  const V magic = vset(0x1.8p23f);  // adding it rounds to an integer in the low mantissa bits
  const V shifted = vfma(x, vset(0x1.715476p0f), magic);
  const V n = vsub(shifted, magic);
  V r = vfma(n, vset(-0x1.62e4p-1f), x);  // ln 2 in two parts; n times the first is exact
  r = vfma(n, vset(-0x1.7f7d1cp-20f), r);
  const V square = vmul(r, r);
  const V high = vfma(vset(0x1.9f085ap-13f), r, vset(0x1.6d8d52p-10f));
  const V middle = vfma(vset(0x1.111272p-7f), r, vset(0x1.55548ep-5f));
  const V low = vfma(vset(0x1.555554p-3f), r, vset(0.5f));
  const V q = vfma(vfma(high, square, middle), square, low);
  const V p = vadd(vset(1.0f), vfma(square, q, r));
  return vscale_pow2(p, n, shifted);
}

TRINE_LANES_INLINE V vexp(V x) {
  return vexp_below(vmin(vset(89.0f), x));  // above, the result is infinity anyway
}

TRINE_LANES_INLINE V vtanh(V x) {
  const V a = vabs(x);
  const V z = vmul(x, x);
  V q = vset(0x1.197b7cp-9f);
  q = vfma(q, z, vset(-0x1.0c2146p-7f));
  q = vfma(q, z, vset(0x1.6394dap-6f));
  q = vfma(q, z, vset(-0x1.b9ef7cp-5f));
  q = vfma(q, z, vset(0x1.11106cp-3f));
  q = vfma(q, z, vset(-0x1.555554p-2f));
  const V small = vfma(vmul(q, z), x, x);
  const V e = vexp(vmul(a, vset(-2.0f)));
  const V large = vdiv(vsub(vset(1.0f), e), vadd(vset(1.0f), e));
  // The sign of x on both sides: the polynomial loses that of -0.
  return vcopysign(vselect_less(a, vset(0.625f), small, large), x);
}

TRINE_LANES_INLINE V verf(V x) {
  const V a = vabs(x);
  const V z = vmul(x, x);
  V q = vset(0x1.603abcp-14f);
  q = vfma(q, z, vset(-0x1.ab48e0p-11f));
  q = vfma(q, z, vset(0x1.54e652p-8f));
  q = vfma(q, z, vset(-0x1.b811c2p-6f));
  q = vfma(q, z, vset(0x1.ce2e30p-4f));
  q = vfma(q, z, vset(-0x1.812744p-2f));
  q = vfma(q, z, vset(0x1.20dd76p+0f));
  const V small = vmul(q, x);
  // log(erfc(a)); at 4 the result is 1 already. The NaN of a passes as in vexp.
  const V b = vmin(vset(4.0f), a);
  V t = vset(-0x1.636962p-16f);
  t = vfma(t, b, vset(0x1.c8a186p-12f));
  t = vfma(t, b, vset(-0x1.11abf4p-8f));
  t = vfma(t, b, vset(0x1.9bc300p-6f));
  t = vfma(t, b, vset(-0x1.bb97d4p-4f));
  t = vfma(t, b, vset(-0x1.4443d4p-1f));
  t = vfma(t, b, vset(-0x1.21286ep+0f));
  t = vfma(t, b, vset(0x1.71db10p-13f));
  const V large = vsub(vset(1.0f), vexp(t));
  return vcopysign(vselect_less(a, vset(0.921875f), small, large), x);
}

}  // namespace
}  // namespace trine::kernels
