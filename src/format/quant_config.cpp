#include "format/quant_config.h"

#include <algorithm>
#include <array>
#include <span>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "format/json_fields.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;
using Strategy = WeightScheme::Strategy;

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

// The first of several spellings of a key that is there.
const char* spelling(const JsonFields& fields, std::span<const char* const> keys) {
  for (const char* key : keys) {
    if (fields.has(key)) {
      return key;
    }
  }
  return keys.front();
}

// Keys that change what the numbers mean and are not read: a warning, once.
void warn_unknown(const JsonFields& fields, std::span<const std::string_view> known) {
  std::string names;
  for (const auto& [key, value] : fields.object().items()) {
    if (std::find(known.begin(), known.end(), key) == known.end() && !says_nothing(value)) {
      names += (names.empty() ? "" : ", ") + fields.name(key);
    }
  }
  if (!names.empty()) {
    log::warn("keys {} of the quantization configuration are not known and have no effect", names);
  }
}

Status check_bits(std::int64_t bits, const std::string& key) {
  if (bits == 2 || bits == 3 || bits == 4 || bits == 8) {
    return {};
  }
  if (bits >= 5 && bits <= 7) {
    return fail(ErrorCode::kUnsupported,
                "key {} = {}: the planar packing of 5, 6 and 7 bits is not supported; 2, 3, 4 and "
                "8 bits are",
                key, bits);
  }
  return fail(ErrorCode::kUnsupported, "key {} = {}: supported are 2, 3, 4 and 8 bits", key, bits);
}

// -1 is the whole row.
std::int64_t read_group(JsonFields& fields, const char* key, std::int64_t fallback) {
  const std::int64_t group = fields.integer(key, fallback, -1, kMaxQuantGroup);
  if (group == 0) {
    fields.set(
        fail(ErrorCode::kCorruptData, "key {} = 0: must be -1 or at least 1", fields.name(key)));
  }
  return group;
}

void set_group(WeightScheme& weights, std::int64_t group) {
  weights.strategy = group < 0 ? Strategy::kChannel : Strategy::kGroup;
  weights.group = std::max<std::int64_t>(group, 0);
}

// ---- GPTQ

constexpr auto kGptqKeys = std::to_array<std::string_view>(
    {"quant_method", "bits", "w_bit", "wbits", "group_size", "groupsize", "q_group_size",
     "desc_act", "sym", "checkpoint_format", "format", "is_marlin_format", "pack_dtype", "dynamic",
     "lm_head",
     // how the file was made and which kernels other engines may use
     "true_sequential", "static_groups", "damp_percent", "damp_auto_increment", "meta",
     "model_name_or_path", "model_file_base_name", "model_seqlen", "dataset", "tokenizer",
     "batch_size", "pad_token_id", "use_cuda_fp16", "use_exllama", "disable_exllama",
     "exllama_config", "max_input_length", "cache_block_outputs", "modules_in_block_to_quantize",
     "block_name_to_quantize", "module_name_preceding_first_block", "backend", "hyb_act",
     "act_group_aware", "mse", "rotation", "parallel_packing", "quantizer", "version",
     "packing_format", "iters", "nsamples", "seqlen", "lr", "minmax_lr", "amp", "low_gpu_mem_usage",
     "enable_quanted_input", "enable_minmax_tuning", "autoround_version", "data_type",
     "scale_dtype"});

Status parse_gptq_format(JsonFields& fields, QuantConfig& out) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const std::string format = lower(fields.text(key, ""));
    TRINE_TRY(fields.status());
    if (format == "gptq_v2") {
      out.stored_zero_is_less_one = false;
    } else if (!format.empty() && format != "gptq") {
      return fail(
          ErrorCode::kUnsupported,
          "key {} = \"{}\": only the packings \"gptq\" and \"gptq_v2\" are read; convert the "
          "model to one of them",
          fields.name(key), format.substr(0, 60));
    }
  }
  if (fields.boolean("is_marlin_format", false)) {
    return fail(ErrorCode::kUnsupported,
                "key {} = true: the Marlin packing is not supported; convert the model to \"gptq\"",
                fields.name("is_marlin_format"));
  }
  const std::string pack = fields.text("pack_dtype", "int32");
  TRINE_TRY(fields.status());
  if (pack != "int32") {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": only int32 words are supported",
                fields.name("pack_dtype"), pack.substr(0, 60));
  }
  return {};
}

