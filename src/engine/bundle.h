// Everything a model path holds: weights, tokenizer, chat templates and the model's own sampling
// defaults.
//
// A GGUF file carries all of it in its metadata; a directory has tokenizer.json,
// tokenizer_config.json, chat_template.jinja, generation_config.json beside the weights. Reading
// the text side touches no weights. A missing or unusable tokenizer or template is kept as an error
// and reported by the call that needs it: logits work without either. Thread rule: immutable after
// loading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace trine {

// Sampling defaults that the model's authors ship: generation_config.json, or general.sampling.* of
// a GGUF file. They rank below file, environment and flags and above our own defaults, and `trine
// config show MODEL --origin` shows them. The same keys count as in vLLM; do_sample is not one of
// them. Values outside our ranges are an error.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_tokens;
  std::string source;  // "generation_config.json", "general.sampling"; empty when there is none
  // End tokens that the model's authors name, besides those of the tokenizer.
  std::vector<std::int32_t> eos_ids;
};

class ModelText {
 public:
  // `path` is a GGUF file, a directory, or a safetensors file (whose directory is read). Errors:
  // not_found, corrupt_data for JSON or metadata that is broken; not for a tokenizer or template
  // that cannot be used.
  static Result<ModelText> load(const std::string& path);

  const std::string& path() const { return path_; }

  bool has_tokenizer() const { return tokenizer_ != nullptr; }

  // Errors: what was wrong with it, or unsupported when the model has none.
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const;

  bool has_chat_template() const { return !templates_.empty(); }

  // The template for a conversation with or without tools: among several the one named "tool_use"
  // when there are tools, else "default". Errors: unsupported when the model has none; its parse
  // error.
  Result<std::shared_ptr<const text::ChatTemplate>> chat_template(bool with_tools) const;
  // Names of the templates, "default" for an unnamed one.
  std::vector<std::string> template_names() const;

  // The text of the template for a conversation without tools; empty when there is none.
  std::string chat_template_source() const;

  // (name, text) of the templates, as template_names(); without those that hold no text.
  std::vector<std::pair<std::string, std::string>> template_sources() const;

  // What templates see as bos_token and eos_token; may be empty.
  const std::string& bos_token() const { return bos_token_; }

  const std::string& eos_token() const { return eos_token_; }

  const GenerationDefaults& generation() const { return generation_; }

  // All ids that end an answer: the tokenizer's and the model's, ascending, without duplicates.
  std::vector<std::int32_t> stop_ids() const;

 private:
  struct Template {
    std::string name;
    std::string source;
    Result<std::shared_ptr<const text::ChatTemplate>> parsed;
  };

  Status load_gguf(const std::string& path);
  Status load_directory(const std::string& directory);
  void add_template(std::string name, std::string_view source, std::string_view where);
  void set_tokenizer(Result<std::shared_ptr<const text::Tokenizer>> tokenizer);

  std::string path_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  Error tokenizer_error_;
  std::vector<Template> templates_;
  std::string bos_token_;
  std::string eos_token_;
  GenerationDefaults generation_;
};

// The ids that end an answer: those of both sides, without those past the model's rows, which
// cannot be drawn (a warning says so).
std::vector<std::int32_t> end_ids(const ModelText& text, const ModelConfig& config);

// Ids of a rendered conversation. Errors: the tokenizer's; corrupt_data when the template names a
// token past the model's rows, which is a fault of the model's files and not of who asks.
Result<std::vector<std::int32_t>> encode_conversation(const text::Tokenizer& tokenizer,
                                                      std::span<const text::TextPart> parts,
                                                      const ModelConfig& config);

struct ModelBundle {
  std::shared_ptr<const ModelText> text;
  std::shared_ptr<const Model> model;
  // Bytes of weights that a decode step of one sequence reads: all tensors, but of an untied
  // embedding table nothing and of experts the share that one token uses.
  double weight_bytes_per_step = 0.0;

  // Loads both sides of `path`.
  static Result<ModelBundle> load(const std::string& path, const Model::LoadOptions& options);
};

}  // namespace trine
