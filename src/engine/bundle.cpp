#include "engine/bundle.h"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

#include "base/log.h"
#include "format/open.h"

namespace trine {

namespace {

bool is_directory(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash + 1);
}

// The experts' matrices in all their spellings: safetensors (".experts.3."), GGUF (merged "_exps.",
// or one by one "ffn_up.3.weight").
bool is_expert(std::string_view name) {
  if (name.find("_exps.") != std::string_view::npos ||
      name.find(".experts.") != std::string_view::npos) {
    return true;
  }
  for (const std::string_view part : {".ffn_gate.", ".ffn_up.", ".ffn_down."}) {
    const std::size_t at = name.find(part);
    if (at != std::string_view::npos && at + part.size() < name.size()) {
      const char next = name[at + part.size()];
      return next >= '0' && next <= '9';
    }
  }
  return false;
}

// Bytes of weights that one token's step reads.
double weight_traffic(const Checkpoint& weights, const ModelConfig& config) {
  double bytes = 0.0;
  for (const TensorInfo& tensor : weights.tensors()) {
    const bool embedding =
        tensor.name.starts_with("token_embd.") ||
        tensor.name.find("embed_tokens.") != std::string::npos;  // or its codes and scales
    if (embedding && !config.tied_embeddings) {
      continue;
    }
    const double share =
        config.moe.has_value() && is_expert(tensor.name)
            ? static_cast<double>(config.moe->experts_per_token) / config.moe->num_experts
            : 1.0;
    bytes += share * static_cast<double>(tensor.data.size());
  }
  return bytes;
}

}  // namespace

Result<ModelText> ModelText::load(const std::string& path) {
  ModelText out;
  out.path_ = path;
  out.tokenizer_error_ = Error{ErrorCode::kUnsupported, path + ": the model has no tokenizer"};
  TRINE_TRY_ASSIGN(const CheckpointKind kind, detect_checkpoint(path));
  if (kind == CheckpointKind::kGguf) {
    TRINE_TRY(out.load_gguf(path));
  } else {
    TRINE_TRY(out.load_directory(is_directory(path) ? path : parent_of(path)));
  }
  return out;
}

void ModelText::set_tokenizer(Result<std::shared_ptr<const text::Tokenizer>> tokenizer) {
  if (!tokenizer.has_value()) {
    tokenizer_error_ = std::move(tokenizer).error();
    return;
  }
  tokenizer_ = *std::move(tokenizer);
  const auto bos = tokenizer_->bos();
  if (bos_token_.empty() && bos.has_value()) {
    bos_token_ = tokenizer_->piece(*bos);
  }
  const auto eos = tokenizer_->eos();
  if (eos_token_.empty() && eos.has_value()) {
    eos_token_ = tokenizer_->piece(*eos);
  }
}

void ModelText::add_template(std::string name, std::string_view source, std::string_view where) {
  for (const Template& known : templates_) {
    if (known.name == name) {
      return;  // sources are read in falling precedence
    }
  }
  auto parsed = text::ChatTemplate::parse(source);
  if (!parsed.has_value()) {
    parsed = tl::unexpected(std::move(parsed).error().with_context(where));
  }
  templates_.push_back({std::move(name), std::string(source), std::move(parsed)});
}

std::string ModelText::chat_template_source() const {
  for (const Template& known : templates_) {
    if (known.name == "default") {
      return known.source;
    }
  }
  return templates_.empty() ? std::string() : templates_.front().source;
}

Result<std::shared_ptr<const text::Tokenizer>> ModelText::tokenizer() const {
  if (tokenizer_ == nullptr) {
    return tl::unexpected(tokenizer_error_);
  }
  return tokenizer_;
}

Result<std::shared_ptr<const text::ChatTemplate>> ModelText::chat_template(bool with_tools) const {
  const auto named = [&](std::string_view name) {
    return std::find_if(templates_.begin(), templates_.end(),
                        [&](const Template& t) { return t.name == name; });
  };
  auto found = with_tools ? named("tool_use") : templates_.end();
  if (found == templates_.end()) {
    found = named("default");
  }
  if (found == templates_.end() && templates_.size() == 1) {
    found = templates_.begin();
  }
  if (found != templates_.end()) {
    return found->parsed;
  }
  if (templates_.empty()) {
    return fail(ErrorCode::kUnsupported,
                "{}: the model has no chat template (a base model?); use `trine run --raw` to "
                "continue a text",
                path_);
  }
  return fail(ErrorCode::kUnsupported,
              "{}: none of the model's {} chat templates is named 'default'", path_,
              templates_.size());
}

std::vector<std::string> ModelText::template_names() const {
  std::vector<std::string> names;
  names.reserve(templates_.size());
  for (const Template& t : templates_) {
    names.push_back(t.name);
  }
  return names;
}

std::vector<std::int32_t> ModelText::stop_ids() const {
  std::vector<std::int32_t> ids = generation_.eos_ids;
  if (tokenizer_ != nullptr) {
    ids.insert(ids.end(), tokenizer_->stop_ids().begin(), tokenizer_->stop_ids().end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<std::int32_t> end_ids(const ModelText& text, const ModelConfig& config) {
  std::vector<std::int32_t> out = text.stop_ids();
  std::erase_if(out, [&config](std::int32_t id) {
    if (id >= config.vocab_size) {
      log::warn("the tokenizer's end token {} is past the model's {} ids and cannot be drawn", id,
                config.vocab_size);
    }
    return id >= config.vocab_size;
  });
  out.insert(out.end(), config.eos_ids.begin(), config.eos_ids.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<std::int32_t>> encode_conversation(const text::Tokenizer& tokenizer,
                                                      std::span<const text::TextPart> parts,
                                                      const ModelConfig& config) {
  TRINE_TRY_ASSIGN(std::vector<std::int32_t> ids, tokenizer.encode_parts(parts, false));
  for (const std::int32_t id : ids) {
    if (id >= config.vocab_size) {
      return fail(ErrorCode::kCorruptData,
                  "the chat template uses token {} ({}), but the model has rows for {} tokens: its "
                  "tokenizer or template belongs to another model",
                  id, tokenizer.piece(id), config.vocab_size);
    }
  }
  return ids;
}

Result<ModelBundle> ModelBundle::load(const std::string& path, const Model::LoadOptions& options) {
  ModelBundle bundle;
  TRINE_TRY_ASSIGN(ModelText text, ModelText::load(path));
  bundle.text = std::make_shared<const ModelText>(std::move(text));
  TRINE_TRY_ASSIGN(bundle.model, Model::load(path, options));
  for (const std::int32_t id : bundle.text->generation().eos_ids) {
    if (id >= bundle.model->config().vocab_size) {
      return fail(ErrorCode::kCorruptData,
                  "{}: {}: eos_token_id {} is not in the vocabulary of {} tokens", path,
                  bundle.text->generation().source, id, bundle.model->config().vocab_size);
    }
  }
  // Opened once more for the sizes alone: the pages are shared with the model's own mapping.
  TRINE_TRY_ASSIGN(const OpenedCheckpoint opened, open_checkpoint(path));
  bundle.weight_bytes_per_step = weight_traffic(opened.weights(), bundle.model->config());
  return bundle;
}

}  // namespace trine
