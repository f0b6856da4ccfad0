// GGUF metadata -> ModelConfig. Key names: the GGUF document of the ggml project.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/printable.h"
#include "model/config_sources.h"
#include "model/weights.h"

namespace trine {
namespace {

struct Architecture {
  std::string_view name;
  std::string_view family;
  ops::RopeLayout layout;
  bool qk_norm;
};

// Converters permute the query and key rows of the llama architecture, so that RoPE's pairs are
// neighbours.
constexpr Architecture kArchitectures[] = {
    {"llama", "llama", ops::RopeLayout::kInterleaved, false},
    {"qwen2", "qwen2", ops::RopeLayout::kHalf, false},
    {"qwen3", "qwen3", ops::RopeLayout::kHalf, true},
    {"qwen3moe", "qwen3moe", ops::RopeLayout::kHalf, true},
    {"gemma3", "gemma3", ops::RopeLayout::kHalf, true},
    {"phi3", "phi3", ops::RopeLayout::kHalf, false},
};

// Keys under the architecture's prefix that are read below.
constexpr std::string_view kRead[] = {
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "expert_feed_forward_length",
    "expert_count",
    "expert_used_count",
    "expert_gating_func",
    "expert_weights_norm",
    "expert_weights_scale",
    "final_logit_softcapping",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.causal",
    "attention.scale",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    // notes without an effect on the text model
    "tensor_data_layout",
    "attention.layer_norm_epsilon",
    "mm.tokens_per_image",
};

// Keys that mean another computation unless they are 0, false or empty.
struct RefusedKey {
  std::string_view key;
  std::string_view what;
};

constexpr RefusedKey kRefused[] = {
    {"expert_shared_count", "shared experts"},
    {"expert_shared_feed_forward_length", "shared experts"},
    {"expert_group_count", "grouped routing"},
    {"expert_group_used_count", "grouped routing"},
    {"leading_dense_block_count", "dense layers before the mixtures of experts"},
    {"moe_every_n_layers", "this placement of experts"},
    {"interleave_moe_layer_step", "this placement of experts"},
    {"nextn_predict_layers", "a multi-token head"},
    {"use_parallel_residual", "the parallel residual"},
    {"logit_scale", "a scale on logits"},
    {"residual_scale", "a scale on the residual"},
    {"embedding_scale", "a scale on embeddings"},
    {"attn_logit_softcapping", "a cap on attention scores"},
    {"router_logit_softcapping", "a cap on router scores"},
    {"attention.max_alibi_bias", "a linear position bias"},
    {"attention.clamp_kqv", "clipping of queries and keys"},
    {"attention.q_lora_rank", "multi-head latent attention"},
    {"attention.kv_lora_rank", "multi-head latent attention"},
    {"attention.key_length_mla", "multi-head latent attention"},
    {"attention.value_length_mla", "multi-head latent attention"},
    {"attention.key_length_swa", "head sizes that differ between layers"},
    {"attention.value_length_swa", "head sizes that differ between layers"},
    {"attention.shared_kv_layers", "keys and values shared between layers"},
    {"attention.temperature_scale", "position-dependent attention temperature"},
    {"attention.temperature_length", "position-dependent attention temperature"},
    {"attention.output_scale", "a scale on the attention output"},
    {"rope.dimension_sections", "multi-axis rotary positions"},
    {"rope.dimension_count_swa", "rotary sizes that differ between layers"},
    {"rope.scaling.alpha", "NTK scaling"},
    {"pooling_type", "pooling"},
    {"embedding_length_per_layer_input", "per-layer embeddings"},
    {"full_attention_interval", "linear attention"},
};

bool says_nothing(const GgufValue& value) {
  return std::visit(
      [](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return held.empty();
        } else if constexpr (std::is_same_v<T, GgufArray>) {
          return gguf_array_size(held) == 0;
        } else {
          return held == T{};
        }
      },
      value);
}

// Reads keys under the architecture's prefix; the first error sticks.
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(fmt::format("{}.", architecture)) {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }

  bool has(std::string_view key) const { return metadata_.has(name(key)); }

