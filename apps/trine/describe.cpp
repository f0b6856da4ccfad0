#include "apps/trine/describe.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "hub/files.h"
#include "model/config_sources.h"
#include "model/pack_weights.h"
#include "tensor/kv_layout.h"

namespace trine::app {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A prefill step; `run` cuts longer prompts into steps of this size.
constexpr std::int64_t kStepTokens = 512;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{512} << 20;

// nullopt when the file does not exist.
Result<std::optional<std::string>> read_optional(const fs::path& path) {
  Result<std::string> text = hub::read_small_file(path, kMaxTextBytes);
  if (text.has_value()) {
    return std::optional<std::string>(std::move(*text));
  }
  if (text.error().code == ErrorCode::kNotFound) {
    return std::optional<std::string>();
  }
  return tl::unexpected(std::move(text).error());
}

Result<std::optional<Json>> read_optional_json(const fs::path& path) {
  TRINE_TRY_ASSIGN(const std::optional<std::string> text, read_optional(path));
  if (!text.has_value()) {
    return std::optional<Json>();
  }
  Result<Json> value = parse_json(*text);
  if (!value.has_value()) {
    return tl::unexpected(std::move(value).error().with_context(path.string()));
  }
  if (!value->is_object()) {
    return fail(ErrorCode::kCorruptData, "{}: not a JSON object", path.string());
  }
  return std::optional<Json>(std::move(*value));
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// `quantized` says which tensors hold the weights of quantized matrices together.
void count_tensors(ModelDescription& model, std::span<const QuantizedTotal> quantized) {
  model.types.clear();
  model.num_params = 0;
  model.weight_bytes = 0;
  std::unordered_set<std::string_view> counted;
  for (const QuantizedTotal& total : quantized) {
    model.types.push_back({total.what, total.num_matrices, total.num_weights, total.bytes});
    model.num_params += total.num_weights;
    model.weight_bytes += total.bytes;
    counted.insert(total.tensors.begin(), total.tensors.end());
  }
  for (const TensorInfo& tensor : model.checkpoint.weights().tensors()) {
    if (counted.contains(tensor.name)) {
      continue;
    }
    const std::string_view name = dtype_info(tensor.dtype).name;
    auto it = std::find_if(model.types.begin(), model.types.end(),
                           [name](const TypeTotal& t) { return t.name == name; });
    if (it == model.types.end()) {
      model.types.push_back({std::string(name), 0, 0, 0});
      it = model.types.end() - 1;
    }
    ++it->num_tensors;
    it->num_elems += tensor.num_elems();
    it->bytes += tensor.data.size();
    model.num_params += tensor.num_elems();
    model.weight_bytes += tensor.data.size();
  }
  std::sort(model.types.begin(), model.types.end(),
            [](const TypeTotal& a, const TypeTotal& b) { return a.bytes > b.bytes; });
}

void describe_gguf(const GgufFile& file, ModelDescription& model) {
  const GgufMetadata& meta = file.metadata;
  const auto text = [&meta](std::string_view key) {
    const Result<std::string_view> value = meta.get_string(key);
    return value.has_value() ? std::string(*value) : std::string();
  };
  model.format = fmt::format("GGUF v{}", file.version);
  model.architecture = text("general.architecture");
  model.tokenizer = text("tokenizer.ggml.model");
  if (const std::string pre = text("tokenizer.ggml.pre");
      !model.tokenizer.empty() && !pre.empty()) {
    model.tokenizer += fmt::format(", splitter {}", pre);
  }
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : meta.pairs()) {
    const auto* source = std::get_if<std::string>(&value);
    if (source != nullptr && key == kKey) {
      model.templates.insert(model.templates.begin(), {"default", *source});
    } else if (source != nullptr && key.starts_with(kKey) && key[kKey.size()] == '.') {
      model.templates.push_back({key.substr(kKey.size() + 1), *source});
    }
  }
}

// "chat_template" of tokenizer_config.json: one text, or a list of {"name", "template"}.
void add_templates(const Json& value, std::vector<ChatTemplateText>& out) {
  if (value.is_string()) {
    out.push_back({"default", value.get<std::string>()});
  } else if (value.is_array()) {
    for (const Json& entry : value) {
      out.push_back({text_of(entry, "name"), text_of(entry, "template")});
    }
  }
}

Status describe_directory(const fs::path& folder, ModelDescription& model) {
  model.format = "safetensors";
  TRINE_TRY_ASSIGN(const std::optional<Json> config, read_optional_json(folder / "config.json"));
  if (config.has_value()) {
    model.architecture = text_of(*config, "model_type");
  }
  TRINE_TRY_ASSIGN(const std::optional<Json> tokenizer,
                   read_optional_json(folder / "tokenizer.json"));
  if (tokenizer.has_value()) {
    const auto inner = tokenizer->find("model");
    const std::string type = inner == tokenizer->end() ? "" : text_of(*inner, "type");
    model.tokenizer = type.empty() ? "tokenizer.json" : fmt::format("tokenizer.json, {}", type);
  }
  TRINE_TRY_ASSIGN(std::optional<std::string> jinja, read_optional(folder / "chat_template.jinja"));
  if (jinja.has_value()) {
    model.templates.push_back({"default", std::move(*jinja)});
    return {};
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    TRINE_TRY_ASSIGN(const std::optional<Json> file, read_optional_json(folder / name));
    if (model.templates.empty() && file.has_value() && file->contains("chat_template")) {
      add_templates((*file)["chat_template"], model.templates);
    }
  }
  return {};
}

Result<ModelConfig> read_config(const fs::path& folder, const ModelDescription& model) {
  if (!model.checkpoint.gguf.has_value()) {
    return model_config_from_folder(folder);
  }
  auto config = model_config_from_gguf(*model.checkpoint.gguf);
  if (!config.has_value()) {
    return tl::unexpected<Error>(std::move(config).error().with_context(model.path));
  }
  return config;
}

std::uint64_t unsigned_of(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// f32 buffers of one step, per token: residual stream, block input and output; q, k, v, attention
// output; gate and up of the widest MLP; cos and sin.
std::uint64_t activation_bytes_per_token(const ModelConfig& config) {
  std::int64_t ffn = config.ffn_dim;
  if (config.moe.has_value()) {
    ffn = std::max<std::int64_t>(ffn,
                                 std::int64_t{config.moe->experts_per_token} * config.moe->ffn_dim);
  }
  std::int64_t floats = 3 * std::int64_t{config.embed_dim};
  floats += 2 * std::int64_t{config.num_heads} * config.head_dim;
  floats += 2 * std::int64_t{config.num_kv_heads} * config.head_dim;
  floats += 2 * ffn;
  for (const RopeConfig& rope : config.ropes) {
    floats += rope.rotary_dim;
  }
  return unsigned_of(floats) * sizeof(float);
}

Result<MemoryTerms> memory_terms(const OpenedCheckpoint& checkpoint, ModelConfig& config,
                                 const MemoryOptions& options,
                                 std::vector<QuantizedTotal>& quantized) {
  MemoryTerms out;
  TRINE_TRY_ASSIGN(WeightMemory weights, weight_memory(checkpoint, config, options.packs_weights));
  quantized = std::move(weights.quantized);
  out.packed_bytes = weights.packed_bytes;
  out.mapped_bytes = weights.mapped_bytes;
  out.context = options.context > 0 ? options.context : config.context_length;
  out.kv_dtype = options.kv_dtype;
  const KvGeometry kv = {config.num_layers, config.num_kv_heads, config.head_dim, config.head_dim,
                         options.kv_dtype};
  const std::int64_t pages = (out.context + kPageTokens - 1) / kPageTokens;
  out.kv_token_bytes = unsigned_of(kv.bytes_per_token());
  out.kv_context_bytes = unsigned_of(pages) * unsigned_of(kv.page_bytes());
  out.step_tokens = std::min(kStepTokens, out.context);
  out.activation_bytes = unsigned_of(out.step_tokens) * activation_bytes_per_token(config);
  out.logit_row_bytes = unsigned_of(config.vocab_size) * sizeof(float);
  out.total_bytes = out.packed_bytes + out.mapped_bytes + out.kv_context_bytes +
                    out.activation_bytes + out.logit_row_bytes;
  return out;
}

}  // namespace

Result<ModelDescription> describe_model(const std::string& path, const MemoryOptions& options) {
  ModelDescription out;
  out.path = path;
  TRINE_TRY_ASSIGN(out.checkpoint, open_checkpoint(path));
  count_tensors(out, {});
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  if (out.checkpoint.gguf.has_value()) {
    describe_gguf(*out.checkpoint.gguf, out);
  } else {
    TRINE_TRY(describe_directory(folder, out));
  }
  Result<ModelConfig> config = read_config(folder, out);
  if (!config.has_value()) {
    // Describing what cannot be run is half of what this is for.
    out.unsupported = std::move(config).error();
    return out;
  }
  if (options.context > config->context_length) {
    return fail(ErrorCode::kInvalidArgument, "--ctx is {}, the model's context is {}",
                options.context, config->context_length);
  }
  std::vector<QuantizedTotal> quantized;
  Result<MemoryTerms> memory = memory_terms(out.checkpoint, *config, options, quantized);
  if (!memory.has_value()) {
    out.unsupported = std::move(memory).error().with_context(path);
    return out;
  }
  count_tensors(out, quantized);
  out.config = std::move(*config);
  out.memory = *memory;
  return out;
}

}  // namespace trine::app
