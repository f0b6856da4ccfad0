#include "format/hf_config.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "format/hf_config_keys.h"
#include "format/json_fields.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

// Defaults of a family where a file may leave a key out; nullopt: the file must say it.
struct FamilyDefaults {
  std::string_view model_type;
  std::string_view architecture;  // the only one accepted in `architectures`
  std::optional<std::int64_t> vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  std::optional<std::int64_t> num_kv_heads;  // nullopt: as many as query heads
  std::optional<std::int64_t> head_dim;      // nullopt: hidden_size / num_heads
  std::int64_t context_length;
  double norm_eps;
  bool tie;
  double theta;
  std::optional<std::int64_t> sliding_window;  // the default of the key
};

constexpr auto kAbsent = std::nullopt;
constexpr FamilyDefaults kFamilies[] = {
    {"llama", "LlamaForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
     2048, 1e-6, false, 1e4, kAbsent},
    {"mistral", "MistralForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 8, kAbsent,
     131072, 1e-6, false, 1e4, 4096},
    {"mixtral", "MixtralForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 8, kAbsent,
     131072, 1e-5, false, 1e6, kAbsent},
    {"qwen2", "Qwen2ForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 32, kAbsent, 32768,
     1e-6, false, 1e4, 4096},
    {"qwen3", "Qwen3ForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 32, 128, 32768, 1e-6,
     false, 1e4, 4096},
    {"qwen3_moe", "Qwen3MoeForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 4, kAbsent,
     32768, 1e-6, false, 1e4, 4096},
    // Files of this family leave out what equals the default (the nested text_config of the hub
    // does).
    {"gemma3_text", "Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, true, 1e6,
     4096},
    {"phi3", "Phi3ForCausalLM", kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 4096,
     1e-5, false, 1e4, kAbsent},
};

std::string family_names() {
  std::string names = "gemma3";
  for (const FamilyDefaults& family : kFamilies) {
    names += fmt::format(", {}", family.model_type);
  }
  return names;
}

// The model type, from model_type or else from the architecture's name.
Result<const FamilyDefaults*> find_family(JsonFields& fields) {
  std::string type = fields.text("model_type", "");
  const std::vector<Json> architectures = fields.list("architectures", 16);
  TRINE_TRY(fields.status());
  if (type == "gemma3") {
    type = "gemma3_text";
  }
  for (const FamilyDefaults& family : kFamilies) {
    if (type.empty() && architectures.size() == 1 && architectures[0] == family.architecture) {
      type = family.model_type;
    }
    if (type != family.model_type) {
      continue;
    }
    for (const Json& name : architectures) {
      if (name != family.architecture &&
          !(type == "gemma3_text" && name == "Gemma3ForConditionalGeneration")) {
        return fail(ErrorCode::kUnsupported,
                    "key architectures has {}: only {} of model type {} is supported",
                    show_json(name), family.architecture, type);
      }
    }
    return &family;
  }
  if (type.empty()) {
    return fail(ErrorCode::kCorruptData, "key model_type is missing; supported types: {}",
                family_names());
  }
  return fail(ErrorCode::kUnsupported, "key model_type = {}: supported types are {}",
              show_json(Json(type)), family_names());
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty()) ||
         (value.is_number() && value == 0);
}

bool is_one(const Json& value) {
  return value.is_number() && value == 1;
}

// Refuses keys that change the result, warns of keys nobody knows.
Status check_keys(const JsonFields& fields) {
  for (const auto& [key, value] : fields.object().items()) {
    if (const hf::RefusedKey* refused = hf::find_refused(key); refused != nullptr) {
      const bool neutral = says_nothing(value) || (refused->one_is_neutral && is_one(value));
      if (!neutral) {
        return fail(ErrorCode::kUnsupported, "key {} = {}: {} is not supported", fields.name(key),
                    show_json(value), refused->what);
      }
    } else if (key == "is_causal" && value == false) {
      return fail(ErrorCode::kUnsupported,
                  "key {} = false: attention to later tokens is not supported", fields.name(key));
    } else if (!hf::is_read(key) && !hf::is_harmless(key) && key != "is_causal" &&
               !says_nothing(value)) {
      log::warn("config.json: key {} = {} is not known and is ignored", printable(fields.name(key)),
                show_json(value));
    }
  }
  return {};
}