Result<QuantConfig::Override> parse_override(const std::string& key, const Json& value,
                                             const std::string& where) {
  QuantConfig::Override out;
  out.skip = key.starts_with("-:");
  out.pattern = out.skip || key.starts_with("+:") ? key.substr(2) : key;
  if (out.skip || value.is_null()) {
    return out;
  }
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "key {} = {}: must be an object", where, show_json(value));
  }
  JsonFields fields(value, where + ".");
  if (fields.has("bits")) {
    const std::int64_t bits = fields.integer("bits", 4, 1, 32);
    TRINE_TRY(fields.status());
    TRINE_TRY(check_bits(bits, fields.name("bits")));
    out.bits = static_cast<int>(bits);
  }
  if (fields.has("group_size")) {
    out.group = std::max<std::int64_t>(read_group(fields, "group_size", -1), 0);
  }
  if (fields.has("sym")) {
    out.symmetric = fields.boolean("sym", true);
  }
  TRINE_TRY(fields.status());
  return out;
}

Status parse_gptq(JsonFields& fields, QuantConfig& out) {
  constexpr std::array kBits{"bits", "wbits", "w_bit"};
  constexpr std::array kGroup{"group_size", "groupsize", "q_group_size"};
  const char* bits_key = spelling(fields, kBits);
  const std::int64_t bits = fields.integer(bits_key, std::nullopt, 1, 32);
  const std::int64_t group = read_group(fields, spelling(fields, kGroup), 128);
  TRINE_TRY(fields.status());
  TRINE_TRY(check_bits(bits, fields.name(bits_key)));
  out.weights.bits = static_cast<int>(bits);
  set_group(out.weights, group);
  out.desc_act = fields.boolean("desc_act", false);
  if (fields.has("sym")) {
    out.weights.symmetric = fields.boolean("sym", true);
  } else {
    log::warn(
        "key {} is missing, and programs differ in what that means; the zero points of the file "
        "decide",
        fields.name("sym"));
  }
  (void)fields.boolean("lm_head", false);  // the tensors say whether the head is quantized
  TRINE_TRY(parse_gptq_format(fields, out));
  if (const Json* dynamic = fields.find("dynamic"); dynamic != nullptr && *dynamic != false) {
    if (!dynamic->is_object() || dynamic->size() > kMaxQuantPatterns) {
      return fail(ErrorCode::kCorruptData, "key {} = {}: must be an object of at most {} patterns",
                  fields.name("dynamic"), show_json(*dynamic), kMaxQuantPatterns);
    }
    for (const auto& [key, value] : dynamic->items()) {
      TRINE_TRY_ASSIGN(
          QuantConfig::Override entry,
          parse_override(key, value, fmt::format("{}.{}", fields.name("dynamic"), key)));
      out.overrides.push_back(std::move(entry));
    }
  }
  warn_unknown(fields, kGptqKeys);
  return fields.status();
}

// ---- AWQ

constexpr auto kAwqKeys = std::to_array<std::string_view>(
    {"quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version",
     "format", "checkpoint_format", "modules_to_not_convert",
     // kernels of other engines and how the file was made
     "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "pack_dtype",
     "meta", "desc_act", "sym", "lm_head", "dynamic", "damp_percent"});

