// Reads config.json of a Hugging Face model directory: the hub's spelling (rope_theta +
// rope_scaling, torch_dtype, sliding_window_pattern) and that of transformers 5 (rope_parameters,
// also per layer type; dtype; layer_types). The result holds the file's values with the family's
// defaults filled in, types and ranges checked; what they mean for the computation is the business
// of model/config.h.
//
// Untrusted input. Errors: corrupt_data for bad JSON, types, ranges and contradictions; unsupported
// for keys and values that would change the result in a way this engine does not compute. Each
// names key, value and limit. A key nobody knows with a value that says something gives a warning
// in the log; the lists are in docs/models.md. Thread rule: pure function apart from the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/quant_config.h"

namespace trine {

// Rotary parameters of one kind of layer.
struct HfRope {
  std::string type = "default";  // default, linear, llama3, yarn, longrope
  double theta = 10000.0;
  double factor = 1.0;  // linear, llama3, yarn; longrope: > 0 when the file has one
  std::optional<double> attention_factor;  // yarn, longrope
  std::int64_t original_context = 0;       // llama3, yarn, longrope
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn
  std::vector<double> short_factor;        // longrope
  std::vector<double> long_factor;         // longrope
  double partial_rotary_factor = 1.0;
  bool has_factor = false;
  bool operator==(const HfRope&) const = default;
};

struct HfConfig {
  // As the file says, or "gemma3_text" for the text part of a "gemma3" file.
  std::string model_type;
  bool nested_text =
      false;  // the values came from text_config; other parts of the model are not for us
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t context_length = 0;  // max_position_embeddings
  std::string activation;           // hidden_act / hidden_activation
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  // Per layer: true for a sliding window of `sliding_window` tokens.
  std::vector<bool> sliding;
  std::int64_t sliding_window = 0;  // 0: none
  HfRope rope;                      // of full-attention layers
  HfRope rope_sliding;  // of sliding layers; equal to `rope` where the family has one kind
  double query_pre_attn_scalar = 0.0;  // Gemma-3; 0: not a key of this family
  double final_logit_softcapping = 0.0;
  // Mixture of experts; num_experts = 0: dense.
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = true;
  std::vector<bool> moe_layer;  // per layer; empty when dense
  std::int64_t bos_token_id = -1;
  std::vector<std::int64_t> eos_token_ids;
  std::optional<QuantConfig> quantization;  // quantization_config, compression_config
};

// Limits far above any released model of these families and far below what could overflow a size.
inline constexpr std::int64_t kMaxHfDim = std::int64_t{1}
                                          << 20;  // hidden, intermediate, heads * head_dim
inline constexpr std::int64_t kMaxHfVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxHfLayers = 1024;
inline constexpr std::int64_t kMaxHfHeads = 4096;
inline constexpr std::int64_t kMaxHfHeadDim = 1024;
inline constexpr std::int64_t kMaxHfContext = std::int64_t{1} << 27;
inline constexpr std::int64_t kMaxHfExperts = 4096;

Result<HfConfig> parse_hf_config(std::string_view json_text);

}  // namespace trine
