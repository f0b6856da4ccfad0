// SmoothQuant: the channels of an input are divided, and the columns of the weights that read them
// multiplied, so that 8 bits per token hold the activations. Paper: Xiao et al., "SmoothQuant:
// Accurate and Efficient Post-Training Quantization for Large Language Models", ICML 2023.
//
// Losses are those of the real thing: weights of 8 bits with one scale per row, activations of 8
// bits with one scale per token, on a sample of the calibration's inputs.
// Thread rule: the thread that owns the team; results do not depend on its size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "platform/thread_team.h"
#include "quant/awq.h"

namespace trine {

struct SmoothInputs {
  std::span<const float> max_abs;  // [K], of the calibration
  std::span<const float> samples;  // [num_samples, K] inputs
  std::int64_t num_samples = 0;
};

struct SmoothScales {
  std::vector<float> scales;  // [K]; inputs are divided by them. All 1 when nothing was better
  float alpha = 0;            // that was chosen; 0: none
  // Mean over samples of the squared change of the outputs, as a share of their energy.
  double loss = 0;         // with the scales
  double plain_loss = 0;   // without
  double weight_loss = 0;  // with the scales, when activations stay as they are (W8A16)
};

// s_j = max|x_j|^alpha / max|w_j|^(1 - alpha) for each of `alphas`, the best of them. Consumers'
// schemes say how their weights are rounded.
SmoothScales search_smooth_scales(ThreadTeam& team, std::span<const ScaledConsumer> consumers,
                                  std::int64_t cols, const SmoothInputs& inputs,
                                  std::span<const float> alphas);

}  // namespace trine