Status parse_awq(JsonFields& fields, QuantConfig& out) {
  constexpr std::array kBits{"bits", "w_bit"};
  constexpr std::array kGroup{"group_size", "q_group_size"};
  constexpr std::array kVersion{"version", "format", "checkpoint_format"};
  const char* bits_key = spelling(fields, kBits);
  const std::int64_t bits = fields.integer(bits_key, 4, 1, 32);
  const std::int64_t group = read_group(fields, spelling(fields, kGroup), 128);
  const char* version_key = spelling(fields, kVersion);
  const std::string version = lower(fields.text(version_key, "gemm"));
  out.weights.symmetric = !fields.boolean("zero_point", true);
  TRINE_TRY(fields.status());
  if (bits != 4) {
    return fail(ErrorCode::kUnsupported, "key {} = {}: AWQ files have 4 bits",
                fields.name(bits_key), bits);
  }
  if (version != "gemm" && version != "gemv") {
    return fail(
        ErrorCode::kUnsupported,
        "key {} = \"{}\": the AWQ layouts \"gemm\" and \"gemv\" are read; convert the model "
        "to one of them",
        fields.name(version_key), version.substr(0, 60));
  }
  out.gemv = version == "gemv";
  set_group(out.weights, group);
  warn_unknown(fields, kAwqKeys);
  return fields.status();
}

// ---- FP8 of transformers

constexpr auto kFp8Keys = std::to_array<std::string_view>(
    {"quant_method", "weight_block_size", "activation_scheme", "fmt", "modules_to_not_convert",
     "ignored_layers", "dequantize", "scale_fmt"});

// [rows, cols].
Status parse_block(JsonFields& fields, const char* key, WeightScheme& weights) {
  const std::vector<Json> block = fields.list(key, 2);
  TRINE_TRY(fields.status());
  if (block.size() != 2) {
    return fail(ErrorCode::kCorruptData, "key {}: must be a list of two sizes", fields.name(key));
  }
  weights.strategy = Strategy::kBlock;
  weights.block_rows = fields.integer_value(block[0], key, 1, kMaxQuantGroup);
  weights.block_cols = fields.integer_value(block[1], key, 1, kMaxQuantGroup);
  return fields.status();
}

Status parse_fp8(JsonFields& fields, QuantConfig& out) {
  out.weights.bits = 8;
  out.weights.is_float = true;
  out.weights.symmetric = true;
  out.weights.strategy = Strategy::kTensor;
  const std::string kind = lower(fields.text("fmt", "e4m3"));
  const std::string activations = lower(fields.text("activation_scheme", "dynamic"));
  TRINE_TRY(fields.status());
  if (kind != "e4m3" && kind != "float8_e4m3fn") {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": only e4m3 is supported",
                fields.name("fmt"), kind.substr(0, 60));
  }
  if (activations != "dynamic" && activations != "static") {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": must be dynamic or static",
                fields.name("activation_scheme"), activations.substr(0, 60));
  }
  if (activations == "static") {
    log::warn("key {} = \"static\": the file's input scales are not used",
              fields.name("activation_scheme"));
  }
  if (fields.has("weight_block_size")) {
    TRINE_TRY(parse_block(fields, "weight_block_size", out.weights));
  }
  warn_unknown(fields, kFp8Keys);
  return fields.status();
}

// ---- compressed-tensors

constexpr auto kCompressedKeys = std::to_array<std::string_view>(
    {"quant_method", "format", "quantization_status", "config_groups", "ignore", "kv_cache_scheme",
     "global_compression_ratio", "version", "sparsity_config", "transform_config",
     "moe_sparsity_config", "run_compressed"});

constexpr std::string_view kPackedFormat = "pack-quantized";
constexpr auto kFormats = std::to_array<std::string_view>(
    {kPackedFormat, "int-quantized", "float-quantized", "naive-quantized"});

Status check_format(const std::string& format, const std::string& key, bool whole_file) {
  if (std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end() ||
      (whole_file && (format == "mixed-precision" || format == "dense"))) {
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              "key {} = \"{}\": supported are pack-quantized, int-quantized, float-quantized and "
              "naive-quantized",
              key, format.substr(0, 60));
}

