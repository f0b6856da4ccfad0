// The parts of one decoder block on activations that the caller holds: what Decoder runs one after
// the other, and what a quantizer looks between.
//
// Shapes: T rows, E model dim, H*D queries, G*D keys and values. Thread rule: the engine thread;
// the operations use its team.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "ops/attention.h"
#include "ops/ops.h"
#include "tensor/kv_layout.h"

namespace trine {

// cos and sin of every row for every set of rotary frequencies, [T, rotary_dim / 2] each.
class RopeTables {
 public:
  explicit RopeTables(const ModelConfig& config);
  // Grows once; then overwritten by every step.
  void fill(ops::Context& ctx, std::span<const std::int32_t> positions);

  const float* cos(std::size_t rope_idx) const { return cos_[rope_idx].data(); }

  const float* sin(std::size_t rope_idx) const { return sin_[rope_idx].data(); }

 private:
  std::vector<RopeConfig> ropes_;
  std::vector<std::vector<float>> inverse_frequencies_;
  std::vector<std::vector<float>> cos_, sin_;
};

// What attention needs to know of a step.
struct AttentionStep {
  const KvGeometry& geometry;
  std::span<const ops::AttentionSpan> spans;
  const RopeTables& rope;
  std::int64_t num_rows = 0;
  std::int32_t kv_layer = 0;  // of the pages
};

struct AttentionBuffers {
  std::vector<float> q, k, v;  // [T, H*D], [T, G*D], [T, G*D]
};

// normed [T, E] = the norm before attention, or before the MLP, of hidden [T, E].
void attention_norm(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                    const float* hidden, std::int64_t num_rows, float* normed);
void mlp_norm(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
              const float* hidden, std::int64_t num_rows, float* normed);

// mixed [T, H*D] = attention over q, k and v of normed; keys and values are written to the pages.
void attention_mix(ops::Context& ctx, const ModelConfig& config, const LayerConfig& kind,
                   const LayerWeights& layer, const AttentionStep& step, const float* normed,
                   AttentionBuffers& buffers, float* mixed);

// hidden += the output projection of mixed, behind its norm where the family has one. branch is
// [T, E] of scratch.
void attention_output(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                      const float* mixed, std::int64_t num_rows, float* branch, float* hidden);

// hidden += branch [T, E], what the MLP made, behind its norm where the family has one.
void mlp_output(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                std::int64_t num_rows, float* branch, float* hidden);

}  // namespace trine
