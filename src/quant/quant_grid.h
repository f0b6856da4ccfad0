// The grids that weights are rounded to: what a code of a group stands for, and how a group's grid
// is chosen.
//
// A weight matrix is W [N, K]; a group is `group` consecutive columns of one row (the last one of a
// row may be short), or the whole row. Scales are kept as binary16 values, as every file format
// stores them, so what is computed with here is what a reader computes with.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace trine {

// How a code becomes a weight.
enum class GridKind : std::uint8_t {
  kSymmetric,  // scale * (code - 2^(bits-1)), the range is mirrored at 0
  kZeroPoint,  // scale * (code - zero), zero a code; the range includes 0
  kFloat8,     // scale * the FP8 E4M3 number that the code is the bits of; 8 bits
  kMin,        // scale * code + min, min a binary16 value (GGUF's Q4_1); the range includes 0
};

struct QuantScheme {
  int bits = 4;             // 2, 3, 4 or 8
  std::int32_t group = 64;  // columns: a multiple of 16, or 0 for the whole row
  GridKind kind = GridKind::kZeroPoint;

  friend constexpr bool operator==(const QuantScheme&, const QuantScheme&) = default;

  std::int32_t levels() const { return 1 << bits; }

  // Columns of a full group in a matrix of `cols` columns.
  std::int64_t group_cols(std::int64_t cols) const { return group == 0 ? cols : group; }

  std::int64_t num_groups(std::int64_t cols) const {
    return (cols + group_cols(cols) - 1) / group_cols(cols);
  }

  // Stored bits of one group besides its codes.
  int overhead_bits() const {
    return kind == GridKind::kSymmetric || kind == GridKind::kFloat8 ? 16
           : kind == GridKind::kZeroPoint                            ? 16 + bits
                                                                     : 32;
  }

  // "4-bit g64 asym", "8-bit row sym".
  std::string text() const;
};

// Ok for a scheme that there is. Errors: invalid_argument naming the value and what there is.
Status check_scheme(const QuantScheme& scheme);

// One group's grid. zero is used by kSymmetric and kZeroPoint, min by kMin.
struct GroupGrid {
  float scale = 0.0F;  // a binary16 value, > 0
  std::int32_t zero = 0;
  float min = 0.0F;  // a binary16 value

  std::uint8_t code(const QuantScheme& scheme, float w) const;
  float value(const QuantScheme& scheme, std::uint8_t code) const;

  // The nearest weight of the grid.
  float round(const QuantScheme& scheme, float w) const { return value(scheme, code(scheme, w)); }
};

// How a group's range is chosen: all of it, or shrunk while that lowers the weighted squared error.
struct ClipSearch {
  bool enabled = false;
  int steps = 20;         // candidates, the first of which is the whole range
  float smallest = 0.5F;  // share of the range that the last candidate keeps

  float share(int step) const {
    return 1.0F - (1.0F - smallest) * static_cast<float>(step) / static_cast<float>(steps);
  }
};

// The grid of the weights `w` of one group. `importance`, per weight, is what its squared error
// counts for in a clip search; empty: all the same. `*clipped` (may be null) says whether a smaller
// range was chosen. Weights are finite. A scale that binary16 cannot hold becomes its largest
// value: the caller has refused such weights (kMaxWeight).
GroupGrid choose_grid(const QuantScheme& scheme, const ClipSearch& clip, std::span<const float> w,
                      std::span<const float> importance, bool* clipped);

// Larger weights have no grid with a binary16 scale at any number of bits.
inline constexpr float kMaxWeight = 65504.0F;

}  // namespace trine