constexpr double kMaxFactor = 1e6;

std::vector<double> factor_list(JsonFields& fields, std::string_view key) {
  std::vector<double> out;
  for (const Json& value : fields.list(key, static_cast<std::size_t>(kMaxHfHeadDim))) {
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0.0 && number <= kMaxFactor)) {
      fields.set(fail(ErrorCode::kCorruptData, "key {} has {}: every value must lie in (0, {}]",
                      fields.name(key), show_json(value), kMaxFactor));
      return {};
    }
    out.push_back(number);
  }
  return out;
}

// What rotary parameters inherit from the top level of the file.
struct RopeDefaults {
  double theta = 10000.0;
  std::string theta_key;  // the top-level key that gave theta; empty: the family's default
  double partial_rotary_factor = 1.0;
  std::optional<std::int64_t> original_context;  // top-level original_max_position_embeddings
  std::int64_t context_length = 0;
  bool phi3 = false;
};

Result<std::string> rope_type(JsonFields& fields, const RopeDefaults& defaults) {
  const std::string old_name = fields.text("type", "");
  std::string type = fields.text("rope_type", old_name.empty() ? "default" : old_name);
  TRINE_TRY(fields.status());
  if (!old_name.empty() && old_name != type) {
    return fail(ErrorCode::kUnsupported, "keys {} = \"{}\" and {} = \"{}\" contradict each other",
                fields.name("type"), old_name, fields.name("rope_type"), type);
  }
  if (type == "su" || (defaults.phi3 && type == "yarn")) {
    type = "longrope";  // earlier names of the same method in Phi-3 files
  }
  if (type != "default" && type != "linear" && type != "llama3" && type != "yarn" &&
      type != "longrope") {
    return fail(
        ErrorCode::kUnsupported,
        "key {} = \"{}\": supported kinds are default, linear, llama3, yarn and longrope{}",
        fields.name("rope_type"), type.substr(0, 60),
        type == "dynamic" ? "; dynamic NTK changes earlier positions as the text grows" : "");
  }
  return type;
}