  std::int32_t integer(std::string_view key, std::optional<std::int64_t> fallback, std::int64_t low,
                       std::int64_t high) {
    if (!has(key) && fallback.has_value()) {
      return static_cast<std::int32_t>(*fallback);
    }
    return ranged(key, metadata_.get_int(name(key)), low, high);
  }

  // A number, or an array with one number per layer that are all the same.
  std::int32_t uniform_integer(std::string_view key, std::optional<std::int64_t> fallback,
                               std::int64_t low, std::int64_t high) {
    const GgufValue* value = metadata_.find(name(key));
    if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) {
      return integer(key, fallback, low, high);
    }
    const auto list = metadata_.get_int_array(name(key));
    if (!list.has_value()) {
      set(list.error());
      return static_cast<std::int32_t>(low);
    }
    if (list->empty() ||
        std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
      set(Error{ErrorCode::kUnsupported,
                fmt::format("metadata key {}: layers that differ are not supported", name(key))});
      return static_cast<std::int32_t>(low);
    }
    return ranged(key, list->front(), low, high);
  }

  double number(std::string_view key, std::optional<double> fallback, double low, double high) {
    if (!has(key) && fallback.has_value()) {
      return *fallback;
    }
    const auto value = metadata_.get_float(name(key));
    if (!value.has_value()) {
      set(value.error());
      return low;
    }
    if (!(*value >= low && *value <= high)) {
      set(Error{ErrorCode::kCorruptData, fmt::format("metadata key {} = {}: must lie in {}..{}",
                                                     name(key), *value, low, high)});
      return low;
    }
    return *value;
  }

  std::string text(std::string_view key, std::string_view fallback) {
    if (!has(key)) {
      return std::string(fallback);
    }
    const auto value = metadata_.get_string(name(key));
    if (!value.has_value()) {
      set(value.error());
      return std::string(fallback);
    }
    return std::string(*value);
  }

  void set(Error error) {
    if (status_.has_value()) {
      status_ = tl::unexpected<Error>(std::move(error));
    }
  }

  Status status() const { return status_; }

  const GgufMetadata& metadata() const { return metadata_; }

  const std::string& prefix() const { return prefix_; }

 private:
  std::int32_t ranged(std::string_view key, const Result<std::int64_t>& value, std::int64_t low,
                      std::int64_t high) {
    if (!value.has_value()) {
      set(value.error());
      return static_cast<std::int32_t>(low);
    }
    if (*value < low || *value > high) {
      set(Error{ErrorCode::kCorruptData, fmt::format("metadata key {} = {}: must lie in {}..{}",
                                                     name(key), *value, low, high)});
      return static_cast<std::int32_t>(low);
    }
    return static_cast<std::int32_t>(*value);
  }

  const GgufMetadata& metadata_;
  std::string prefix_;
  Status status_;
};

Status check_keys(const Keys& keys) {
  for (const auto& [key, value] : keys.metadata().pairs()) {
    if (!std::string_view(key).starts_with(keys.prefix()) || says_nothing(value)) {
      continue;
    }
    const std::string_view rest = std::string_view(key).substr(keys.prefix().size());
    const auto* refused =
        std::find_if(std::begin(kRefused), std::end(kRefused),
                     [rest](const RefusedKey& entry) { return entry.key == rest; });
    if (refused != std::end(kRefused)) {
      return fail(ErrorCode::kUnsupported, "metadata key {}: {} is not supported", printable(key),
                  refused->what);
    }
    if (std::find(std::begin(kRead), std::end(kRead), rest) == std::end(kRead)) {
      log::warn("GGUF metadata key {} is not known and is ignored", printable(key));
    }
  }
  return {};
}

// Divisors of the rotary frequencies that a file stores as a tensor; empty when it does not.
Result<std::vector<float>> factor_tensor(const Checkpoint& checkpoint, std::string_view name,
                                         std::int64_t count) {
  const TensorInfo* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    return std::vector<float>{};
  }
  TRINE_TRY_ASSIGN(std::vector<float> factors, read_float_vector(*tensor, count));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0F && factors[i] <= 1e6F)) {
      return fail(ErrorCode::kCorruptData, "tensor {}: value {} at index {} must lie in (0, 1e6]",
                  name, factors[i], i);
    }
  }
  return factors;
}