Status parse_strategy(JsonFields& fields, WeightScheme& weights) {
  std::string strategy = lower(fields.text("strategy", ""));
  const std::int64_t group = fields.has("group_size") ? read_group(fields, "group_size", -1) : -1;
  TRINE_TRY(fields.status());
  if (strategy.empty()) {
    // What the library infers.
    strategy = group > 0 ? "group" : fields.has("group_size") ? "channel" : "tensor";
  }
  if (strategy == "tensor") {
    weights.strategy = Strategy::kTensor;
  } else if (strategy == "channel") {
    weights.strategy = Strategy::kChannel;
  } else if (strategy == "group") {
    if (group < 1) {
      return fail(ErrorCode::kCorruptData, "key {} is missing for strategy \"group\"",
                  fields.name("group_size"));
    }
    weights.strategy = Strategy::kGroup;
    weights.group = group;
  } else if (strategy == "block") {
    return parse_block(fields, "block_structure", weights);
  } else {
    return fail(ErrorCode::kUnsupported,
                "key {} = \"{}\": supported are tensor, channel, group and block",
                fields.name("strategy"), strategy.substr(0, 60));
  }
  return {};
}

Result<WeightScheme> parse_weight_args(JsonFields& fields) {
  WeightScheme out;
  const std::int64_t bits = fields.integer("num_bits", 8, 1, 32);
  const std::string type = lower(fields.text("type", "int"));
  out.symmetric = fields.boolean("symmetric", true);
  TRINE_TRY(fields.status());
  out.bits = static_cast<int>(bits);
  out.is_float = type == "float";
  if (type != "int" && type != "float") {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": must be int or float",
                fields.name("type"), type.substr(0, 60));
  }
  if (out.is_float && bits != 8) {
    return fail(ErrorCode::kUnsupported, "key {} = {}: floats of 8 bits (E4M3) are supported",
                fields.name("num_bits"), bits);
  }
  if (!out.is_float) {
    TRINE_TRY(check_bits(bits, fields.name("num_bits")));
  }
  if (const Json* dynamic = fields.find("dynamic"); dynamic != nullptr && *dynamic != false) {
    return fail(ErrorCode::kUnsupported, "key {} = {}: weights with scales made at run time",
                fields.name("dynamic"), show_json(*dynamic));
  }
  // Float scales of another meaning: E8M0 and E4M3 scales belong to formats that are refused.
  const std::string scales = lower(fields.text("scale_dtype", ""));
  TRINE_TRY(fields.status());
  if (scales.find("float8") != std::string::npos || scales.find("uint8") != std::string::npos) {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": scales are float16, bfloat16 or float32",
                fields.name("scale_dtype"), scales.substr(0, 60));
  }
  TRINE_TRY(parse_strategy(fields, out));
  return out;
}

// How the file wants the inputs quantized; sets int8_activations.
Status parse_input_args(JsonFields& fields, WeightScheme& weights) {
  const std::int64_t bits = fields.integer("num_bits", 8, 1, 32);
  const std::string type = lower(fields.text("type", "int"));
  const std::string strategy = lower(fields.text("strategy", ""));
  const Json* dynamic = fields.find("dynamic");
  TRINE_TRY(fields.status());
  if (type != "int") {
    return {};  // FP8 inputs: float32 ones are closer to the model that was quantized
  }
  if (bits < 8) {
    return fail(ErrorCode::kUnsupported,
                "key {} = {}: activations of less than 8 bits are not supported",
                fields.name("num_bits"), bits);
  }
  if (bits > 8 || weights.is_float) {
    return {};
  }
  weights.int8_activations = strategy != "group" && strategy != "tensor_group";
  if (dynamic == nullptr || *dynamic == false) {
    log::warn(
        "{} are static: their input scales are not used, activations are quantized per token as "
        "they come",
        fields.name("activations"));
  }
  return {};
}