// Parses one rope_scaling / rope_parameters object (which may be empty).
Result<HfRope> parse_rope(const Json& object, const std::string& where,
                          const RopeDefaults& defaults) {
  if (!object.is_object()) {
    return fail(ErrorCode::kCorruptData, "key {} = {}: must be an object", where,
                show_json(object));
  }
  JsonFields fields(object, where + ".");
  for (const auto& [key, value] : object.items()) {
    if (!hf::is_rope_key(key) && !says_nothing(value)) {
      return fail(ErrorCode::kUnsupported, "key {} = {} is not supported", fields.name(key),
                  show_json(value));
    }
  }
  HfRope rope;
  TRINE_TRY_ASSIGN(rope.type, rope_type(fields, defaults));
  if (!fields.has("type") && !fields.has("rope_type") && fields.has("factor") &&
      !is_one(*fields.find("factor"))) {
    return fail(ErrorCode::kCorruptData, "key {} = {}, but {} is missing", fields.name("factor"),
                show_json(*fields.find("factor")), fields.name("rope_type"));
  }
  rope.theta = fields.number("rope_theta", defaults.theta, 1.0, 1e12);
  if (fields.ok() && !defaults.theta_key.empty() && rope.theta != defaults.theta) {
    return fail(ErrorCode::kCorruptData, "keys {} = {} and {} = {} contradict each other",
                fields.name("rope_theta"), rope.theta, defaults.theta_key, defaults.theta);
  }
  rope.partial_rotary_factor =
      fields.number("partial_rotary_factor", defaults.partial_rotary_factor, 1e-3, 1.0);
  const bool needs_factor = rope.type == "linear" || rope.type == "llama3";
  if (rope.type != "default") {
    rope.has_factor = fields.has("factor");
    rope.factor = fields.number("factor", needs_factor ? std::nullopt : std::optional<double>(1.0),
                                1e-3, kMaxFactor);
  }
  if (rope.type == "llama3" || rope.type == "yarn" || rope.type == "longrope") {
    const std::int64_t inherited = defaults.original_context.value_or(defaults.context_length);
    rope.original_context =
        fields.integer("original_max_position_embeddings", inherited, 2, kMaxHfContext);
    if (defaults.original_context.has_value() &&
        rope.original_context != *defaults.original_context) {
      return fail(ErrorCode::kCorruptData,
                  "keys {} = {} and original_max_position_embeddings = {} contradict each other",
                  fields.name("original_max_position_embeddings"), rope.original_context,
                  *defaults.original_context);
    }
  }
  if (rope.type == "llama3") {
    rope.low_freq_factor = fields.number("low_freq_factor", std::nullopt, 1e-6, kMaxFactor);
    rope.high_freq_factor = fields.number("high_freq_factor", std::nullopt, 1e-6, kMaxFactor);
    if (fields.ok() && rope.high_freq_factor <= rope.low_freq_factor) {
      return fail(ErrorCode::kCorruptData, "key {} = {}: must be above low_freq_factor = {}",
                  fields.name("high_freq_factor"), rope.high_freq_factor, rope.low_freq_factor);
    }
  }
  if (rope.type == "yarn" || rope.type == "longrope") {
    rope.attention_factor = fields.optional_number("attention_factor", 1e-6, kMaxFactor);
    if (!rope.has_factor) {
      rope.factor =
          static_cast<double>(defaults.context_length) / static_cast<double>(rope.original_context);
    }
  }
  if (rope.type == "yarn") {
    const auto or_default = [](double value, double fallback) {
      return value == 0.0 ? fallback : value;
    };
    rope.beta_fast = or_default(fields.number("beta_fast", 32.0, 0.0, kMaxFactor), 32.0);
    rope.beta_slow = or_default(fields.number("beta_slow", 1.0, 0.0, kMaxFactor), 1.0);
    rope.mscale = fields.optional_number("mscale", 0.0, kMaxFactor);
    rope.mscale_all_dim = fields.optional_number("mscale_all_dim", 0.0, kMaxFactor);
    rope.truncate = fields.boolean("truncate", true);
    if (fields.ok() && rope.theta <= 1.0) {
      return fail(ErrorCode::kCorruptData, "key {} = {}: must be above 1 for yarn",
                  fields.name("rope_theta"), rope.theta);
    }
  }
  if (rope.type == "longrope") {
    rope.short_factor = factor_list(fields, "short_factor");
    rope.long_factor = factor_list(fields, "long_factor");
    if (fields.ok() &&
        (rope.short_factor.empty() || rope.short_factor.size() != rope.long_factor.size())) {
      return fail(ErrorCode::kCorruptData,
                  "keys {} and {} must be lists of equal, nonzero length, got {} and {}",
                  fields.name("short_factor"), fields.name("long_factor"), rope.short_factor.size(),
                  rope.long_factor.size());
    }
  }
  TRINE_TRY(fields.status());
  return rope;
}

struct RopePair {
  HfRope full;
  HfRope sliding;
};