Result<RopeConfig> read_rope(Keys& keys, const Checkpoint& checkpoint, const ModelConfig& config) {
  RopeConfig rope;
  rope.base = keys.number("rope.freq_base", 10000.0, 1.0, 1e12);
  rope.rotary_dim = keys.integer("rope.dimension_count", config.head_dim, 2, config.head_dim);
  const double old_linear = keys.number("rope.scale_linear", 1.0, 1e-3, 1e6);
  // A factor alone means linear scaling, as in llama.cpp.
  const bool has_factor = old_linear != 1.0 || keys.has("rope.scaling.factor");
  const std::string type = keys.text("rope.scaling.type", has_factor ? "linear" : "none");
  rope.factor = keys.number("rope.scaling.factor", old_linear, 0.0, 1e6);
  if (rope.factor == 0.0) {
    rope.factor = 1.0;
  }
  rope.original_context =
      keys.integer("rope.scaling.original_context_length", config.context_length, 2, kMaxHfContext);
  rope.attention_factor = keys.number("rope.scaling.attn_factor", 1.0, 1e-6, 1e6);
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0, 1e-6, 1e6);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0, 1e-6, 1e6);
  const double yarn_ext = keys.number("rope.scaling.yarn_ext_factor", 1.0, -1.0, 1e6);
  const double yarn_attn = keys.number("rope.scaling.yarn_attn_factor", 1.0, 1e-6, 1e6);
  const double yarn_log = keys.number("rope.scaling.yarn_log_multiplier", 0.0, -1e6, 1e6);
  TRINE_TRY(keys.status());
  if (rope.rotary_dim % 2 != 0) {
    return fail(ErrorCode::kCorruptData, "metadata key {} = {}: must be even",
                keys.name("rope.dimension_count"), rope.rotary_dim);
  }
  const std::int64_t half = rope.rotary_dim / 2;
  TRINE_TRY_ASSIGN(rope.freq_factors, factor_tensor(checkpoint, "rope_freqs.weight", half));
  TRINE_TRY_ASSIGN(rope.long_factors, factor_tensor(checkpoint, "rope_factors_long.weight", half));
  TRINE_TRY_ASSIGN(rope.short_factors,
                   factor_tensor(checkpoint, "rope_factors_short.weight", half));
  const bool has_lists = !rope.long_factors.empty() && !rope.short_factors.empty();
  if (rope.long_factors.empty() != rope.short_factors.empty()) {
    return fail(ErrorCode::kCorruptData,
                "tensors rope_factors_long.weight and rope_factors_short.weight: one is missing");
  }
  if (type == "yarn") {
    if (yarn_ext != 1.0 && yarn_ext != -1.0) {
      return fail(ErrorCode::kUnsupported, "metadata key {} = {}: only 1 is supported",
                  keys.name("rope.scaling.yarn_ext_factor"), yarn_ext);
    }
    if (yarn_log != 0.0 || yarn_attn != 1.0) {
      return fail(ErrorCode::kUnsupported, "metadata keys {} = {} and {} = {} are not supported",
                  keys.name("rope.scaling.yarn_log_multiplier"), yarn_log,
                  keys.name("rope.scaling.yarn_attn_factor"), yarn_attn);
    }
    if (rope.base <= 1.0) {
      return fail(ErrorCode::kCorruptData, "metadata key {} = {}: must be above 1 for yarn",
                  keys.name("rope.freq_base"), rope.base);
    }
    rope.scaling = RopeConfig::Scaling::kYarn;
    rope.attention_factor *= yarn_attention_factor(rope.factor);
  } else if (type == "longrope" || has_lists) {
    if (!has_lists) {
      return fail(ErrorCode::kCorruptData,
                  "metadata key {} = longrope, but tensor rope_factors_long.weight is missing",
                  keys.name("rope.scaling.type"));
    }
    rope.scaling = RopeConfig::Scaling::kLongRope;
  } else if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type != "none") {
    return fail(ErrorCode::kUnsupported,
                "metadata key {} = \"{}\": supported are none, linear, yarn and longrope",
                keys.name("rope.scaling.type"), printable(type, 60));
  }
  if (!rope.freq_factors.empty() && rope.scaling != RopeConfig::Scaling::kNone &&
      rope.scaling != RopeConfig::Scaling::kLinear) {
    return fail(ErrorCode::kUnsupported,
                "tensor rope_freqs.weight together with rope scaling type {}", type);
  }
  return rope;
}