// The presets of the library that may stand for a group's settings; nullopt: not one that is read.
std::optional<WeightScheme> preset_scheme(const std::string& name) {
  WeightScheme out;
  out.symmetric = true;
  if (name == "W8A8" || name == "INT8") {
    out.bits = 8;
    out.strategy = Strategy::kChannel;
    out.int8_activations = true;
    return out;
  }
  if (name == "FP8" || name == "FP8_DYNAMIC" || name == "FP8_BLOCK") {
    out.bits = 8;
    out.is_float = true;
    out.strategy = name == "FP8"           ? Strategy::kTensor
                   : name == "FP8_DYNAMIC" ? Strategy::kChannel
                                           : Strategy::kBlock;
    out.block_rows = out.block_cols = 128;
    return out;
  }
  if (name == "W4A16_ASYM") {
    out.symmetric = false;
    return out;
  }
  if (name == "W4AFP8") {
    return out;
  }
  for (const int bits : {2, 3, 4, 8}) {
    if (name == fmt::format("W{}A16", bits) || name == fmt::format("W{}A8", bits)) {
      out.bits = bits;
      out.int8_activations = name.ends_with("A8");
      return out;
    }
  }
  return std::nullopt;
}

std::vector<std::string> read_names(JsonFields& fields, const char* key) {
  std::vector<std::string> out;
  for (const Json& value : fields.list(key, kMaxQuantPatterns)) {
    if (!value.is_string()) {
      fields.set(fail(ErrorCode::kCorruptData, "key {}: {} is not a string", fields.name(key),
                      show_json(value)));
      return {};
    }
    out.push_back(value.get<std::string>());
  }
  return out;
}

// A group that quantizes inputs or outputs only leaves the weights as they are: nullopt.
Result<std::optional<QuantConfig::Group>> parse_group(const std::string& name, const Json& value,
                                                      const std::string& where) {
  QuantConfig::Group out;
  out.name = name;
  if (value.is_array()) {
    Json holder = Json::object();
    holder["targets"] = value;
    JsonFields fields(holder, where + ".");
    out.targets = read_names(fields, "targets");
    TRINE_TRY(fields.status());
    std::string upper = name;
    std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    const auto preset = preset_scheme(upper);
    if (!preset.has_value()) {
      return fail(ErrorCode::kUnsupported, "key {}: the preset \"{}\" is not supported", where,
                  name.substr(0, 60));
    }
    out.weights = *preset;
    return out;
  }
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "key {} = {}: must be an object", where, show_json(value));
  }
  JsonFields fields(value, where + ".");
  out.targets = read_names(fields, "targets");
  const std::string format = fields.text("format", "");
  TRINE_TRY(fields.status());
  if (!format.empty()) {
    TRINE_TRY(check_format(format, fields.name("format"), false));
  }
  if (fields.has("output_activations")) {
    log::warn("key {}: outputs are not quantized by this engine",
              fields.name("output_activations"));
  }
  const Json* weights = fields.find("weights");
  if (weights == nullptr) {
    log::warn("key {}: only activations are quantized; the weights are used as they are", where);
    return std::optional<QuantConfig::Group>();
  }
  const Json* inputs = fields.find("input_activations");
  if (!weights->is_object() || (inputs != nullptr && !inputs->is_object())) {
    return fail(ErrorCode::kCorruptData, "key {}: weights and input_activations must be objects",
                where);
  }
  JsonFields weight_fields(*weights, where + ".weights.");
  TRINE_TRY_ASSIGN(out.weights, parse_weight_args(weight_fields));
  if (inputs != nullptr) {
    JsonFields input_fields(*inputs, where + ".input_");
    TRINE_TRY(parse_input_args(input_fields, out.weights));
  }
  return out;
}

