// exp and log in double that give the same bits on every machine.
//
// The C library picks its versions by CPU (with and without fused multiply-add), so its last bit is
// not a constant; a token drawn by comparing such numbers would then depend on the machine. These
// use additions and multiplications in a fixed order only. Error below 2 units in the last place
// (measured against long double in the tests). Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace trine {

inline constexpr double kLn2High = 0x1.62e42fefap-1;      // 36 bits: n * kLn2High is exact
inline constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;  // ln 2 - kLn2High

// e^x for x in [-708, 0]; 0 below -708, where results would soon be subnormal. exp(0) is exactly 1.
// Double is double, or a vector of them whose lanes all do the same; Bits has its bit patterns.
// Never called out of line, so that a copy made for one instruction set cannot serve the others.
template <typename Double, typename Bits>
__attribute__((always_inline)) inline Double fixed_exp_lanes(Double x) {
  constexpr double kLog2e = 0x1.71547652b82fep+0;
  constexpr double kRound =
      0x1.8p52;  // adding it rounds to the nearest integer, kept in the low bits
  const Double low = Double{} - 708.0;
  const Double clamped = x < low ? low : x;
  const Double shifted = clamped * kLog2e + kRound;
  const Double n = shifted - kRound;
  const Double r = (clamped - n * kLn2High) - n * kLn2Low;  // |r| <= ln2 / 2
  Double p = Double{} + 1.0 / 6227020800.0;  // Taylor to r^13: the rest is below 2^-57
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r * r + r + 1.0;
  const Bits exponent = __builtin_bit_cast(Bits, shifted) << 52;
  const Double scaled = __builtin_bit_cast(Double, __builtin_bit_cast(Bits, p) + exponent);
  return x < low ? Double{} : scaled;
}

inline double fixed_exp(double x) {
  return fixed_exp_lanes<double, std::uint64_t>(x);
}

// Natural logarithm of a positive normal number. log(1) is exactly 0.
inline double fixed_log(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const auto e = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52));
  const double f = m - 1.0;  // exact
  const double s = f / (2.0 + f);
  const double z = s * s;  // log m = 2 atanh(s) = 2s (1 + z/3 + z^2/5 + ...), z <= 0.0295
  double p = 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  const double n = static_cast<double>(e);
  return n * kLn2High + (n * kLn2Low + 2.0 * s * (p * z) + 2.0 * s);
}

}  // namespace trine
