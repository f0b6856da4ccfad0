// Moving per-channel scales from the inputs of linear layers into what comes before, so that the
// block computes the same function (to rounding): weights that read a channel are multiplied, what
// makes the channel is divided. Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/block_weights.h"
#include "model/config.h"

namespace trine {

// The norm's output is divided by s [E]; `offset` is 1 where it multiplies by 1 + w.
void fold_into_norm(std::vector<float>& norm, float offset, std::span<const float> s);

// w[., c] *= s[c].
void scale_columns(BlockLinear& linear, std::span<const float> s);

// w[r, .] /= s[r], and the bias (may be empty).
void divide_rows(BlockLinear& linear, std::vector<float>& bias, std::span<const float> s);

// For each input channel of the output projection, the row of the value projection that makes it:
// query heads of one group read the same values.
std::vector<std::int32_t> tied_value_channels(const ModelConfig& config);

}  // namespace trine