// transformers 5: one object, or one per layer type.
Result<RopePair> parse_rope_parameters(const Json& object, const HfConfig& config,
                                       const RopeDefaults& full, const RopeDefaults& sliding) {
  const bool gemma = config.model_type == "gemma3_text";
  const bool nested = object.is_object() &&
                      (object.contains("full_attention") || object.contains("sliding_attention"));
  if (!nested) {
    if (gemma) {
      return fail(ErrorCode::kCorruptData,
                  "key rope_parameters: gemma3 needs one object per layer type (full_attention, "
                  "sliding_attention)");
    }
    TRINE_TRY_ASSIGN(HfRope rope, parse_rope(object, "rope_parameters", full));
    return RopePair{rope, rope};
  }
  for (const auto& [key, value] : object.items()) {
    if (key != "full_attention" && key != "sliding_attention") {
      return fail(ErrorCode::kUnsupported, "key rope_parameters.{} = {} is not supported",
                  key.substr(0, 60), show_json(value));
    }
  }
  RopePair pair;
  const auto part = [&object](const char* key) {
    return object.contains(key) && !object.at(key).is_null() ? object.at(key) : Json::object();
  };
  TRINE_TRY_ASSIGN(pair.full,
                   parse_rope(part("full_attention"), "rope_parameters.full_attention", full));
  TRINE_TRY_ASSIGN(pair.sliding, parse_rope(part("sliding_attention"),
                                            "rope_parameters.sliding_attention", sliding));
  const bool uses_sliding =
      std::find(config.sliding.begin(), config.sliding.end(), true) != config.sliding.end();
  const bool uses_full =
      std::find(config.sliding.begin(), config.sliding.end(), false) != config.sliding.end();
  if (!gemma && uses_sliding && uses_full && !(pair.full == pair.sliding)) {
    return fail(ErrorCode::kUnsupported,
                "key rope_parameters: model type {} has one set for all layers", config.model_type);
  }
  return pair;
}

Status parse_all_rope(JsonFields& fields, const FamilyDefaults& family, HfConfig& config) {
  RopeDefaults full;
  full.phi3 = family.model_type == "phi3";
  full.theta = fields.number("rope_theta", family.theta, 1.0, 1e12);
  full.theta_key = fields.has("rope_theta") ? fields.name("rope_theta") : "";
  full.partial_rotary_factor = fields.number("partial_rotary_factor", 1.0, 1e-3, 1.0);
  full.context_length = config.context_length;
  if (fields.has("original_max_position_embeddings")) {
    full.original_context = fields.integer("original_max_position_embeddings", 2, 2, kMaxHfContext);
  } else if (full.phi3) {
    full.original_context = 4096;
  }
  RopeDefaults sliding = full;
  const bool gemma = config.model_type == "gemma3_text";
  if (gemma) {
    sliding.theta = fields.number("rope_local_base_freq", 1e4, 1.0, 1e12);
    sliding.theta_key =
        fields.has("rope_local_base_freq") ? fields.name("rope_local_base_freq") : "";
  } else if (fields.has("rope_local_base_freq")) {
    return fail(ErrorCode::kUnsupported, "key {} is not supported for model type {}",
                fields.name("rope_local_base_freq"), config.model_type);
  }
  TRINE_TRY(fields.status());

  std::optional<RopePair> old_style;
  const Json* scaling = fields.find("rope_scaling");
  const Json* parameters = fields.find("rope_parameters");
  if (scaling != nullptr || parameters == nullptr) {
    RopePair pair;
    TRINE_TRY_ASSIGN(pair.full, parse_rope(scaling == nullptr ? Json::object() : *scaling,
                                           "rope_scaling", full));
    pair.sliding = pair.full;
    if (gemma) {
      TRINE_TRY_ASSIGN(pair.sliding, parse_rope(Json::object(), "rope_scaling", sliding));
    }
    old_style = std::move(pair);
  }
  if (parameters != nullptr) {
    TRINE_TRY_ASSIGN(RopePair pair, parse_rope_parameters(*parameters, config, full, sliding));
    if (old_style.has_value() &&
        !(old_style->full == pair.full && old_style->sliding == pair.sliding)) {
      return fail(ErrorCode::kCorruptData,
                  "keys rope_scaling and rope_parameters contradict each other");
    }
    old_style = std::move(pair);
  }
  config.rope = std::move(old_style->full);
  config.rope_sliding = std::move(old_style->sliding);

  for (const HfRope* rope : {&config.rope, &config.rope_sliding}) {
    if (full.phi3 && rope->type != "default" && rope->type != "longrope") {
      return fail(ErrorCode::kUnsupported, "rope type {}: phi3 has default and longrope only",
                  rope->type);
    }
    if (!full.phi3 && rope->partial_rotary_factor != 1.0) {
      return fail(ErrorCode::kUnsupported,
                  "key partial_rotary_factor = {}: not supported for model type {}",
                  rope->partial_rotary_factor, config.model_type);
    }
    const auto rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) *
                                                      rope->partial_rotary_factor);
    if (rotary_dim < 2 || rotary_dim % 2 != 0) {
      return fail(ErrorCode::kUnsupported,
                  "head_dim = {} with partial_rotary_factor = {}: {} rotary dimensions, "
                  "must be even and at least 2",
                  config.head_dim, rope->partial_rotary_factor, rotary_dim);
    }
    if (rope->type == "longrope" &&
        static_cast<std::int64_t>(rope->long_factor.size()) != rotary_dim / 2) {
      return fail(ErrorCode::kCorruptData,
                  "keys long_factor and short_factor have {} values, {} rotary dimensions "
                  "need {}",
                  rope->long_factor.size(), rotary_dim, rotary_dim / 2);
    }
  }
  return {};
}

