#include "format/hf_config_keys.h"

#include <algorithm>
#include <iterator>

namespace trine::hf {
namespace {

constexpr RefusedKey kRefused[] = {
    // other kinds of attention and masks
    {"attention_chunk_size", "chunked attention"},
    {"attn_logit_softcapping", "a cap on attention scores"},
    {"alibi", "a linear position bias"},
    {"use_alibi", "a linear position bias"},
    {"multi_query", "the multi-query switch"},
    {"use_bidirectional_attention", "attention to later tokens"},
    {"clip_qkv", "clipping of queries and keys"},
    {"attn_temperature_tuning", "position-dependent attention temperature"},
    {"attn_output_gate", "a gate on the attention output"},
    {"no_rope_layers", "layers without rotary positions"},
    {"no_rope_layer_interval", "layers without rotary positions"},
    {"nope_layer_interval", "layers without rotary positions"},
    {"use_qk_norm", "this kind of query and key norm"},
    {"qk_layernorm", "this kind of query and key norm"},
    {"rope_interleaved", "interleaved rotary order"},
    {"num_kv_shared_layers", "keys and values shared between layers"},
    {"cross_attention_layers", "cross attention"},
    {"add_cross_attention", "cross attention"},
    {"is_encoder_decoder", "an encoder"},
    {"pruned_heads", "head pruning"},
    {"kv_lora_rank", "multi-head latent attention"},
    {"q_lora_rank", "multi-head latent attention"},
    {"qk_rope_head_dim", "multi-head latent attention"},
    {"qk_nope_head_dim", "multi-head latent attention"},
    {"v_head_dim", "a value dimension of its own"},
    {"index_topk", "sparse attention by an indexer"},
    {"attention_sinks", "attention sinks"},
    {"use_attention_sinks", "attention sinks"},
    // residual structure and scales
    {"parallel_attn", "the parallel residual"},
    {"use_parallel_residual", "the parallel residual"},
    {"new_decoder_architecture", "this decoder block"},
    {"logit_scale", "a scale on logits", true},
    {"logits_scaling", "a scale on logits", true},
    {"embedding_multiplier", "a scale on embeddings", true},
    {"residual_multiplier", "a scale on the residual", true},
    {"attention_multiplier", "a scale on attention"},
    {"scale_emb", "a scale on embeddings", true},
    {"scale_depth", "a scale on the residual"},
    {"dim_model_base", "a scale on logits"},
    {"hidden_size_per_layer_input", "per-layer embeddings"},
    {"altup_num_inputs", "alternating updates"},
    {"block_configs", "blocks that differ in shape"},
    {"layer_norm_eps", "layer norm"},
    // mixtures of experts of other families
    {"n_shared_experts", "shared experts"},
    {"num_shared_experts", "shared experts"},
    {"shared_expert_intermediate_size", "shared experts"},
    {"n_routed_experts", "this kind of routing"},
    {"first_k_dense_replace", "this kind of routing"},
    {"moe_layer_freq", "this kind of routing"},
    {"n_group", "grouped routing", true},
    {"topk_group", "grouped routing", true},
    {"scoring_func", "this kind of routing"},
    {"topk_method", "this kind of routing"},
    {"routed_scaling_factor", "a scale on routed experts", true},
    {"moe_layers", "this kind of routing"},
    {"interleave_moe_layer_step", "this kind of routing", true},
    // stored in another form, or with more heads
    {"quantization", "a quantized checkpoint of this kind"},
    {"num_nextn_predict_layers", "a multi-token head"},
    {"ssm_cfg", "a state-space layer"},
    {"mamba_d_state", "a state-space layer"},
    {"full_attention_interval", "linear attention"},
    {"linear_num_key_heads", "linear attention"},
};

constexpr std::string_view kRead[] = {
    "model_type",
    "architectures",
    "text_config",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "hidden_act",
    "hidden_activation",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "layer_types",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "query_pre_attn_scalar",
    "final_logit_softcapping",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "bos_token_id",
    "eos_token_id",
    "quantization_config",
    "compression_config",
};

// Notes about the file, training, other parts of a multimodal model, and defaults of generation.
constexpr std::string_view kHarmless[] = {
    "_name_or_path",
    "name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "pad_token_id",
    "sep_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "pretraining_tp",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "auto_map",
    "cache_implementation",
    "id2label",
    "label2id",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "task_specific_params",
    "finetuning_task",
    "chunk_size_feed_forward",
    "is_decoder",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "prefix",
    "tokenizer_class",
    "tie_encoder_decoder",
    "cross_attention_hidden_size",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "unsloth_version",
    "unsloth_fixed",
    "model_name",
    "vision_config",
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "image_token_id",
    "boi_token_id",
    "eoi_token_id",
    "mm_tokens_per_image",
    "transformers.js_config",
    "z_loss_coefficient",
    "is_llama_config",
};

constexpr std::string_view kRope[] = {
    "type",
    "rope_type",
    "rope_theta",
    "factor",
    "attention_factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "short_factor",
    "long_factor",
    "partial_rotary_factor",
    "finetuned",
};

template <typename List>
bool has(const List& list, std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

const RefusedKey* find_refused(std::string_view key) {
  const auto* it = std::find_if(std::begin(kRefused), std::end(kRefused),
                                [key](const RefusedKey& entry) { return entry.key == key; });
  return it == std::end(kRefused) ? nullptr : it;
}

bool is_read(std::string_view key) {
  return has(kRead, key);
}

bool is_harmless(std::string_view key) {
  return has(kHarmless, key);
}

bool is_rope_key(std::string_view key) {
  return has(kRope, key);
}

}  // namespace trine::hf
