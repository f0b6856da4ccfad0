// The mixture-of-experts MLP. Which experts a token uses, and the order in which their outputs are
// added, depend on that token alone, so batching never changes a bit. Paper: Shazeer et al. 2017;
// routing as in Mixtral. Thread rule: engine thread, like every operation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace trine {

// Scratch of the MLPs, dense and mixture; grows to its size once.
struct MlpBuffers {
  std::vector<float> gate, up;              // [rows, F]
  std::vector<float> router;                // [T, experts]
  std::vector<float> expert_weight;         // [T, experts], zero where not chosen
  std::vector<std::uint8_t> chosen;         // [T, experts]
  std::vector<std::int32_t> rows;           // tokens of the expert at hand
  std::vector<float> gathered, expert_out;  // [rows, E]
};

// The top-k choice for one token: marks `k` of `probs` in `chosen` and writes their weights. Ties
// go to the lower index; a NaN loses against every number. Weights are divided by their sum when
// `normalize` is set.
void route_top_k(std::span<const float> probs, std::int32_t k, bool normalize,
                 std::span<std::uint8_t> chosen, std::span<float> weights);

// out [T, E] = MLP(x [T, E]).
void dense_mlp(ops::Context& ctx, ops::Activation activation, const MlpWeights& weights,
               const float* x, std::int64_t num_rows, MlpBuffers& buffers, float* out);
void moe_mlp(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
             const float* x, std::int64_t num_rows, MlpBuffers& buffers, float* out);

}  // namespace trine
