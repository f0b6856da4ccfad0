// GPTQ: weights are rounded column by column, and the error of each is made up for by the columns
// that are still to come, so that the layer's outputs on the calibration inputs change least.
// Paper: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
// Transformers", ICLR 2023.
//
// Groups keep their place whatever the order of the columns ("static groups"), so nothing is
// gathered at run time. Rows do not depend on each other: the team splits them, and results do not
// depend on its size. Thread rule: the thread that owns the team.
#pragma once

#include <cstdint>
#include <span>

#include "platform/thread_team.h"
#include "quant/inverse_factor.h"
#include "quant/quantized_weights.h"

namespace trine {

struct GptqOptions {
  double damping = 0.01;  // share of the mean of H's diagonal; grows when it has to
  // Columns with large inputs first. Their grids are those of the weights before any was changed;
  // without it a group's grid is chosen when its first column's turn comes.
  bool act_order = true;
  ClipSearch clip;  // weighed by H's diagonal
};

struct GptqResult {
  QuantizedWeights weights;
  double damping = 0;  // that it took
  double floor = 0;
  bool fell_back = false;         // no factor: rounded to nearest instead
  std::int64_t dead_columns = 0;  // inputs that were always 0; their weights become 0
  double clipped_share = 0;       // of the groups
};

// w is [N, K], dense; second_moments is [K, K].
GptqResult gptq(ThreadTeam& team, const QuantScheme& scheme, const GptqOptions& options,
                std::span<const float> w, std::int64_t rows, std::int64_t cols,
                std::span<const float> second_moments);

}  // namespace trine
