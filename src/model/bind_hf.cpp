// Names of a Hugging Face checkpoint -> parts of the decoder.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/weights.h"

namespace trine {
namespace {

// Where the decoder's tensors begin: plain models, and the text part of a multimodal one (two
// spellings).
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.",
                                          "language_model.model."};

// Tensors that some checkpoints carry and the decoder has no use for: constants that are computed
// here, and the image part of a multimodal model.
bool allowed_unused(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") ||
         name.find("vision_tower.") != std::string_view::npos ||
         name.find("multi_modal_projector.") != std::string_view::npos;
}

// And in quantized checkpoints: what concerns activations and the KV cache, which are quantized
// here by what they are when they come.
bool allowed_unused_quantized(std::string_view name) {
  constexpr std::string_view kNames[] = {
      ".input_scale",  ".input_zero_point",  ".input_global_scale",
      ".output_scale", ".output_zero_point", ".q_scale",
      ".k_scale",      ".v_scale",           ".prob_scale",
      ".k_zero_point", ".v_zero_point"};
  return allowed_unused(name) ||
         std::any_of(std::begin(kNames), std::end(kNames),
                     [name](std::string_view end) { return name.ends_with(end); });
}

// "w1" of Mixtral or "gate_proj" of everyone else.
struct ExpertNames {
  const char* block;
  const char* gate;
  const char* up;
  const char* down;
};

constexpr ExpertNames kMixtralNames{"block_sparse_moe", "w1", "w3", "w2"};
constexpr ExpertNames kPlainNames{"mlp", "gate_proj", "up_proj", "down_proj"};

Status bind_experts(TensorBinder& binder, const ModelConfig& config, const std::string& layer,
                    LayerWeights& out) {
  TRINE_CHECK(config.moe.has_value());
  const MoeConfig& moe = *config.moe;
  const std::int64_t embed = config.embed_dim;
  const std::int64_t ffn = moe.ffn_dim;
  const bool mixtral = binder.has_matrix(layer + "block_sparse_moe.gate.weight");
  const ExpertNames& names = mixtral ? kMixtralNames : kPlainNames;
  const std::string block = fmt::format("{}{}.", layer, names.block);
  TRINE_TRY(binder.matrix(block + "gate.weight", moe.num_experts, embed, out.router));
  const auto count = static_cast<std::size_t>(moe.num_experts);
  if (binder.has(block + "experts.gate_up_proj")) {
    std::vector<ops::WeightView> gate_up;
    std::vector<ops::WeightView> down;
    TRINE_TRY(
        binder.experts(block + "experts.gate_up_proj", moe.num_experts, 2 * ffn, embed, gate_up));
    TRINE_TRY(binder.experts(block + "experts.down_proj", moe.num_experts, embed, ffn, down));
    if (gate_up.size() != count || down.size() != count) {
      return {};  // noted as missing
    }
    out.experts.resize(count);
    for (std::size_t e = 0; e < count; ++e) {
      MlpWeights& expert = out.experts[e];
      expert.gate = rows_of(gate_up[e], 0, ffn);
      expert.up = rows_of(gate_up[e], ffn, ffn);
      expert.down = down[e];
    }
    return {};
  }
  for (std::size_t e = 0; e < count; ++e) {
    MlpWeights& expert = out.experts.emplace_back();
    const std::string prefix = fmt::format("{}experts.{}.", block, e);
    TRINE_TRY(
        binder.matrix(fmt::format("{}{}.weight", prefix, names.gate), ffn, embed, expert.gate));
    TRINE_TRY(binder.matrix(fmt::format("{}{}.weight", prefix, names.up), ffn, embed, expert.up));
    TRINE_TRY(
        binder.matrix(fmt::format("{}{}.weight", prefix, names.down), embed, ffn, expert.down));
    TRINE_TRY(binder.check_missing(true));
  }
  return {};
}

Status bind_mlp(TensorBinder& binder, const ModelConfig& config, const std::string& layer,
                MlpWeights& out) {
  const std::int64_t embed = config.embed_dim;
  const std::int64_t ffn = config.ffn_dim;
  const std::string mlp = layer + "mlp.";
  if (binder.has_matrix(mlp + "gate_up_proj.weight")) {
    const std::array<std::int64_t, 2> rows{ffn, ffn};
    const std::array<ops::WeightView*, 2> parts{&out.gate, &out.up};
    TRINE_TRY(binder.stacked(mlp + "gate_up_proj.weight", rows, embed, parts));
  } else {
    TRINE_TRY(binder.matrix(mlp + "gate_proj.weight", ffn, embed, out.gate));
    TRINE_TRY(binder.matrix(mlp + "up_proj.weight", ffn, embed, out.up));
  }
  TRINE_TRY(binder.matrix(mlp + "down_proj.weight", embed, ffn, out.down));
  TRINE_TRY(binder.vector_if(config.mlp_bias, mlp + "gate_proj.bias", ffn, out.gate_bias));
  TRINE_TRY(binder.vector_if(config.mlp_bias, mlp + "up_proj.bias", ffn, out.up_bias));
  return binder.vector_if(config.mlp_bias, mlp + "down_proj.bias", embed, out.down_bias);
}

Status bind_attention(TensorBinder& binder, const ModelConfig& config, const std::string& layer,
                      LayerWeights& out) {
  const std::int64_t embed = config.embed_dim;
  const std::int64_t q_dim = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_dim = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::string attn = layer + "self_attn.";
  if (binder.has_matrix(attn + "qkv_proj.weight")) {
    const std::array<std::int64_t, 3> rows{q_dim, kv_dim, kv_dim};
    const std::array<ops::WeightView*, 3> parts{&out.q, &out.k, &out.v};
    TRINE_TRY(binder.stacked(attn + "qkv_proj.weight", rows, embed, parts));
  } else {
    TRINE_TRY(binder.matrix(attn + "q_proj.weight", q_dim, embed, out.q));
    TRINE_TRY(binder.matrix(attn + "k_proj.weight", kv_dim, embed, out.k));
    TRINE_TRY(binder.matrix(attn + "v_proj.weight", kv_dim, embed, out.v));
  }
  TRINE_TRY(binder.matrix(attn + "o_proj.weight", embed, q_dim, out.o));
  TRINE_TRY(binder.vector_if(config.qkv_bias, attn + "q_proj.bias", q_dim, out.q_bias));
  TRINE_TRY(binder.vector_if(config.qkv_bias, attn + "k_proj.bias", kv_dim, out.k_bias));
  TRINE_TRY(binder.vector_if(config.qkv_bias, attn + "v_proj.bias", kv_dim, out.v_bias));
  TRINE_TRY(binder.vector_if(config.output_bias, attn + "o_proj.bias", embed, out.o_bias));
  TRINE_TRY(binder.vector_if(config.qk_norm, attn + "q_norm.weight", config.head_dim, out.q_norm));
  return binder.vector_if(config.qk_norm, attn + "k_norm.weight", config.head_dim, out.k_norm);
}

// Of two plain matrices; a quantized one is its own.
bool same_matrix(const ops::WeightView& a, const ops::WeightView& b) {
  return a.data != nullptr && b.data != nullptr && a.dtype == b.dtype &&
         a.row_bytes == b.row_bytes &&
         std::memcmp(a.data, b.data, static_cast<std::size_t>(a.rows * a.row_bytes)) == 0;
}

// The output matrix: the embedding when the file says so and does not hold another one.
Status bind_output(TensorBinder& binder, const Checkpoint& checkpoint, ModelConfig& config,
                   DecoderWeights& weights) {
  const std::string name = binder.has_matrix("language_model.lm_head.weight")
                               ? "language_model.lm_head.weight"
                               : "lm_head.weight";
  if (!config.tied_embeddings || binder.has_matrix(name)) {
    TRINE_TRY(binder.vocabulary_matrix(name, config.vocab_size, config.embed_dim, weights.output));
  }
  if (!config.tied_embeddings) {
    return {};
  }
  const ops::WeightView& head = weights.output;
  const ops::WeightView& table = weights.embedding;
  if (head.bound() && table.bound()) {
    if (!same_matrix(head, table)) {
      log::warn(
          "{}: tie_word_embeddings is true, but {} differs from the embedding; the file's matrix "
          "is used",
          checkpoint.source(), name);
      config.tied_embeddings = false;
      return {};
    }
  }
  weights.output = table;
  return {};
}

}  // namespace