// Which layers have a sliding window: by the family's rule, overruled by layer_types where the
// family reads it.
Status parse_windows(JsonFields& fields, const FamilyDefaults& family, HfConfig& config) {
  const std::string_view type = family.model_type;
  const auto layers = static_cast<std::size_t>(config.num_layers);
  std::int64_t window = 0;
  const bool has_key = fields.object().contains("sliding_window");
  if (fields.has("sliding_window")) {
    window = fields.integer("sliding_window", 0, 1, kMaxHfContext);
  } else if (!has_key) {
    window = family.sliding_window.value_or(0);
  }
  const bool gemma = type == "gemma3_text";
  const bool switched = type == "qwen2" || type == "qwen3" || type == "qwen3_moe";
  const bool by_layer = type == "qwen2" || type == "qwen3" || gemma;
  if (type == "llama" && window != 0) {
    log::warn("config.json: key sliding_window = {} has no effect for model type llama", window);
    window = 0;
  }
  if (switched) {
    if (!fields.boolean("use_sliding_window", false)) {
      window = 0;
    }
  } else if (fields.boolean("use_sliding_window", false)) {
    return fail(ErrorCode::kUnsupported,
                "key use_sliding_window = true is not supported for model type {}", type);
  }
  const std::int64_t first_sliding = type == "qwen2" || type == "qwen3"
                                         ? fields.integer("max_window_layers", 28, 0, kMaxHfContext)
                                         : 0;
  std::int64_t pattern = 1;
  if (gemma) {
    pattern = fields.has("sliding_window_pattern") || !fields.has("_sliding_window_pattern")
                  ? fields.integer("sliding_window_pattern", 6, 1, kMaxHfLayers)
                  : fields.integer("_sliding_window_pattern", 6, 1, kMaxHfLayers);
  }
  config.sliding.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    config.sliding[i] =
        window != 0 && layer >= first_sliding && (!gemma || (layer + 1) % pattern != 0);
  }

  const std::vector<Json> types =
      fields.list("layer_types", static_cast<std::size_t>(kMaxHfLayers));
  TRINE_TRY(fields.status());
  if (fields.has("layer_types")) {
    if (types.size() != layers) {
      return fail(ErrorCode::kCorruptData, "key {} has {} values, num_hidden_layers is {}",
                  fields.name("layer_types"), types.size(), layers);
    }
    for (std::size_t i = 0; i < layers; ++i) {
      const bool sliding = types[i] == "sliding_attention";
      if (!sliding && types[i] != "full_attention") {
        return fail(ErrorCode::kUnsupported,
                    "key {}[{}] = {}: only full_attention and sliding_attention are supported",
                    fields.name("layer_types"), i, show_json(types[i]));
      }
      if (by_layer) {
        if (sliding && window == 0) {
          return fail(ErrorCode::kCorruptData,
                      "key {}[{}] = \"sliding_attention\", but no sliding_window is set",
                      fields.name("layer_types"), i);
        }
        config.sliding[i] = sliding;
      } else if (sliding != config.sliding[i]) {
        return fail(ErrorCode::kUnsupported,
                    "key {}[{}] = {}: model type {} has one kind of attention for all layers",
                    fields.name("layer_types"), i, show_json(types[i]), type);
      }
    }
  }
  const bool any =
      std::find(config.sliding.begin(), config.sliding.end(), true) != config.sliding.end();
  config.sliding_window = any ? window : 0;
  return {};
}