Status read_moe(Keys& keys, ModelConfig& config) {
  const std::int32_t experts = keys.integer("expert_count", 0, 0, kMaxHfExperts);
  if (experts == 0) {
    if (config.family == "qwen3moe") {
      return fail(ErrorCode::kCorruptData, "metadata key {} is missing", keys.name("expert_count"));
    }
    return keys.status();
  }
  if (config.family != "llama" && config.family != "qwen3moe") {
    return fail(ErrorCode::kUnsupported, "metadata key {} = {}: not supported for architecture {}",
                keys.name("expert_count"), experts, config.family);
  }
  if (config.family == "llama") {
    config.family = "mixtral";
  }
  MoeConfig moe;
  moe.num_experts = experts;
  moe.experts_per_token = keys.integer("expert_used_count", std::nullopt, 1, experts);
  moe.ffn_dim = keys.integer("expert_feed_forward_length", config.ffn_dim, 1, kMaxHfDim);
  const std::int32_t gating = keys.integer("expert_gating_func", 1, 0, 100);
  const double scale = keys.number("expert_weights_scale", 0.0, -1e6, 1e6);
  TRINE_TRY(keys.status());
  if (gating > 1) {
    return fail(ErrorCode::kUnsupported, "metadata key {} = {}: only softmax (1) is supported",
                keys.name("expert_gating_func"), gating);
  }
  if (scale != 0.0 && scale != 1.0) {
    return fail(ErrorCode::kUnsupported, "metadata key {} = {}: only 1 is supported",
                keys.name("expert_weights_scale"), scale);
  }
  if (keys.has("expert_weights_norm")) {
    TRINE_TRY_ASSIGN(moe.normalize_top_k,
                     keys.metadata().get_bool(keys.name("expert_weights_norm")));
  }
  config.moe = moe;
  return {};
}

// Sliding windows: Gemma-3 has one full layer after every `pattern - 1` local ones, Phi-3 the same
// for all layers.
Status read_windows(Keys& keys, ModelConfig& config) {
  const std::int32_t window = keys.integer("attention.sliding_window", 0, 0, kMaxHfContext);
  TRINE_TRY(keys.status());
  const bool gemma = config.family == "gemma3";
  // Gemma's local layers differ by more than the window.
  if (window == 0 || (!gemma && window >= config.context_length)) {
    return {};
  }
  if (!gemma && config.family != "phi3") {
    return fail(ErrorCode::kUnsupported,
                "metadata key {} = {}: not supported for this architecture",
                keys.name("attention.sliding_window"), window);
  }
  const GgufValue* pattern = keys.metadata().find(keys.name("attention.sliding_window_pattern"));
  if (pattern != nullptr && std::holds_alternative<GgufArray>(*pattern)) {
    TRINE_TRY_ASSIGN(
        const std::vector<bool>* flags,
        keys.metadata().get_array<bool>(keys.name("attention.sliding_window_pattern"),
                                        static_cast<std::uint64_t>(config.num_layers)));
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
      config.layers[i].window = (*flags)[i] ? window : 0;
    }
    return {};
  }
  const std::int32_t period =
      keys.integer("attention.sliding_window_pattern", gemma ? 6 : 0, 0, kMaxHfLayers);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool full = period > 0 && (static_cast<std::int32_t>(i) + 1) % period == 0;
    config.layers[i].window = full ? 0 : window;
  }
  return keys.status();
}

