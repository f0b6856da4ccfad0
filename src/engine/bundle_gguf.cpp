// ModelText from the metadata of a GGUF file. Every key is checked for its type, every array for
// its length.
#include <limits>
#include <utility>

#include "base/printable.h"
#include "engine/bundle.h"
#include "format/gguf.h"

namespace trine {

namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

Result<std::optional<std::int32_t>> optional_id(const GgufMetadata& metadata, std::string_view key,
                                                std::size_t vocab_size) {
  if (!metadata.has(key)) {
    return std::nullopt;
  }
  TRINE_TRY_ASSIGN(const std::int64_t id, metadata.get_int(key));
  // Some converters write -1 or the largest number for "none".
  if (id == -1 || id == std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  if (id < 0 || static_cast<std::uint64_t>(id) >= vocab_size) {
    return fail(ErrorCode::kCorruptData, "{}: id {} is outside the vocabulary of {} tokens", key,
                id, vocab_size);
  }
  return static_cast<std::int32_t>(id);
}

Result<std::optional<bool>> optional_bool(const GgufMetadata& metadata, std::string_view key) {
  if (!metadata.has(key)) {
    return std::nullopt;
  }
  TRINE_TRY_ASSIGN(const bool value, metadata.get_bool(key));
  return value;
}

template <typename T>
Status optional_array(const GgufMetadata& metadata, std::string_view key,
                      std::optional<std::uint64_t> count, std::vector<T>& out) {
  if (metadata.has(key)) {
    TRINE_TRY_ASSIGN(const auto* array, metadata.get_array<T>(key, count));
    out = *array;
  }
  return {};
}

// The character map is an array of bytes in some files and a string in others.
Result<std::string> charsmap(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  const GgufValue* value = metadata.find(kKey);
  if (value == nullptr) {
    return std::string();
  }
  if (const auto* text = std::get_if<std::string>(value)) {
    return *text;
  }
  TRINE_TRY_ASSIGN(const std::vector<std::int64_t> bytes, metadata.get_int_array(kKey));
  std::string out;
  for (const std::int64_t byte : bytes) {
    if (byte < -128 || byte > 255) {
      return fail(ErrorCode::kCorruptData, "{}: element {} is not a byte", kKey, byte);
    }
    out += static_cast<char>(byte);
  }
  return out;
}

Status read_special_ids(const GgufMetadata& metadata, text::GgufTokenizerData& data) {
  const std::pair<std::string_view, std::optional<std::int32_t>*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &data.bos},
      {"tokenizer.ggml.eos_token_id", &data.eos},
      {"tokenizer.ggml.eot_token_id", &data.eot},
      {"tokenizer.ggml.eom_token_id", &data.eom},
      {"tokenizer.ggml.unknown_token_id", &data.unk},
      {"tokenizer.ggml.padding_token_id", &data.pad}};
  for (const auto& [key, target] : ids) {
    TRINE_TRY_ASSIGN(*target, optional_id(metadata, key, data.tokens.size()));
  }
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"tokenizer.ggml.add_bos_token", &data.add_bos},
      {"tokenizer.ggml.add_eos_token", &data.add_eos},
      {"tokenizer.ggml.add_space_prefix", &data.add_space_prefix},
      {"tokenizer.ggml.remove_extra_whitespaces", &data.remove_extra_whitespaces}};
  for (const auto& [key, target] : flags) {
    TRINE_TRY_ASSIGN(*target, optional_bool(metadata, key));
  }
  return {};
}

Result<std::shared_ptr<const text::Tokenizer>> read_tokenizer(const GgufMetadata& metadata) {
  text::GgufTokenizerData data;
  TRINE_TRY_ASSIGN(data.model, metadata.get_string("tokenizer.ggml.model"));
  if (metadata.has("tokenizer.ggml.pre")) {
    TRINE_TRY_ASSIGN(data.pre, metadata.get_string("tokenizer.ggml.pre"));
  }
  TRINE_TRY_ASSIGN(const auto* tokens, metadata.get_array<std::string>("tokenizer.ggml.tokens"));
  data.tokens = *tokens;
  const std::uint64_t count = data.tokens.size();
  TRINE_TRY(optional_array(metadata, "tokenizer.ggml.scores", count, data.scores));
  TRINE_TRY(optional_array(metadata, "tokenizer.ggml.token_type", count, data.kinds));
  TRINE_TRY(optional_array(metadata, "tokenizer.ggml.merges", std::nullopt, data.merges));
  TRINE_TRY_ASSIGN(data.precompiled_charsmap, charsmap(metadata));
  TRINE_TRY(read_special_ids(metadata, data));
  return text::Tokenizer::from_gguf(std::move(data));
}

Status read_sampling(const GgufMetadata& metadata, GenerationDefaults& out) {
  const std::pair<std::string_view, std::optional<double>*> numbers[] = {
      {"general.sampling.temp", &out.temperature},
      {"general.sampling.top_p", &out.top_p},
      {"general.sampling.min_p", &out.min_p},
      {"general.sampling.penalty_repeat", &out.repetition_penalty}};
  for (const auto& [key, target] : numbers) {
    if (metadata.has(key)) {
      TRINE_TRY_ASSIGN(*target, metadata.get_float(key));
      out.source = "general.sampling";
    }
  }
  if (metadata.has("general.sampling.top_k")) {
    TRINE_TRY_ASSIGN(out.top_k, metadata.get_int("general.sampling.top_k"));
    out.source = "general.sampling";
  }
  return {};
}

}  // namespace

Status ModelText::load_gguf(const std::string& path) {
  TRINE_TRY_ASSIGN(const GgufFile file, open_gguf(path));
  const GgufMetadata& metadata = file.metadata;
  // Two spellings of "there is none".
  const auto kind = metadata.get_string("tokenizer.ggml.model");
  const bool none = kind.has_value() && (*kind == "none" || *kind == "no_vocab");
  if (metadata.has("tokenizer.ggml.model") && !none) {
    auto tokenizer = read_tokenizer(metadata);
    if (!tokenizer.has_value()) {
      tokenizer = tl::unexpected(std::move(tokenizer).error().with_context(path));
    }
    set_tokenizer(std::move(tokenizer));
  }
  for (const auto& [key, value] : metadata.pairs()) {
    const bool is_default = key == kTemplateKey;
    if (!is_default && !(key.starts_with(kTemplateKey) && key[kTemplateKey.size()] == '.')) {
      continue;
    }
    const std::string name = is_default ? "default" : key.substr(kTemplateKey.size() + 1);
    if (const auto* source = std::get_if<std::string>(&value); source != nullptr) {
      add_template(name, *source, key);
    } else {
      templates_.push_back({name, "",
                            fail(ErrorCode::kCorruptData, "metadata key {} is {}, wanted string",
                                 printable(key), gguf_value_type_name(value))});
    }
  }
  Status sampling = read_sampling(metadata, generation_);
  if (!sampling.has_value()) {
    return tl::unexpected(std::move(sampling).error().with_context(path));
  }
  return {};
}

}  // namespace trine
