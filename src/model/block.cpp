#include "model/block.h"

#include <array>
#include <cmath>

namespace trine {
namespace {

const float* or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

float* grown(std::vector<float>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
  return buffer.data();
}

// A norm of whole rows of E values.
void row_norm(ops::Context& ctx, const ModelConfig& config, const std::vector<float>& weight,
              const float* x, std::int64_t num_rows, float* y) {
  const std::int64_t embed = config.embed_dim;
  ops::rms_norm(ctx, x, weight.data(), config.norm_weight_offset, config.norm_eps, embed, num_rows,
                embed, y);
}

}  // namespace

RopeTables::RopeTables(const ModelConfig& config) : ropes_(config.ropes) {
  for (const RopeConfig& rope : ropes_) {
    inverse_frequencies_.push_back(rope_inverse_frequencies(rope, config.context_length));
  }
  cos_.resize(ropes_.size());
  sin_.resize(ropes_.size());
}

void RopeTables::fill(ops::Context& ctx, std::span<const std::int32_t> positions) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  for (std::size_t r = 0; r < ropes_.size(); ++r) {
    const std::vector<float>& frequencies = inverse_frequencies_[r];
    const auto half = static_cast<std::int64_t>(frequencies.size());
    float* cos_out = grown(cos_[r], rows * half);
    float* sin_out = grown(sin_[r], rows * half);
    const double factor = ropes_[r].attention_factor;
    ctx.team().run([&](int thread_idx) {
      const auto [begin, end] = split_range(rows, 1, thread_idx, ctx.team().num_threads());
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          // The angle is a product in f32, as models were trained with; its cosine is exact to the
          // last bit.
          const float angle = static_cast<float>(positions[static_cast<std::size_t>(t)]) *
                              frequencies[static_cast<std::size_t>(i)];
          cos_out[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)) * factor);
          sin_out[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * factor);
        }
      }
    });
  }
}

void attention_norm(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                    const float* hidden, std::int64_t num_rows, float* normed) {
  row_norm(ctx, config, layer.attn_norm, hidden, num_rows, normed);
}

void mlp_norm(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
              const float* hidden, std::int64_t num_rows, float* normed) {
  row_norm(ctx, config, layer.ffn_norm, hidden, num_rows, normed);
}

void attention_mix(ops::Context& ctx, const ModelConfig& config, const LayerConfig& kind,
                   const LayerWeights& layer, const AttentionStep& step, const float* normed,
                   AttentionBuffers& buffers, float* mixed) {
  const std::int64_t rows = step.num_rows;
  const std::int64_t embed = config.embed_dim;
  const std::int32_t dim = config.head_dim;
  const std::int64_t q_dim = std::int64_t{config.num_heads} * dim;
  const std::int64_t kv_dim = std::int64_t{config.num_kv_heads} * dim;
  const float offset = config.norm_weight_offset;
  float* q = grown(buffers.q, rows * q_dim);
  float* k = grown(buffers.k, rows * kv_dim);
  float* v = grown(buffers.v, rows * kv_dim);
  const std::array<ops::LinearTask, 3> qkv{{{&layer.q, or_null(layer.q_bias), q, q_dim},
                                            {&layer.k, or_null(layer.k_bias), k, kv_dim},
                                            {&layer.v, or_null(layer.v_bias), v, kv_dim}}};
  ops::linear(ctx, {normed, embed, rows, embed}, qkv);
  if (config.qk_norm) {
    ops::rms_norm(ctx, q, layer.q_norm.data(), offset, config.norm_eps, dim,
                  rows * config.num_heads, dim, q);
    ops::rms_norm(ctx, k, layer.k_norm.data(), offset, config.norm_eps, dim,
                  rows * config.num_kv_heads, dim, k);
  }
  const auto rope = static_cast<std::size_t>(kind.rope_idx);
  const std::int32_t rotary_dim = config.ropes[rope].rotary_dim;
  ops::rope(ctx, config.rope_layout, q, q_dim, rows, config.num_heads, dim, rotary_dim,
            step.rope.cos(rope), step.rope.sin(rope));
  ops::rope(ctx, config.rope_layout, k, kv_dim, rows, config.num_kv_heads, dim, rotary_dim,
            step.rope.cos(rope), step.rope.sin(rope));
  ops::write_kv(ctx, step.geometry, step.kv_layer, step.spans, k, kv_dim, v, kv_dim);

  ops::AttentionParams params;
  params.layer = step.kv_layer;
  params.num_heads = config.num_heads;
  params.num_kv_heads = config.num_kv_heads;
  params.head_dim_k = dim;
  params.head_dim_v = dim;
  params.scale = config.attention_scale;
  params.window = kind.window;
  ops::attention(ctx, step.geometry, params, step.spans, q, q_dim, mixed, q_dim);
}

void attention_output(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                      const float* mixed, std::int64_t num_rows, float* branch, float* hidden) {
  const std::int64_t embed = config.embed_dim;
  ops::linear(ctx, layer.o, or_null(layer.o_bias), mixed, layer.o.cols, num_rows, branch, embed);
  if (config.post_norms) {
    row_norm(ctx, config, layer.post_attn_norm, branch, num_rows, branch);
  }
  ops::add(ctx, hidden, branch, num_rows * embed);
}

void mlp_output(ops::Context& ctx, const ModelConfig& config, const LayerWeights& layer,
                std::int64_t num_rows, float* branch, float* hidden) {
  if (config.post_norms) {
    row_norm(ctx, config, layer.post_ffn_norm, branch, num_rows, branch);
  }
  ops::add(ctx, hidden, branch, num_rows * config.embed_dim);
}

}  // namespace trine