// Configurations inside the configuration that change the tensors.
Status check_transformations(const JsonFields& fields) {
  if (const Json* sparsity = fields.find("sparsity_config");
      sparsity != nullptr && !says_nothing(*sparsity)) {
    const auto format = sparsity->is_object() ? sparsity->find("format") : sparsity->end();
    if (!sparsity->is_object() || format == sparsity->end() || *format != "dense") {
      return fail(ErrorCode::kUnsupported, "key {} = {}: sparse weights are not supported",
                  fields.name("sparsity_config"), show_json(*sparsity));
    }
  }
  const Json* transform = fields.find("transform_config");
  if (transform != nullptr && !says_nothing(*transform)) {
    const auto groups =
        transform->is_object() ? transform->find("config_groups") : transform->end();
    if (!transform->is_object() || groups == transform->end() || !says_nothing(*groups)) {
      return fail(ErrorCode::kUnsupported,
                  "key {} = {}: rotated or otherwise transformed weights are not supported",
                  fields.name("transform_config"), show_json(*transform));
    }
  }
  if (const Json* experts = fields.find("moe_sparsity_config");
      experts != nullptr && !says_nothing(*experts)) {
    return fail(ErrorCode::kUnsupported, "key {} = {}: layers that differ in their experts",
                fields.name("moe_sparsity_config"), show_json(*experts));
  }
  return {};
}

Status parse_compressed(JsonFields& fields, QuantConfig& out) {
  const std::string format = fields.text("format", "");
  TRINE_TRY(fields.status());
  if (!format.empty()) {
    TRINE_TRY(check_format(format, fields.name("format"), true));
  }
  TRINE_TRY(check_transformations(fields));
  if (fields.has("kv_cache_scheme")) {
    log::warn(
        "key {}: the file's scales of keys and values are not used; the cache is stored as the "
        "command line says",
        fields.name("kv_cache_scheme"));
  }
  out.ignore = read_names(fields, "ignore");
  const Json* groups = fields.find("config_groups");
  TRINE_TRY(fields.status());
  if (groups == nullptr || !groups->is_object() || groups->size() > kMaxQuantPatterns) {
    return fail(ErrorCode::kCorruptData, "key {}: must be an object of at most {} groups",
                fields.name("config_groups"), kMaxQuantPatterns);
  }
  for (const auto& [name, value] : groups->items()) {
    TRINE_TRY_ASSIGN(
        std::optional<QuantConfig::Group> group,
        parse_group(name, value, fmt::format("{}.{}", fields.name("config_groups"), name)));
    if (group.has_value()) {
      out.groups.push_back(*std::move(group));
    }
  }
  warn_unknown(fields, kCompressedKeys);
  return {};
}

Result<QuantConfig> parse_object(const Json& object, std::string_view where,
                                 std::optional<StoredMethod> fallback) {
  if (!object.is_object()) {
    return fail(ErrorCode::kCorruptData, "the quantization configuration must be an object, not {}",
                show_json(object));
  }
  JsonFields fields(object, std::string(where));
  const std::string method = lower(fields.text(
      "quant_method", fallback.has_value() ? stored_method_name(*fallback) : std::string_view()));
  TRINE_TRY(fields.status());
  QuantConfig out;
  Status status;
  if (method == "gptq") {
    out.method = StoredMethod::kGptq;
    status = parse_gptq(fields, out);
  } else if (method == "awq") {
    out.method = StoredMethod::kAwq;
    status = parse_awq(fields, out);
  } else if (method == "compressed-tensors") {
    out.method = StoredMethod::kCompressedTensors;
    status = parse_compressed(fields, out);
  } else if (method == "fp8") {
    out.method = StoredMethod::kFp8;
    status = parse_fp8(fields, out);
  } else {
    return fail(ErrorCode::kUnsupported,
                "key {} = \"{}\": supported are gptq, awq, compressed-tensors and fp8",
                fields.name("quant_method"), method.substr(0, 60));
  }
  TRINE_TRY(status);
  return out;
}

// ---- modules

JsonLimits file_limits() {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = kMaxFileBytes;
  return limits;
}

bool is_pattern(std::string_view target) {
  return target.starts_with("re:");
}

// From the most to the least specific: 3 the module itself, 2 a pattern, 1 its class, 0 none.
Result<int> match_targets(std::span<const std::string> targets, std::string_view module,
                          std::string_view class_name, const ModuleMatcher& matches) {
  int best = 0;
  for (const std::string& target : targets) {
    if (target == module) {
      return 3;
    }
    if (is_pattern(target) && best < 2) {
      TRINE_TRY_ASSIGN(const bool found, matches(target.substr(3), module));
      best = found ? 2 : best;
    } else if (target == class_name) {
      best = std::max(best, 1);
    }
  }
  return best;
}

}  // namespace