Status read_dims(Keys& keys, const Checkpoint& checkpoint, ModelConfig& config) {
  config.embed_dim = keys.integer("embedding_length", std::nullopt, 1, kMaxHfDim);
  config.num_layers = keys.integer("block_count", std::nullopt, 1, kMaxHfLayers);
  config.ffn_dim = keys.uniform_integer(
      "feed_forward_length",
      config.family == "qwen3moe" ? std::optional<std::int64_t>(0) : std::nullopt, 0, kMaxHfDim);
  config.num_heads = keys.uniform_integer("attention.head_count", std::nullopt, 1, kMaxHfHeads);
  config.context_length = keys.integer("context_length", std::nullopt, 1, kMaxHfContext);
  config.norm_eps =
      static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", std::nullopt, 0.0, 1.0));
  TRINE_TRY(keys.status());
  config.num_kv_heads =
      keys.uniform_integer("attention.head_count_kv", config.num_heads, 1, kMaxHfHeads);
  if (!keys.has("attention.key_length") && config.embed_dim % config.num_heads != 0) {
    return fail(ErrorCode::kCorruptData,
                "metadata key {} = {}: must divide {} = {} when no key_length is given",
                keys.name("attention.head_count"), config.num_heads, keys.name("embedding_length"),
                config.embed_dim);
  }
  config.head_dim =
      keys.integer("attention.key_length", config.embed_dim / config.num_heads, 1, kMaxHfHeadDim);
  const std::int32_t value_dim =
      keys.integer("attention.value_length", config.head_dim, 1, kMaxHfHeadDim);
  TRINE_TRY(keys.status());
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail(ErrorCode::kCorruptData, "metadata key {} = {}: must divide {} = {}",
                keys.name("attention.head_count_kv"), config.num_kv_heads,
                keys.name("attention.head_count"), config.num_heads);
  }
  if (value_dim != config.head_dim) {
    return fail(ErrorCode::kUnsupported, "metadata key {} = {}: must equal the key length {}",
                keys.name("attention.value_length"), value_dim, config.head_dim);
  }
  if (config.head_dim > kMaxHfHeadDim ||
      std::int64_t{config.num_heads} * config.head_dim > kMaxHfDim) {
    return fail(ErrorCode::kUnsupported,
                "{} heads of {} dimensions: at most {} dimensions each and {} in all",
                config.num_heads, config.head_dim, kMaxHfHeadDim, kMaxHfDim);
  }
  const TensorInfo* table = checkpoint.find("token_embd.weight_packed");
  if (table == nullptr) {
    TRINE_TRY_ASSIGN(table, checkpoint.require("token_embd.weight"));
  }
  if (table->shape.size() != 2 || table->shape[0] < 1 || table->shape[0] > kMaxHfVocab) {
    return fail(ErrorCode::kCorruptData,
                "tensor {} has shape {}: must be a row for each of 1..{} tokens", table->name,
                shape_text(table->shape), kMaxHfVocab);
  }
  config.vocab_size = static_cast<std::int32_t>(table->shape[0]);
  const std::int32_t stated = keys.integer("vocab_size", config.vocab_size, 1, kMaxHfVocab);
  TRINE_TRY(keys.status());
  if (stated != config.vocab_size) {
    return fail(ErrorCode::kCorruptData, "metadata key {} = {}, but the embedding has {} rows",
                keys.name("vocab_size"), stated, config.vocab_size);
  }
  return {};
}

// Gemma-3: scaled embeddings, norms on both sides, other frequencies for local layers. The files
// hold 1 + w.
Status apply_gemma(Keys& keys, ModelConfig& config) {
  config.activation = ops::Activation::kGeluTanh;
  config.post_norms = true;
  config.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(config.embed_dim)));
  config.final_softcap = static_cast<float>(keys.number("final_logit_softcapping", 0.0, 0.0, 1e9));
  // The 27B model alone divides by its width per head; the file does not say so.
  if (config.num_layers == 62 && !keys.has("attention.scale")) {
    config.attention_scale = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(config.embed_dim) / config.num_heads));
  }
  RopeConfig local;
  local.base = keys.number("rope.freq_base_swa", 10000.0, 1.0, 1e12);
  local.rotary_dim = config.ropes[0].rotary_dim;
  config.ropes.push_back(local);
  for (LayerConfig& layer : config.layers) {
    layer.rope_idx = layer.window > 0 ? 1 : 0;
  }
  return keys.status();
}