std::string_view hf_tensor_prefix(const Checkpoint& checkpoint) {
  for (const std::string_view prefix : kPrefixes) {
    // The last norm: no quantized checkpoint stores it in another way.
    if (checkpoint.find(std::string(prefix) + "norm.weight") != nullptr) {
      return prefix;
    }
  }
  return kPrefixes[0];
}

Result<DecoderWeights> bind_hf_weights(const Checkpoint& checkpoint, ModelConfig& config) {
  DecoderWeights weights;
  TensorBinder binder(checkpoint, weights,
                      config.quantization.has_value() ? &*config.quantization : nullptr);
  TRINE_TRY(binder.check_configured(
      "config.json has no quantization_config and there is no quantize_config.json beside it"));
  const std::string prefix(hf_tensor_prefix(checkpoint));
  const std::int64_t embed = config.embed_dim;
  TRINE_TRY(binder.vocabulary_matrix(prefix + "embed_tokens.weight", config.vocab_size, embed,
                                     weights.embedding));
  for (std::int32_t i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    const std::string name = fmt::format("{}layers.{}.", prefix, i);
    TRINE_TRY(binder.vector(name + "input_layernorm.weight", embed, layer.attn_norm));
    TRINE_TRY(bind_attention(binder, config, name, layer));
    // With norms on both sides the one after attention keeps its old name and the MLP's gets a new
    // one.
    const char* ffn_norm =
        config.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
    TRINE_TRY(binder.vector(name + ffn_norm, embed, layer.ffn_norm));
    if (config.post_norms) {
      TRINE_TRY(
          binder.vector(name + "post_attention_layernorm.weight", embed, layer.post_attn_norm));
      TRINE_TRY(
          binder.vector(name + "post_feedforward_layernorm.weight", embed, layer.post_ffn_norm));
    }
    if (config.layers[static_cast<std::size_t>(i)].moe) {
      TRINE_TRY(bind_experts(binder, config, name, layer));
    } else {
      TRINE_TRY(bind_mlp(binder, config, name, layer.mlp));
    }
    TRINE_TRY(binder.check_missing(true));
  }
  TRINE_TRY(binder.vector(prefix + "norm.weight", embed, weights.final_norm));
  TRINE_TRY(bind_output(binder, checkpoint, config, weights));
  TRINE_TRY(binder.check_missing());
  TRINE_TRY(binder.check_unused(config.quantization.has_value() ? allowed_unused_quantized
                                                                : allowed_unused));
  binder.log_quantized();
  return weights;
}

}  // namespace trine