Status parse_moe(JsonFields& fields, HfConfig& config) {
  const bool mixtral = config.model_type == "mixtral";
  if (!mixtral && config.model_type != "qwen3_moe") {
    for (const char* key :
         {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
      if (fields.has(key) && !says_nothing(*fields.find(key))) {
        return fail(ErrorCode::kUnsupported, "key {} = {}: model type {} has no mixture of experts",
                    fields.name(key), show_json(*fields.find(key)), config.model_type);
      }
    }
    return {};
  }
  if (fields.has("num_local_experts") && fields.has("num_experts") &&
      *fields.find("num_local_experts") != *fields.find("num_experts")) {
    return fail(ErrorCode::kCorruptData,
                "keys num_experts and num_local_experts contradict each other");
  }
  const char* key = fields.has("num_experts") ? "num_experts" : "num_local_experts";
  config.num_experts = fields.integer(key, mixtral ? 8 : 128, 1, kMaxHfExperts);
  config.experts_per_token =
      fields.integer("num_experts_per_tok", mixtral ? 2 : 8, 1, kMaxHfExperts);
  config.moe_intermediate_size = mixtral
                                     ? config.intermediate_size
                                     : fields.integer("moe_intermediate_size", 768, 1, kMaxHfDim);
  config.norm_topk_prob = mixtral || fields.boolean("norm_topk_prob", false);
  const std::int64_t step = mixtral ? 1 : fields.integer("decoder_sparse_step", 1, 1, kMaxHfLayers);
  if (fields.ok() && config.experts_per_token > config.num_experts) {
    return fail(ErrorCode::kCorruptData,
                "key num_experts_per_tok = {}: at most the number of experts, {}",
                config.experts_per_token, config.num_experts);
  }
  config.moe_layer.resize(static_cast<std::size_t>(config.num_layers));
  for (std::size_t i = 0; i < config.moe_layer.size(); ++i) {
    config.moe_layer[i] = (static_cast<std::int64_t>(i) + 1) % step == 0;
  }
  if (!mixtral) {
    for (const Json& value :
         fields.list("mlp_only_layers", static_cast<std::size_t>(kMaxHfLayers))) {
      const std::int64_t layer =
          fields.integer_value(value, "mlp_only_layers", 0, config.num_layers - 1);
      config.moe_layer[static_cast<std::size_t>(layer)] = false;
    }
  }
  return fields.status();
}

Status parse_activation(JsonFields& fields, HfConfig& config) {
  const bool gemma = config.model_type == "gemma3_text";
  const char* key = gemma ? "hidden_activation" : "hidden_act";
  const std::string name = fields.text(key, gemma ? "gelu_pytorch_tanh" : "silu");
  TRINE_TRY(fields.status());
  if (name == "silu" || name == "swish") {
    config.activation = "silu";
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
    config.activation = "gelu_tanh";
  } else if (name == "gelu") {
    config.activation = "gelu";
  } else {
    return fail(ErrorCode::kUnsupported,
                "key {} = \"{}\": supported are silu, gelu and gelu_pytorch_tanh", fields.name(key),
                name.substr(0, 60));
  }
  return {};
}

Status parse_biases(JsonFields& fields, HfConfig& config) {
  const std::string& type = config.model_type;
  config.attention_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  TRINE_TRY(fields.status());
  const bool reads_attention =
      type == "llama" || type == "qwen3" || type == "qwen3_moe" || type == "gemma3_text";
  if (config.attention_bias && !reads_attention) {
    return fail(ErrorCode::kUnsupported, "key {} = true is not supported for model type {}",
                fields.name("attention_bias"), type);
  }
  if (config.mlp_bias && type != "llama") {
    return fail(ErrorCode::kUnsupported, "key {} = true is not supported for model type {}",
                fields.name("mlp_bias"), type);
  }
  return {};
}

Status parse_token_ids(JsonFields& fields, HfConfig& config) {
  const std::int64_t last = config.vocab_size - 1;  // parsed before
  config.bos_token_id = fields.integer("bos_token_id", -1, -1, last);
  (void)fields.integer("pad_token_id", -1, -1, last);  // unused, but a sign of a mixed-up file
  if (const Json* eos = fields.find("eos_token_id"); eos != nullptr) {
    if (eos->is_array()) {
      for (const Json& value : fields.list("eos_token_id", 256)) {
        config.eos_token_ids.push_back(fields.integer_value(value, "eos_token_id", -1, last));
      }
    } else {
      config.eos_token_ids.push_back(fields.integer_value(*eos, "eos_token_id", -1, last));
    }
    std::erase(config.eos_token_ids, -1);
  }
  return fields.status();
}

Status parse_dims(JsonFields& fields, const FamilyDefaults& family, HfConfig& config) {
  config.vocab_size = fields.integer("vocab_size", family.vocab_size, 1, kMaxHfVocab);
  config.hidden_size = fields.integer("hidden_size", family.hidden_size, 1, kMaxHfDim);
  config.intermediate_size =
      fields.integer("intermediate_size", family.intermediate_size, 1, kMaxHfDim);
  config.num_layers = fields.integer("num_hidden_layers", family.num_layers, 1, kMaxHfLayers);
  config.num_heads = fields.integer("num_attention_heads", family.num_heads, 1, kMaxHfHeads);
  TRINE_TRY(fields.status());
  // A key that is there but null means one key head per query head, whatever the family's default.
  const bool null_kv =
      fields.object().contains("num_key_value_heads") && !fields.has("num_key_value_heads");
  config.num_kv_heads = fields.integer(
      "num_key_value_heads",
      null_kv ? config.num_heads : family.num_kv_heads.value_or(config.num_heads), 1, kMaxHfHeads);
  std::optional<std::int64_t> head_dim = family.head_dim;
  if (!head_dim.has_value() && !fields.has("head_dim")) {
    if (config.hidden_size % config.num_heads != 0) {
      return fail(
          ErrorCode::kCorruptData,
          "keys {} = {} and {} = {}: not a multiple of each other, and no head_dim is given",
          fields.name("hidden_size"), config.hidden_size, fields.name("num_attention_heads"),
          config.num_heads);
    }
    head_dim = config.hidden_size / config.num_heads;
  }
  config.head_dim = fields.integer("head_dim", head_dim, 1, kMaxHfHeadDim);
  config.context_length =
      fields.integer("max_position_embeddings", family.context_length, 1, kMaxHfContext);
  config.norm_eps = fields.number("rms_norm_eps", family.norm_eps, 0.0, 1.0);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", family.tie);
  TRINE_TRY(fields.status());
  if (config.head_dim > kMaxHfHeadDim) {
    return fail(ErrorCode::kUnsupported,
                "hidden_size / num_attention_heads = {}: head dimensions up to {}", config.head_dim,
                kMaxHfHeadDim);
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail(ErrorCode::kCorruptData, "key {} = {}: must divide {} = {}",
                fields.name("num_key_value_heads"), config.num_kv_heads,
                fields.name("num_attention_heads"), config.num_heads);
  }
  if (config.num_heads * config.head_dim > kMaxHfDim) {
    return fail(ErrorCode::kUnsupported, "{} heads of {} dimensions: {} in all, at most {}",
                config.num_heads, config.head_dim, config.num_heads * config.head_dim, kMaxHfDim);
  }
  return {};
}

Result<HfConfig> parse_family(JsonFields& fields, const FamilyDefaults& family) {
  HfConfig config;
  config.model_type = family.model_type;
  TRINE_TRY(check_keys(fields));
  TRINE_TRY(parse_dims(fields, family, config));
  TRINE_TRY(parse_activation(fields, config));
  TRINE_TRY(parse_biases(fields, config));
  TRINE_TRY(parse_windows(fields, family, config));
  TRINE_TRY(parse_all_rope(fields, family, config));
  TRINE_TRY(parse_moe(fields, config));
  TRINE_TRY(parse_token_ids(fields, config));
  const bool gemma = config.model_type == "gemma3_text";
  for (const char* key : {"query_pre_attn_scalar", "final_logit_softcapping"}) {
    if (!gemma && fields.has(key)) {
      return fail(ErrorCode::kUnsupported, "key {} = {} is not supported for model type {}",
                  fields.name(key), show_json(*fields.find(key)), config.model_type);
    }
  }
  if (gemma) {
    config.query_pre_attn_scalar = fields.number("query_pre_attn_scalar", 256.0, 1e-6, 1e9);
    config.final_logit_softcapping = fields.number("final_logit_softcapping", 0.0, 1e-6, 1e9);
  }
  TRINE_TRY(fields.status());
  return config;
}

// Of the outer level. compressed-tensors' older files use the second name.
Status parse_quantization(const Json& root, HfConfig& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto value = root.find(key);
    if (value != root.end() && !says_nothing(*value) && !config.quantization.has_value()) {
      TRINE_TRY_ASSIGN(config.quantization, parse_quant_config(*value, fmt::format("{}.", key)));
    }
  }
  return {};
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view json_text) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = std::size_t{4} << 20;
  TRINE_TRY_ASSIGN(const Json root, parse_json(json_text, limits));
  if (!root.is_object()) {
    return fail(ErrorCode::kCorruptData, "config.json must be an object");
  }
  JsonFields fields(root, "");
  TRINE_TRY_ASSIGN(const FamilyDefaults* family, find_family(fields));
  const auto text = root.find("text_config");
  if (text == root.end() || text->is_null()) {
    if (root.contains("model_type") && root.at("model_type") == "gemma3") {
      return fail(ErrorCode::kCorruptData, "key text_config is missing for model type gemma3");
    }
    TRINE_TRY_ASSIGN(HfConfig config, parse_family(fields, *family));
    TRINE_TRY(parse_quantization(root, config));
    return config;
  }
  if (family->model_type != "gemma3_text" || !text->is_object()) {
    return fail(ErrorCode::kUnsupported,
                "key text_config = {}: only objects in model type gemma3 are supported",
                show_json(*text));
  }
  // The text model of a multimodal file: its own keys, the tokens and the tying of the outer level.
  TRINE_TRY(check_keys(fields));
  JsonFields inner(*text, "text_config.");
  const std::string inner_type = inner.text("model_type", "gemma3_text");
  TRINE_TRY(inner.status());
  if (inner_type != "gemma3_text") {
    return fail(ErrorCode::kUnsupported, "key text_config.model_type = \"{}\": must be gemma3_text",
                inner_type.substr(0, 60));
  }
  TRINE_TRY_ASSIGN(HfConfig config, parse_family(inner, *family));
  config.nested_text = true;
  if (fields.has("tie_word_embeddings")) {
    config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  }
  if (fields.has("eos_token_id") || fields.has("bos_token_id")) {
    config.eos_token_ids.clear();
    TRINE_TRY(parse_token_ids(fields, config));
  }
  TRINE_TRY(fields.status());
  TRINE_TRY(parse_quantization(root, config));
  return config;
}

}  // namespace trine
