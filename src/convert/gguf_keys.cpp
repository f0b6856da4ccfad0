#include "convert/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "model/config_sources.h"

namespace trine {
namespace {

// Pairs under the architecture's prefix.
class Keys {
 public:
  Keys(std::string_view architecture, GgufPairs& out) : prefix_(architecture), out_(out) {
    prefix_ += '.';
  }

  void integer(std::string_view key, std::int64_t value) {
    out_.emplace_back(prefix_ + std::string(key), static_cast<std::uint32_t>(value));
  }

  void number(std::string_view key, double value) {
    out_.emplace_back(prefix_ + std::string(key), static_cast<float>(value));
  }

  void value(std::string_view key, GgufValue value) {
    out_.emplace_back(prefix_ + std::string(key), std::move(value));
  }

 private:
  std::string prefix_;
  GgufPairs& out_;
};

void add_rope(Keys& keys, const RopeConfig& rope, std::string_view architecture,
              std::vector<std::string>& notes) {
  keys.integer("rope.dimension_count", rope.rotary_dim);
  keys.number("rope.freq_base", rope.base);
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      break;
    case RopeConfig::Scaling::kLinear:
      keys.value("rope.scaling.type", std::string("linear"));
      keys.number("rope.scaling.factor", rope.factor);
      break;
    case RopeConfig::Scaling::kLlama3:  // a tensor says it
      if (architecture != "llama") {
        notes.push_back(
            fmt::format("llama.cpp reads Llama 3's frequency factors in its llama architecture "
                        "only and refuses "
                        "the tensor rope_freqs.weight in {}",
                        architecture));
      }
      break;
    case RopeConfig::Scaling::kYarn: {
      keys.value("rope.scaling.type", std::string("yarn"));
      keys.number("rope.scaling.factor", rope.factor);
      keys.integer("rope.scaling.original_context_length", rope.original_context);
      // Readers compute the usual factor from `factor` and multiply this one in.
      const double usual = yarn_attention_factor(rope.factor);
      if (std::fabs(rope.attention_factor / usual - 1.0) > 1e-9) {
        keys.number("rope.scaling.attn_factor", rope.attention_factor / usual);
      }
      if (rope.beta_fast != 32.0 || rope.beta_slow != 1.0) {
        keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
        keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
      }
      break;
    }
    case RopeConfig::Scaling::kLongRope:
      keys.value("rope.scaling.type", std::string("longrope"));
      keys.integer("rope.scaling.original_context_length", rope.original_context);
      keys.number("rope.scaling.attn_factor", rope.attention_factor);
      break;
  }
}

void add_windows(Keys& keys, std::string_view architecture, const ModelConfig& config,
                 std::vector<std::string>& notes) {
  std::int64_t window = 0;
  std::vector<bool> local;
  for (const LayerConfig& layer : config.layers) {
    local.push_back(layer.window > 0);
    window = std::max<std::int64_t>(window, layer.window);
  }
  if (architecture == "phi3") {
    // llama.cpp's own files have the key always.
    keys.integer("attention.sliding_window", window);
    if (window > 0 && window < config.context_length) {
      notes.push_back(
          fmt::format("llama.cpp ignores the sliding window of {} tokens in phi3", window));
    }
  } else if (architecture == "gemma3" && window > 0) {
    keys.integer("attention.sliding_window", window);
    keys.value("attention.sliding_window_pattern", GgufArray(local));
    keys.number("rope.freq_base_swa", config.ropes.back().base);
  }
}

// Gemma-3 scales q.k by a number of its own; llama.cpp knows two rules for it and no key.
void add_gemma(Keys& keys, const ModelConfig& config, std::vector<std::string>& notes) {
  const double by_width = 1.0 / std::sqrt(static_cast<double>(config.embed_dim) / config.num_heads);
  const double by_head = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const double usual = config.num_layers == 62 ? by_width : by_head;
  if (config.attention_scale != static_cast<float>(usual)) {
    keys.number("attention.scale", static_cast<double>(config.attention_scale));
    notes.push_back(fmt::format(
        "llama.cpp scales attention scores of gemma3 by {:.6g} and ignores this model's {:.6g}",
        usual, config.attention_scale));
  }
  if (config.final_softcap != 0.0F) {
    keys.number("final_logit_softcapping", static_cast<double>(config.final_softcap));
  }
}

void add_id(std::string_view name, std::optional<std::int32_t> id, GgufPairs& out) {
  if (id.has_value() && *id >= 0) {
    out.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name),
                     static_cast<std::uint32_t>(*id));
  }
}

void add_arrays(const text::GgufTokenizerData& data, GgufPairs& out) {
  out.emplace_back("tokenizer.ggml.model", data.model);
  out.emplace_back("tokenizer.ggml.pre", data.pre);
  out.emplace_back("tokenizer.ggml.tokens", GgufArray(data.tokens));
  if (!data.scores.empty()) {
    out.emplace_back("tokenizer.ggml.scores", GgufArray(data.scores));
  }
  out.emplace_back("tokenizer.ggml.token_type", GgufArray(data.kinds));
  if (!data.merges.empty()) {
    out.emplace_back("tokenizer.ggml.merges", GgufArray(data.merges));
  }
  const std::pair<const char*, std::optional<bool>> flags[] = {
      {"add_bos_token", data.add_bos},
      {"add_eos_token", data.add_eos},
      {"add_space_prefix", data.add_space_prefix}};
  for (const auto& [key, flag] : flags) {
    if (flag.has_value()) {
      out.emplace_back(fmt::format("tokenizer.ggml.{}", key), *flag);
    }
  }
}

