// Names of a GGUF file -> parts of the decoder. GGUF has no keys for biases and for tying: the
// tensors decide.
#include <array>

#include "base/check.h"
#include "model/config_sources.h"
#include "model/weights.h"

namespace trine {
namespace {

bool allowed_unused(std::string_view name) {
  // Read with the configuration, or constants that are computed here.
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight" || name.ends_with(".attn_rot_embd.weight");
}

Status bind_experts(TensorBinder& binder, const ModelConfig& config, const std::string& block,
                    LayerWeights& out) {
  TRINE_CHECK(config.moe.has_value());
  const MoeConfig& moe = *config.moe;
  const std::int64_t embed = config.embed_dim;
  const std::int64_t ffn = moe.ffn_dim;
  TRINE_TRY(binder.matrix(block + "ffn_gate_inp.weight", moe.num_experts, embed, out.router));
  const auto count = static_cast<std::size_t>(moe.num_experts);
  if (binder.has_matrix(block +
                        "ffn_gate.0.weight")) {  // files from before the experts were merged
    for (std::size_t e = 0; e < count; ++e) {
      MlpWeights& expert = out.experts.emplace_back();
      TRINE_TRY(
          binder.matrix(fmt::format("{}ffn_gate.{}.weight", block, e), ffn, embed, expert.gate));
      TRINE_TRY(binder.matrix(fmt::format("{}ffn_up.{}.weight", block, e), ffn, embed, expert.up));
      TRINE_TRY(
          binder.matrix(fmt::format("{}ffn_down.{}.weight", block, e), embed, ffn, expert.down));
      TRINE_TRY(binder.check_missing(true));
    }
    return {};
  }
  std::vector<ops::WeightView> gate;
  std::vector<ops::WeightView> up;
  std::vector<ops::WeightView> down;
  if (binder.has_matrix(block + "ffn_gate_up_exps.weight")) {
    TRINE_TRY(
        binder.experts(block + "ffn_gate_up_exps.weight", moe.num_experts, 2 * ffn, embed, gate));
    up = gate;
    for (std::size_t e = 0; e < gate.size(); ++e) {
      gate[e] = rows_of(up[e], 0, ffn);
      up[e] = rows_of(up[e], ffn, ffn);
    }
  } else {
    TRINE_TRY(binder.experts(block + "ffn_gate_exps.weight", moe.num_experts, ffn, embed, gate));
    TRINE_TRY(binder.experts(block + "ffn_up_exps.weight", moe.num_experts, ffn, embed, up));
  }
  TRINE_TRY(binder.experts(block + "ffn_down_exps.weight", moe.num_experts, embed, ffn, down));
  if (gate.size() != count || up.size() != count || down.size() != count) {
    return {};  // noted as missing
  }
  out.experts.resize(count);
  for (std::size_t e = 0; e < count; ++e) {
    out.experts[e].gate = gate[e];
    out.experts[e].up = up[e];
    out.experts[e].down = down[e];
  }
  return {};
}

Status bind_mlp(TensorBinder& binder, const ModelConfig& config, const std::string& block,
                MlpWeights& out) {
  const std::int64_t embed = config.embed_dim;
  const std::int64_t ffn = config.ffn_dim;
  if (config.family == "phi3" && !binder.has_matrix(block + "ffn_gate.weight")) {
    const std::array<std::int64_t, 2> rows{ffn, ffn};
    const std::array<ops::WeightView*, 2> parts{&out.gate, &out.up};
    TRINE_TRY(binder.stacked(block + "ffn_up.weight", rows, embed, parts));
  } else {
    TRINE_TRY(binder.matrix(block + "ffn_gate.weight", ffn, embed, out.gate));
    TRINE_TRY(binder.matrix(block + "ffn_up.weight", ffn, embed, out.up));
  }
  TRINE_TRY(binder.matrix(block + "ffn_down.weight", embed, ffn, out.down));
  TRINE_TRY(binder.vector_if(config.mlp_bias, block + "ffn_gate.bias", ffn, out.gate_bias));
  TRINE_TRY(binder.vector_if(config.mlp_bias, block + "ffn_up.bias", ffn, out.up_bias));
  return binder.vector_if(config.mlp_bias, block + "ffn_down.bias", embed, out.down_bias);
}

Status bind_attention(TensorBinder& binder, const ModelConfig& config, const std::string& block,
                      LayerWeights& out) {
  const std::int64_t embed = config.embed_dim;
  const std::int64_t q_dim = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_dim = std::int64_t{config.num_kv_heads} * config.head_dim;
  if (binder.has_matrix(block + "attn_qkv.weight")) {
    const std::array<std::int64_t, 3> rows{q_dim, kv_dim, kv_dim};
    const std::array<ops::WeightView*, 3> parts{&out.q, &out.k, &out.v};
    TRINE_TRY(binder.stacked(block + "attn_qkv.weight", rows, embed, parts));
  } else {
    TRINE_TRY(binder.matrix(block + "attn_q.weight", q_dim, embed, out.q));
    TRINE_TRY(binder.matrix(block + "attn_k.weight", kv_dim, embed, out.k));
    TRINE_TRY(binder.matrix(block + "attn_v.weight", kv_dim, embed, out.v));
  }
  TRINE_TRY(binder.matrix(block + "attn_output.weight", embed, q_dim, out.o));
  TRINE_TRY(binder.vector_if(config.qkv_bias, block + "attn_q.bias", q_dim, out.q_bias));
  TRINE_TRY(binder.vector_if(config.qkv_bias, block + "attn_k.bias", kv_dim, out.k_bias));
  TRINE_TRY(binder.vector_if(config.qkv_bias, block + "attn_v.bias", kv_dim, out.v_bias));
  TRINE_TRY(binder.vector_if(config.output_bias, block + "attn_output.bias", embed, out.o_bias));
  TRINE_TRY(
      binder.vector_if(config.qk_norm, block + "attn_q_norm.weight", config.head_dim, out.q_norm));
  return binder.vector_if(config.qk_norm, block + "attn_k_norm.weight", config.head_dim,
                          out.k_norm);
}

}  // namespace

Result<DecoderWeights> bind_gguf_weights(const Checkpoint& checkpoint, ModelConfig& config) {
  DecoderWeights weights;
  TensorBinder binder(checkpoint, weights,
                      config.quantization.has_value() ? &*config.quantization : nullptr);
  TRINE_TRY(
      binder.check_configured(fmt::format("the metadata key {} is missing", kGgufQuantizationKey)));
  const std::int64_t embed = config.embed_dim;
  config.qkv_bias = binder.has("blk.0.attn_q.bias");
  config.output_bias = binder.has("blk.0.attn_output.bias");
  config.mlp_bias = binder.has("blk.0.ffn_down.bias");
  config.tied_embeddings = !binder.has_matrix("output.weight");
  TRINE_TRY(binder.matrix("token_embd.weight", config.vocab_size, embed, weights.embedding));
  for (std::int32_t i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    const std::string block = fmt::format("blk.{}.", i);
    TRINE_TRY(binder.vector(block + "attn_norm.weight", embed, layer.attn_norm));
    TRINE_TRY(bind_attention(binder, config, block, layer));
    TRINE_TRY(binder.vector(block + "ffn_norm.weight", embed, layer.ffn_norm));
    if (config.post_norms) {
      TRINE_TRY(binder.vector(block + "post_attention_norm.weight", embed, layer.post_attn_norm));
      TRINE_TRY(binder.vector(block + "post_ffw_norm.weight", embed, layer.post_ffn_norm));
    }
    if (config.layers[static_cast<std::size_t>(i)].moe) {
      TRINE_TRY(bind_experts(binder, config, block, layer));
    } else {
      TRINE_TRY(bind_mlp(binder, config, block, layer.mlp));
    }
    TRINE_TRY(binder.check_missing(true));
  }
  TRINE_TRY(binder.vector("output_norm.weight", embed, weights.final_norm));
  if (config.tied_embeddings) {
    weights.output = weights.embedding;
  } else {
    TRINE_TRY(binder.matrix("output.weight", config.vocab_size, embed, weights.output));
  }
  TRINE_TRY(binder.check_missing());
  TRINE_TRY(binder.check_unused(allowed_unused));
  binder.log_quantized();
  return weights;
}

}  // namespace trine
