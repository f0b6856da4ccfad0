// Body of the select family; contract in select.h.
//
// Written on the compiler's vector types, TRINE_VECTOR_BYTES wide (what the instruction set has:
// wider ones would be taken apart): every lane does plain additions and multiplications in the
// order written. A pass looks at a block before it asks whether anything in it matters, and that is
// rare.
#pragma once

#include <cstdint>

#include "base/fixed_math.h"
#include "kernels/select.h"

namespace trine::kernels {
namespace {

typedef float Floats __attribute__((vector_size(TRINE_VECTOR_BYTES)));
typedef std::int32_t FloatMask __attribute__((vector_size(TRINE_VECTOR_BYTES)));
typedef float HalfFloats __attribute__((vector_size(TRINE_VECTOR_BYTES / 2)));
typedef double Doubles __attribute__((vector_size(TRINE_VECTOR_BYTES)));
typedef std::uint64_t Words __attribute__((vector_size(TRINE_VECTOR_BYTES)));
typedef std::int64_t DoubleMask __attribute__((vector_size(TRINE_VECTOR_BYTES)));

constexpr std::int64_t kFloats = TRINE_VECTOR_BYTES / 4;
constexpr std::int64_t kDoubles = TRINE_VECTOR_BYTES / 8;
constexpr std::int64_t kSumLanes = 8;  // of exp_sum, on every instruction set

template <typename Vector>
__attribute__((always_inline)) inline Vector load_vector(const void* p) {
  Vector v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

float largest(const float* x, std::int64_t n) {
  Floats best = Floats{} - __builtin_inff();
  std::int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) {
    const Floats v = load_vector<Floats>(x + i);
    best = v > best ? v : best;
  }
  float out = -__builtin_inff();
  for (std::int64_t lane = 0; lane < kFloats; ++lane) {
    out = best[lane] > out ? best[lane] : out;
  }
  for (; i < n; ++i) {
    out = x[i] > out ? x[i] : out;
  }
  return out;
}

std::int64_t first_above(const float* x, std::int64_t begin, std::int64_t n, float threshold) {
  constexpr std::int64_t kBlock = 256;
  const Floats limit = Floats{} + threshold;
  std::int64_t i = begin;
  for (; i + kBlock <= n; i += kBlock) {
    FloatMask any{};
    for (std::int64_t at = i; at < i + kBlock; at += kFloats) {
      any |= load_vector<Floats>(x + at) > limit;
    }
    std::int32_t hit = 0;
    for (std::int64_t lane = 0; lane < kFloats; ++lane) {
      hit |= any[lane];
    }
    if (hit != 0) {
      break;
    }
  }
  while (i < n && !(x[i] > threshold)) {
    ++i;
  }
  return i;
}

// exp((x - max) / temperature) of a vector of elements.
__attribute__((always_inline)) inline Doubles weights_of(const float* x, double max,
                                                         double temperature) {
  const Doubles wide = __builtin_convertvector(load_vector<HalfFloats>(x), Doubles);
  return fixed_exp_lanes<Doubles, Words>((wide - max) / temperature);
}

// The last elements, fewer than eight, with -infinity, whose weight is 0, behind them.
struct Tail {
  float x[kSumLanes];

  Tail(const float* from, std::int64_t count) {
    for (std::int64_t i = 0; i < kSumLanes; ++i) {
      x[i] = i < count ? from[i] : -__builtin_inff();
    }
  }
};

double exp_sum(const float* x, std::int64_t n, double max, double temperature) {
  Doubles sums[kSumLanes / kDoubles] = {};
  const auto add = [&](const float* from) __attribute__((always_inline)) {
    for (std::int64_t part = 0; part < kSumLanes / kDoubles; ++part) {
      sums[part] += weights_of(from + part * kDoubles, max, temperature);
    }
  };
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    add(x + i);
  }
  if (i < n) {
    add(Tail(x + i, n - i).x);
  }
  double lane[kSumLanes];
  __builtin_memcpy(lane, sums, sizeof lane);
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// uniform_open(philox(...), 0) for the tokens in `index`; every word holds 32 bits.
__attribute__((always_inline)) inline Doubles race_uniforms(const RaceArgs& race, Words index) {
  constexpr std::uint64_t kLow = 0xffffffffu;
  Words c0 = Words{} + (race.position & kLow);
  Words c1 = Words{} + (race.position >> 32);
  Words c2 = Words{} + std::uint64_t{race.purpose};
  Words c3 = index;
  std::uint64_t k0 = race.seed & kLow;
  std::uint64_t k1 = race.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const Words p0 = (c0 & kLow) * std::uint64_t{0xD2511F53u};
    const Words p1 = (c2 & kLow) * std::uint64_t{0xCD9E8D57u};
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1 & kLow;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0 & kLow;
    k0 = (k0 + 0x9E3779B9u) & kLow;
    k1 = (k1 + 0xBB67AE85u) & kLow;
  }
  const Words bits = (c0 << 32 | c1) >> 12;
  // As the mantissa of a number in [2^52, 2^53): an exact conversion.
  const Doubles whole =
      __builtin_bit_cast(Doubles, bits | std::uint64_t{0x4330000000000000u}) - 0x1p52;
  return (whole + 0.5) * 0x1p-52;
}

// Lanes that are set may arrive at `best` or earlier.
__attribute__((always_inline)) inline DoubleMask entrants(const float* x, std::int64_t first,
                                                          const RaceArgs& race, double best) {
  Words index{};
  for (std::int64_t lane = 0; lane < kDoubles; ++lane) {
    index[lane] = static_cast<std::uint64_t>(first + lane);
  }
  const Doubles u = race_uniforms(race, index);
  const Doubles weight = weights_of(x, race.max, race.temperature);
  return (1.0 - u) * (1.0 - 1e-12) <= weight * best;
}

std::int64_t first_entrant(const float* x, std::int64_t begin, std::int64_t n, const RaceArgs* race,
                           double best) {
  std::int64_t i = begin;
  while (i < n) {
    const std::int64_t count = n - i < kDoubles ? n - i : kDoubles;
    const DoubleMask in = count == kDoubles ? entrants(x + i, i, *race, best)
                                            : entrants(Tail(x + i, count).x, i, *race, best);
    std::int64_t any = 0;
    for (std::int64_t lane = 0; lane < kDoubles; ++lane) {
      any |= in[lane];
    }
    if (any != 0) {
      for (std::int64_t lane = 0; lane < count; ++lane) {
        if (in[lane] != 0) {
          return i + lane;
        }
      }
    }
    i += count;
  }
  return n;
}

}  // namespace
}  // namespace trine::kernels