// -1: the file names none, or by one of the two values that some converters write for it.
Result<std::int32_t> special_id(const GgufMetadata& metadata, std::string_view key,
                                std::int32_t vocab_size) {
  if (!metadata.has(key)) {
    return -1;
  }
  TRINE_TRY_ASSIGN(const std::int64_t id, metadata.get_int(key));
  if (id == -1 || id == std::numeric_limits<std::uint32_t>::max()) {
    return -1;
  }
  if (id < 0 || id >= vocab_size) {
    return fail(ErrorCode::kCorruptData,
                "metadata key {} = {}: not in the vocabulary of {} tokens, [0, {})", key, id,
                vocab_size, vocab_size);
  }
  return static_cast<std::int32_t>(id);
}

Status read_special_ids(const GgufMetadata& metadata, ModelConfig& config) {
  TRINE_TRY_ASSIGN(config.bos_id,
                   special_id(metadata, "tokenizer.ggml.bos_token_id", config.vocab_size));
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    TRINE_TRY_ASSIGN(const std::int32_t value, special_id(metadata, key, config.vocab_size));
    if (value >= 0 &&
        std::find(config.eos_ids.begin(), config.eos_ids.end(), value) == config.eos_ids.end()) {
      config.eos_ids.push_back(value);
    }
  }
  return {};
}

}  // namespace

Result<ModelConfig> model_config_from_gguf(const GgufFile& file) {
  TRINE_TRY_ASSIGN(const std::string_view name, file.metadata.get_string("general.architecture"));
  const auto* architecture =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [name](const Architecture& entry) { return entry.name == name; });
  if (architecture == std::end(kArchitectures)) {
    return fail(ErrorCode::kUnsupported,
                "metadata key general.architecture = \"{}\": supported are llama (also Mistral and "
                "Mixtral), qwen2, "
                "qwen3, qwen3moe, gemma3 and phi3",
                printable(name, 60));
  }
  Keys keys(file.metadata, name);
  TRINE_TRY(check_keys(keys));
  if (keys.has("attention.causal")) {
    TRINE_TRY_ASSIGN(const bool causal, file.metadata.get_bool(keys.name("attention.causal")));
    if (!causal) {
      return fail(ErrorCode::kUnsupported,
                  "metadata key {} = false: attention to later tokens is not supported",
                  keys.name("attention.causal"));
    }
  }
  ModelConfig config;
  config.family = architecture->family;
  config.rope_layout = architecture->layout;
  config.qk_norm = architecture->qk_norm;
  TRINE_TRY(read_dims(keys, file.checkpoint, config));
  const double head_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const double scale = keys.number("attention.scale", 0.0, 0.0, 1e6);
  config.attention_scale = static_cast<float>(scale == 0.0 ? head_scale : scale);
  TRINE_TRY(read_moe(keys, config));
  config.layers.resize(static_cast<std::size_t>(config.num_layers));
  for (LayerConfig& layer : config.layers) {
    layer.moe = config.moe.has_value();
  }
  if (!config.moe.has_value() && config.ffn_dim == 0) {
    return fail(ErrorCode::kCorruptData, "metadata key {} = 0: must be positive",
                keys.name("feed_forward_length"));
  }
  TRINE_TRY_ASSIGN(RopeConfig rope, read_rope(keys, file.checkpoint, config));
  config.ropes.push_back(std::move(rope));
  TRINE_TRY(read_windows(keys, config));
  if (config.family == "gemma3") {
    TRINE_TRY(apply_gemma(keys, config));
  } else if (keys.number("final_logit_softcapping", 0.0, -1e9, 1e9) != 0.0) {
    return fail(ErrorCode::kUnsupported,
                "metadata key {}: a cap on logits is not supported for this architecture",
                keys.name("final_logit_softcapping"));
  }
  TRINE_TRY(keys.status());
  TRINE_TRY(read_special_ids(file.metadata, config));
  if (file.metadata.has(kGgufQuantizationKey)) {
    TRINE_TRY_ASSIGN(const std::string_view text, file.metadata.get_string(kGgufQuantizationKey));
    TRINE_TRY_ASSIGN(config.quantization, parse_gguf_quant_config(text, kGgufQuantizationKey));
  }
  return config;
}

}  // namespace trine
