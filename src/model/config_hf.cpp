#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "model/config_sources.h"

namespace trine {
namespace {

std::vector<float> to_floats(const std::vector<double>& values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(),
                 [](double value) { return static_cast<float>(value); });
  return out;
}

// The reader's limits keep every value inside 32 bits.
std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

RopeConfig rope_from_hf(const HfRope& hf, std::int64_t head_dim) {
  RopeConfig rope;
  rope.base = hf.theta;
  rope.rotary_dim =
      static_cast<std::int32_t>(static_cast<double>(head_dim) * hf.partial_rotary_factor);
  rope.original_context = static_cast<std::int32_t>(hf.original_context);
  rope.factor = hf.factor;
  if (hf.type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (hf.type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.low_freq_factor = hf.low_freq_factor;
    rope.high_freq_factor = hf.high_freq_factor;
  } else if (hf.type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    rope.beta_fast = hf.beta_fast;
    rope.beta_slow = hf.beta_slow;
    rope.truncate = hf.truncate;
    const double mscale = hf.mscale.value_or(0.0);
    const double mscale_all = hf.mscale_all_dim.value_or(0.0);
    if (hf.attention_factor.has_value()) {
      rope.attention_factor = *hf.attention_factor;
    } else if (mscale != 0.0 && mscale_all != 0.0) {
      rope.attention_factor =
          yarn_attention_factor(hf.factor, mscale) / yarn_attention_factor(hf.factor, mscale_all);
    } else {
      rope.attention_factor = yarn_attention_factor(hf.factor);
    }
  } else if (hf.type == "longrope") {
    rope.scaling = RopeConfig::Scaling::kLongRope;
    rope.short_factors = to_floats(hf.short_factor);
    rope.long_factors = to_floats(hf.long_factor);
    rope.attention_factor = hf.attention_factor.value_or(
        hf.factor <= 1.0 ? 1.0
                         : std::sqrt(1.0 + std::log(hf.factor) / std::log(hf.original_context)));
  }
  return rope;
}

ops::Activation activation_of(const std::string& name) {
  if (name == "silu") {
    return ops::Activation::kSilu;
  }
  return name == "gelu" ? ops::Activation::kGeluErf : ops::Activation::kGeluTanh;
}

std::vector<LayerConfig> layers_from_hf(const HfConfig& hf, bool two_ropes) {
  TRINE_CHECK(hf.sliding.size() == static_cast<std::size_t>(hf.num_layers));
  std::vector<LayerConfig> layers(hf.sliding.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].window = hf.sliding[i] ? narrow(hf.sliding_window) : 0;
    layers[i].rope_idx = hf.sliding[i] && two_ropes ? 1 : 0;
    layers[i].moe = hf.num_experts > 0 && hf.moe_layer[i];
  }
  return layers;
}

}  // namespace

double yarn_attention_factor(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

Result<ModelConfig> model_config_from_hf(const HfConfig& hf) {
  ModelConfig config;
  const std::string& type = hf.model_type;
  const bool gemma = type == "gemma3_text";
  config.family = gemma ? "gemma3" : type == "qwen3_moe" ? "qwen3moe" : type;
  config.vocab_size = narrow(hf.vocab_size);
  config.embed_dim = narrow(hf.hidden_size);
  config.ffn_dim = narrow(hf.intermediate_size);
  config.num_layers = narrow(hf.num_layers);
  config.num_heads = narrow(hf.num_heads);
  config.num_kv_heads = narrow(hf.num_kv_heads);
  config.head_dim = narrow(hf.head_dim);
  config.context_length = narrow(hf.context_length);
  config.norm_eps = static_cast<float>(hf.norm_eps);
  config.activation = activation_of(hf.activation);
  config.tied_embeddings = hf.tie_word_embeddings;
  config.qkv_bias = type == "qwen2" || hf.attention_bias;
  config.output_bias = hf.attention_bias;
  config.mlp_bias = hf.mlp_bias;
  config.qk_norm = gemma || type == "qwen3" || type == "qwen3_moe";
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hf.head_dim)));
  if (gemma) {
    config.norm_weight_offset = 1.0F;
    config.post_norms = true;
    // The square root in f32: activations here are f32, as in the reference run in f32.
    config.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(hf.hidden_size)));
    config.attention_scale = static_cast<float>(1.0 / std::sqrt(hf.query_pre_attn_scalar));
    config.final_softcap = static_cast<float>(hf.final_logit_softcapping);
  }

  config.ropes.push_back(rope_from_hf(hf.rope, hf.head_dim));
  const bool two_ropes = !(hf.rope == hf.rope_sliding);
  if (two_ropes) {
    config.ropes.push_back(rope_from_hf(hf.rope_sliding, hf.head_dim));
  }
  if (hf.num_experts > 0) {
    config.moe = MoeConfig{narrow(hf.num_experts), narrow(hf.experts_per_token),
                           narrow(hf.moe_intermediate_size), hf.norm_topk_prob};
  }
  config.layers = layers_from_hf(hf, two_ropes);
  config.quantization = hf.quantization;
  config.bos_id = narrow(hf.bos_token_id);
  config.eos_ids.resize(hf.eos_token_ids.size());
  std::transform(hf.eos_token_ids.begin(), hf.eos_token_ids.end(), config.eos_ids.begin(), narrow);
  return config;
}

}  // namespace trine
