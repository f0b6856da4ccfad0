// A weight matrix in codes and grids: what every quantizer makes and every writer stores.
// Thread rule: a value; rows may be filled by several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "platform/thread_team.h"
#include "quant/quant_grid.h"

namespace trine {

struct QuantizedWeights {
  QuantScheme scheme;
  std::int64_t rows = 0;              // N
  std::int64_t cols = 0;              // K
  std::vector<std::uint8_t> codes;    // [N, K], in the order of the columns
  std::vector<std::uint16_t> scales;  // [N, groups], binary16 bits
  std::vector<std::uint8_t> zeros;    // [N, groups], kSymmetric and kZeroPoint
  std::vector<std::uint16_t> mins;    // [N, groups], binary16 bits, kMin

  QuantizedWeights() = default;
  QuantizedWeights(const QuantScheme& scheme, std::int64_t rows, std::int64_t cols);

  std::int64_t num_groups() const { return scheme.num_groups(cols); }

  void set_grid(std::int64_t row, std::int64_t group_idx, const GroupGrid& grid);
  GroupGrid grid(std::int64_t row, std::int64_t group_idx) const;

  // out[K]: the weights that the codes of a row stand for.
  void dequantize_row(std::int64_t row, std::span<float> out) const;

  // Bytes that codes, scales and zeros take when they are stored without padding.
  std::int64_t code_bytes() const { return (rows * cols * scheme.bits + 7) / 8; }

  std::int64_t scale_bytes() const { return rows * num_groups() * 2; }

  std::int64_t zero_bytes() const {
    return (rows * num_groups() * (scheme.overhead_bits() - 16) + 7) / 8;
  }
};

// Every weight to the nearest of its group's grid, which is chosen from the weights alone, or with
// `importance` [K] (may be empty) where `clip` searches. Returns the share of groups that were
// clipped in *clipped_share (may be null). w is [N, K], dense.
QuantizedWeights round_to_nearest(ThreadTeam& team, const QuantScheme& scheme,
                                  const ClipSearch& clip, std::span<const float> w,
                                  std::int64_t rows, std::int64_t cols,
                                  std::span<const float> importance, double* clipped_share);

}  // namespace trine
