#include "model/moe.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace trine {
namespace {

// Rows per pass through an MLP: bounds the [rows, F] buffers of a long prefill without starving the
// kernels.
constexpr std::int64_t kMlpRows = 512;

template <typename T>
void grow(std::vector<T>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
}

const float* or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

}  // namespace

void route_top_k(std::span<const float> probs, std::int32_t k, bool normalize,
                 std::span<std::uint8_t> chosen, std::span<float> weights) {
  std::fill(chosen.begin(), chosen.end(), std::uint8_t{0});
  std::fill(weights.begin(), weights.end(), 0.0F);
  float sum = 0.0F;
  for (std::int32_t pick = 0; pick < k; ++pick) {
    std::size_t best = probs.size();
    for (std::size_t e = 0; e < probs.size(); ++e) {
      // `>` keeps the lower index on a tie; a NaN is taken only when nothing else is left.
      const bool better = best == probs.size() || probs[e] > probs[best] ||
                          (probs[best] != probs[best] && probs[e] == probs[e]);
      if (chosen[e] == 0 && better) {
        best = e;
      }
    }
    TRINE_CHECK(best < probs.size());
    chosen[best] = 1;
    weights[best] = probs[best];
    sum += probs[best];
  }
  if (normalize) {
    for (std::size_t e = 0; e < probs.size(); ++e) {
      if (chosen[e] != 0) {
        weights[e] /= sum;
      }
    }
  }
}

void dense_mlp(ops::Context& ctx, ops::Activation activation, const MlpWeights& weights,
               const float* x, std::int64_t num_rows, MlpBuffers& buffers, float* out) {
  const std::int64_t embed = weights.gate.cols;
  const std::int64_t ffn = weights.gate.rows;
  grow(buffers.gate, std::min(num_rows, kMlpRows) * ffn);
  grow(buffers.up, std::min(num_rows, kMlpRows) * ffn);
  for (std::int64_t first = 0; first < num_rows; first += kMlpRows) {
    const std::int64_t rows = std::min(kMlpRows, num_rows - first);
    const float* in = x + first * embed;
    const std::array<ops::LinearTask, 2> gate_up{
        {{&weights.gate, or_null(weights.gate_bias), buffers.gate.data(), ffn},
         {&weights.up, or_null(weights.up_bias), buffers.up.data(), ffn}}};
    ops::linear(ctx, {in, embed, rows, embed}, gate_up);
    ops::gated_activation(ctx, activation, buffers.gate.data(), buffers.up.data(), rows * ffn,
                          buffers.gate.data());
    ops::linear(ctx, weights.down, or_null(weights.down_bias), buffers.gate.data(), ffn, rows,
                out + first * embed, embed);
  }
}

void moe_mlp(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
             const float* x, std::int64_t num_rows, MlpBuffers& buffers, float* out) {
  TRINE_CHECK(config.moe.has_value());
  const MoeConfig& moe = *config.moe;
  const std::int64_t embed = config.embed_dim;
  const auto experts = static_cast<std::size_t>(moe.num_experts);
  const std::int64_t cells = num_rows * moe.num_experts;
  grow(buffers.router, cells);
  grow(buffers.expert_weight, cells);
  grow(buffers.chosen, cells);
  grow(buffers.rows, num_rows);
  grow(buffers.gathered, num_rows * embed);
  grow(buffers.expert_out, num_rows * embed);
  ops::linear(ctx, layer.router, nullptr, x, embed, num_rows, buffers.router.data(),
              moe.num_experts);
  ops::softmax_rows(ctx, buffers.router.data(), num_rows, moe.num_experts);
  for (std::int64_t t = 0; t < num_rows; ++t) {
    const auto at = static_cast<std::size_t>(t) * experts;
    route_top_k({buffers.router.data() + at, experts}, moe.experts_per_token, moe.normalize_top_k,
                {buffers.chosen.data() + at, experts},
                {buffers.expert_weight.data() + at, experts});
  }

  std::fill_n(out, num_rows * embed, 0.0F);
  // Experts in ascending order: each token's sum then has one order, whoever else is in the batch.
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < num_rows; ++t) {
      if (buffers.chosen[static_cast<std::size_t>(t) * experts + e] != 0) {
        std::memcpy(buffers.gathered.data() + count * embed, x + t * embed,
                    static_cast<std::size_t>(embed) * sizeof(float));
        buffers.rows[static_cast<std::size_t>(count++)] = static_cast<std::int32_t>(t);
      }
    }
    if (count == 0) {
      continue;
    }
    dense_mlp(ctx, config.activation, layer.experts[e], buffers.gathered.data(), count, buffers,
              buffers.expert_out.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::size_t>(buffers.rows[static_cast<std::size_t>(i)]);
      const float weight = buffers.expert_weight[token * experts + e];
      const float* from = buffers.expert_out.data() + i * embed;
      float* to = out + static_cast<std::int64_t>(token) * embed;
      for (std::int64_t j = 0; j < embed; ++j) {
        to[j] += weight * from[j];
      }
    }
  }
}

}  // namespace trine
