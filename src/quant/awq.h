// AWQ: channels with large inputs get larger weights before rounding, and their inputs are divided
// by as much, which is folded into the layer before. The scales are searched so that the outputs
// change least; the loss comes from the inputs' second moments, not from another pass.
// Paper: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and
// Acceleration", MLSys 2024.
//
// Thread rule: the thread that owns the team; results do not depend on its size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "platform/thread_team.h"
#include "quant/quant_grid.h"

namespace trine {

// A linear layer that reads the scaled channels.
struct ScaledConsumer {
  std::span<const float> w;  // [rows, K]
  std::int64_t rows = 0;
  QuantScheme scheme;
};

struct AwqInputs {
  std::span<const float> second_moments;  // [K, K]
  std::span<const float> mean_abs;        // [K]
  // Channels with one number share one scale (value heads that several query heads read); empty:
  // each has its own.
  std::span<const std::int32_t> tied;
};

struct AwqScales {
  std::vector<float> scales;  // [K]; all 1 when nothing was better
  double loss = 0;            // of the outputs, with them
  double plain_loss = 0;      // without
  float alpha = 0;
  bool by_weights = false;  // the weights' own size is in the formula ("duo scaling")
};

// Columns are multiplied by the scales, which never lose to leaving them alone: 1 is a candidate.
AwqScales search_awq_scales(ThreadTeam& team, std::span<const ScaledConsumer> consumers,
                            std::int64_t cols, const AwqInputs& inputs);

}  // namespace trine
