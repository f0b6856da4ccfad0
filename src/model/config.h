// What a decoder is, as data: dimensions, per-layer attention and rotary kinds, and the few
// switches in which the supported families differ. The forward pass reads this and nothing of the
// file it came from.
//
// Sources: config.json of a Hugging Face directory (config_hf.cpp) or the metadata of a GGUF file
// (config_gguf.cpp). docs/models.md lists the families, the keys and what is refused.
// Dimension letters as everywhere: E model dim, F ffn dim, H query heads, G kv heads, D head dim, V
// vocabulary. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/quant_config.h"
#include "ops/ops.h"

namespace trine {

// One set of rotary frequencies. A model has one, Gemma-3 has two (global and local layers).
struct RopeConfig {
  enum class Scaling : std::uint8_t {
    kNone,
    kLinear,  // all frequencies divided by `factor` (Chen et al. 2023)
    kLlama3,  // by wavelength: kept, divided or blended (Llama 3.1)
    kYarn,  // by rotations over the original context, with a temperature on q.k (Peng et al. 2023)
    kLongRope,  // searched divisors, one list for short and one for long contexts (Ding et al.
                // 2024)
  };
  Scaling scaling = Scaling::kNone;
  double base = 10000.0;
  std::int32_t rotary_dim = 0;        // even, <= D
  double factor = 1.0;                // kLinear, kLlama3, kYarn
  double attention_factor = 1.0;      // multiplies cos and sin; kYarn, kLongRope
  std::int32_t original_context = 0;  // kLlama3, kYarn, kLongRope
  double low_freq_factor = 1.0;       // kLlama3
  double high_freq_factor = 4.0;      // kLlama3
  double beta_fast = 32.0;            // kYarn
  double beta_slow = 1.0;             // kYarn
  bool truncate = true;               // kYarn: round the ramp's ends to whole dimensions
  std::vector<float> short_factors;   // kLongRope, rotary_dim / 2 values
  std::vector<float> long_factors;    // kLongRope, rotary_dim / 2 values
  // Divisors stored in the file (GGUF rope_freqs.weight), with kNone and kLinear. Empty, or one
  // value per angle.
  std::vector<float> freq_factors;
};

// The rotary_dim / 2 angles per position, in f32 steps as the reference implementation takes them.
// `context_length` decides between LongRoPE's two lists: the long one when it exceeds
// original_context (docs/adr/longrope-by-configured-context.md). Pure function.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int32_t context_length);

struct LayerConfig {
  std::int32_t window = 0;    // sliding window in tokens, 0 = all positions
  std::int32_t rope_idx = 0;  // into ModelConfig::ropes
  bool moe = false;           // a mixture of experts instead of one MLP
};

// Mixture of experts: softmax over all experts in f32, the `experts_per_token` largest (ties to the
// lower index), weights renormalised to sum 1 where the family says so.
struct MoeConfig {
  std::int32_t num_experts = 0;
  std::int32_t experts_per_token = 0;
  std::int32_t ffn_dim = 0;  // F of one expert
  bool normalize_top_k = true;
};

struct ModelConfig {
  std::string
      family;  // "llama", "mistral", "qwen2", "qwen3", "qwen3moe", "mixtral", "gemma3", "phi3"
  std::int32_t vocab_size = 0;  // V
  std::int32_t embed_dim = 0;   // E
  std::int32_t ffn_dim = 0;     // F of dense layers; 0 when every layer is MoE
  std::int32_t num_layers = 0;
  std::int32_t num_heads = 0;     // H
  std::int32_t num_kv_heads = 0;  // G, divides H
  std::int32_t head_dim = 0;      // D, of keys and values
  std::int32_t context_length =
      0;  // tokens a sequence may have: the file's, or less by LoadOptions

  float norm_eps = 1e-5F;
  float norm_weight_offset = 0.0F;  // 1 where the file stores w and the norm multiplies by 1 + w
  ops::Activation activation = ops::Activation::kSilu;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm over D of every query and key head, before RoPE
  bool post_norms =
      false;  // norms after attention and MLP as well, before the residual addition (Gemma-3)
  float embed_scale = 1.0F;
  float attention_scale = 1.0F;  // multiplies q.k
  float final_softcap = 0.0F;    // c * tanh(logit / c); 0 = none
  bool tied_embeddings = false;  // the output matrix is the embedding table

  ops::RopeLayout rope_layout = ops::RopeLayout::kHalf;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
  std::optional<MoeConfig> moe;
  std::vector<std::int32_t> eos_ids;  // as the model file names them; may be empty
  std::int32_t bos_id = -1;           // -1: none named
  // How the file's quantized matrices are stored, as far as their types do not say it.
  std::optional<QuantConfig> quantization;
};

}  // namespace trine