std::string_view stored_method_name(StoredMethod method) {
  switch (method) {
    case StoredMethod::kGptq:
      return "gptq";
    case StoredMethod::kAwq:
      return "awq";
    case StoredMethod::kCompressedTensors:
      return "compressed-tensors";
    case StoredMethod::kFp8:
      return "fp8";
  }
  return "";
}

Result<QuantConfig> parse_quant_config(const Json& object, std::string_view where) {
  return parse_object(object, where, std::nullopt);
}

Result<QuantConfig> parse_quant_config_file(std::string_view json_text, StoredMethod method) {
  TRINE_TRY_ASSIGN(const Json root, parse_json(json_text, file_limits()));
  return parse_object(root, "", method);
}

Result<QuantConfig> parse_gguf_quant_config(std::string_view json_text, std::string_view where) {
  auto root = parse_json(json_text, file_limits());
  if (!root.has_value()) {
    return tl::unexpected<Error>(std::move(root).error().with_context(where));
  }
  if (!root->is_object()) {
    return fail(ErrorCode::kCorruptData, "key {} = {}: must be an object", where, show_json(*root));
  }
  const std::string prefix = fmt::format("{}: ", where);
  JsonFields fields(*root, prefix);
  const std::string_view only = stored_method_name(StoredMethod::kCompressedTensors);
  const std::string method = lower(fields.text("quant_method", only));
  const std::string format = fields.text("format", kPackedFormat);
  TRINE_TRY(fields.status());
  if (method != only) {
    return fail(ErrorCode::kUnsupported, "key {} = \"{}\": GGUF files hold {} only",
                fields.name("quant_method"), method.substr(0, 60), only);
  }
  if (format != kPackedFormat && format != "int-quantized" && format != "mixed-precision") {
    return fail(
        ErrorCode::kUnsupported,
        "key {} = \"{}\": GGUF files hold pack-quantized, int-quantized and mixed-precision "
        "(of these two)",
        fields.name("format"), format.substr(0, 60));
  }
  TRINE_TRY_ASSIGN(QuantConfig out, parse_object(*root, prefix, StoredMethod::kCompressedTensors));
  out.shapes_optional = true;
  return out;
}

Result<std::optional<WeightScheme>> scheme_of_module(const QuantConfig& config,
                                                     std::string_view module,
                                                     std::string_view class_name,
                                                     const ModuleMatcher& matches) {
  if (config.method != StoredMethod::kCompressedTensors) {
    for (const QuantConfig::Override& entry : config.overrides) {
      TRINE_TRY_ASSIGN(const bool found, matches(entry.pattern, module));
      if (!found) {
        continue;
      }
      if (entry.skip) {
        return std::optional<WeightScheme>();
      }
      WeightScheme out = config.weights;
      out.bits = entry.bits.value_or(out.bits);
      out.symmetric = entry.symmetric.has_value() ? entry.symmetric : out.symmetric;
      if (entry.group.has_value()) {
        set_group(out, *entry.group == 0 ? -1 : *entry.group);
      }
      return out;
    }
    return std::optional(config.weights);
  }
  TRINE_TRY_ASSIGN(const int ignored, match_targets(config.ignore, module, class_name, matches));
  if (ignored > 0) {
    return std::optional<WeightScheme>();
  }
  const QuantConfig::Group* best = nullptr;
  int best_rank = 0;
  for (const QuantConfig::Group& group : config.groups) {
    TRINE_TRY_ASSIGN(const int rank, match_targets(group.targets, module, class_name, matches));
    if (rank > best_rank) {
      best = &group;
      best_rank = rank;
    }
  }
  return best == nullptr ? std::optional<WeightScheme>() : std::optional(best->weights);
}

}  // namespace trine
