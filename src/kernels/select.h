// Family `select`: passes over the logits of one position, for picking and drawing tokens.
//
// Numeric contract: comparisons are exact; exp_sum adds base/fixed_math.h's exp in eight lanes
// (lane j takes elements j, j + 8, ... ascending) and folds them (0+4, 1+5, ...), then (0+2, 1+3),
// then both: the same bits on every instruction set. Shapes: x [n], n >= 0, any alignment. Errors:
// none. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace trine::kernels {

// A race of tokens: token i arrives at -log(u_i) / w_i, w_i = exp((x_i - max) / temperature), and
// the first one wins. u_i is uniform_open(philox(seed, position, purpose, i), 0) of base/rng.h.
struct RaceArgs {
  double max;
  double temperature;
  std::uint64_t seed;
  std::uint64_t position;
  std::uint32_t purpose;
};

struct SelectTable {
  // The largest element; NaN is passed over, -infinity when nothing is left.
  float (*largest)(const float* x, std::int64_t n);
  // The first index >= begin with x > threshold, else n.
  std::int64_t (*first_above)(const float* x, std::int64_t begin, std::int64_t n, float threshold);
  // Sum of exp((x - max) / temperature); no x is above max.
  double (*exp_sum)(const float* x, std::int64_t n, double max, double temperature);
  // The first token >= begin that may arrive at `best` or earlier, else n. Cheap: -log(u) >= 1 - u
  // rules out nearly all without a logarithm, with a factor for rounding; a token that is returned
  // may still be late.
  std::int64_t (*first_entrant)(const float* x, std::int64_t begin, std::int64_t n,
                                const RaceArgs* race, double best);
};

extern const SelectTable kSelectScalar;
extern const SelectTable kSelectAvx2;
extern const SelectTable kSelectAvx512;

}  // namespace trine::kernels