void add_templates(const ModelText& text, GgufPairs& out) {
  std::vector<std::string> named;
  for (const auto& [name, source] : text.template_sources()) {
    if (name == "default") {
      out.emplace_back("tokenizer.chat_template", source);
    } else {
      out.emplace_back(fmt::format("tokenizer.chat_template.{}", name), source);
      named.push_back(name);
    }
  }
  if (!named.empty()) {
    out.emplace_back("tokenizer.chat_templates", GgufArray(named));
  }
}

// A file has places for three end tokens; those that readers find by name need none.
// `first`: of those, the one that the model's configuration names first.
void place_ends(std::vector<std::int32_t> ends, std::int32_t first,
                std::span<const std::int32_t> by_name, text::GgufTokenizerData& data,
                std::vector<std::string>& notes) {
  if (!data.eos.has_value() && !ends.empty()) {
    data.eos = first;
  }
  std::erase_if(ends, [&](std::int32_t id) {
    return id == data.eos || std::find(by_name.begin(), by_name.end(), id) != by_name.end();
  });
  for (std::optional<std::int32_t>* place : {&data.eot, &data.eom}) {
    if (!ends.empty()) {
      *place = ends.front();
      ends.erase(ends.begin());
    }
  }
  if (!ends.empty()) {
    std::string rest;
    for (const std::int32_t id : ends) {
      rest += (rest.empty() ? "" : ", ") + std::to_string(id);
    }
    notes.push_back(fmt::format(
        "the model has more end tokens than a GGUF file has places for; these do not end an answer "
        "there: {}",
        rest));
  }
}

}  // namespace

void add_general_keys(std::string_view architecture, std::string_view name, GgufPairs& out) {
  out.emplace_back("general.architecture", std::string(architecture));
  out.emplace_back("general.type", std::string("model"));
  if (!name.empty()) {
    out.emplace_back("general.name", std::string(name));
  }
}

void add_model_keys(std::string_view architecture, const ModelConfig& config, GgufPairs& out,
                    std::vector<std::string>& notes) {
  Keys keys(architecture, out);
  keys.integer("vocab_size", config.vocab_size);
  keys.integer("context_length", config.context_length);
  keys.integer("embedding_length", config.embed_dim);
  keys.integer("block_count", config.num_layers);
  keys.integer("feed_forward_length", config.ffn_dim);
  keys.integer("attention.head_count", config.num_heads);
  keys.integer("attention.head_count_kv", config.num_kv_heads);
  keys.integer("attention.key_length", config.head_dim);
  keys.integer("attention.value_length", config.head_dim);
  keys.number("attention.layer_norm_rms_epsilon", static_cast<double>(config.norm_eps));
  TRINE_CHECK(!config.ropes.empty());
  add_rope(keys, config.ropes[0], architecture, notes);
  add_windows(keys, architecture, config, notes);
  if (architecture == "gemma3") {
    add_gemma(keys, config, notes);
  }
  if (config.moe.has_value()) {
    keys.integer("expert_count", config.moe->num_experts);
    keys.integer("expert_used_count", config.moe->experts_per_token);
    keys.integer("expert_feed_forward_length", config.moe->ffn_dim);
    if (!config.moe->normalize_top_k) {
      keys.value("expert_weights_norm", false);
      notes.push_back(fmt::format(
          "llama.cpp makes the weights of the chosen experts sum to 1 in {}; this model does not",
          architecture));
    }
  }
}

Status add_tokenizer_keys(text::GgufTokenizer* tokenizer, const ModelText& text,
                          const ModelConfig& config, GgufPairs& out,
                          std::vector<std::string>& notes) {
  text::GgufTokenizerData none;
  text::GgufTokenizerData& data = tokenizer == nullptr ? none : tokenizer->data;
  std::vector<std::int32_t> by_name;
  if (tokenizer == nullptr) {
    out.emplace_back("tokenizer.ggml.model", std::string("none"));
  } else {
    notes.insert(notes.end(), tokenizer->notes.begin(), tokenizer->notes.end());
    TRINE_TRY_ASSIGN(const auto made, text::Tokenizer::from_gguf(data));
    by_name.assign(made->stop_ids().begin(), made->stop_ids().end());
  }
  if (!data.bos.has_value() && config.bos_id >= 0) {
    data.bos = config.bos_id;
  }
  std::vector<std::int32_t> ends = end_ids(text, config);
  const std::int32_t first = !config.eos_ids.empty() ? config.eos_ids[0]
                             : ends.empty()          ? -1
                                                     : ends[0];
  place_ends(std::move(ends), first, by_name, data, notes);
  if (tokenizer != nullptr) {
    add_arrays(data, out);
  }
  add_id("bos", data.bos, out);
  add_id("eos", data.eos, out);
  add_id("eot", data.eot, out);
  add_id("eom", data.eom, out);
  add_id("unknown", data.unk, out);
  add_id("padding", data.pad, out);
  add_templates(text, out);
  return {};
}

void add_sampling_keys(const GenerationDefaults& defaults, GgufPairs& out) {
  const std::pair<const char*, std::optional<double>> numbers[] = {
      {"temp", defaults.temperature},
      {"top_p", defaults.top_p},
      {"min_p", defaults.min_p},
      {"penalty_repeat", defaults.repetition_penalty}};
  for (const auto& [key, value] : numbers) {
    if (value.has_value()) {
      out.emplace_back(fmt::format("general.sampling.{}", key), static_cast<float>(*value));
    }
  }
  if (defaults.top_k.has_value()) {
    out.emplace_back("general.sampling.top_k", static_cast<std::int32_t>(*defaults.top_k));
  }
}

}  // namespace trine
