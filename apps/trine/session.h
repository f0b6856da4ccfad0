// A model ready to answer: what `trine run` and `trine chat` share. Thread rule: main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/trine/command.h"
#include "engine/bundle.h"
#include "engine/engine.h"

namespace trine::app {

struct Answer {
  std::string text;
  std::vector<std::int32_t> ids;  // end tokens included
  FinishReason finish = FinishReason::kStop;
  std::string matched_stop;
  std::vector<sampling::Logprobs> logprobs;  // one per id, when asked for
};

struct Generation {
  std::vector<Answer> answers;
  RequestStats stats;

  bool cancelled() const;
};

class Session {
 public:
  // Loads the model of the first argument, lays its sampling defaults under `context`'s settings
  // and starts an engine for up to `max_answers` answers at once, each held to the structure that
  // the settings ask for. Errors: those of the parts; unsupported when there is no tokenizer.
  static Result<Session> open(CommandContext& context, std::int32_t max_answers);

  const ModelText& text() const { return *bundle_.text; }

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

  const ModelConfig& config() const { return bundle_.model->config(); }

  std::int32_t context_tokens() const { return engine_->context_tokens(); }

  // A request with the prompt and everything that `settings` say about sampling. Errors:
  // invalid_argument naming the option.
  Result<GenerationRequest> request(std::vector<std::int32_t> prompt,
                                    const options::Settings& settings) const;

  // The conversation as the model sees it. `messages` is an array in the OpenAI shape. Errors:
  // those of the template.
  Result<std::vector<std::int32_t>> encode_chat(const nlohmann::ordered_json& messages) const;

  // Runs the request to its end; `on_text` gets every piece of text as soon as it can be shown.
  // Ctrl-C and a stdout that went away end it as cancelled. Errors: those of the request and of the
  // model; exhausted, naming the options, when the answers do not fit the memory.
  Result<Generation> generate(
      GenerationRequest request,
      const std::function<void(std::int32_t answer, std::string_view text)>& on_text);

 private:
  // An engine whose page pool holds all answers of the request, in place of a smaller one.
  Status make_room(const GenerationRequest& request);

  ModelBundle bundle_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const grammar::CompiledGrammar> grammar_;  // null: any text
};

// Rows of Session::open and Session::request.
std::vector<std::string_view> session_options();

// "prompt 12 tokens, answer 34 tokens; TTFT 8.1 ms; prefill 1481 tokens/s; decode 210
// tokens/s, 28.4 GB/s (measured)".
std::string stats_line(const RequestStats& stats);
nlohmann::ordered_json stats_json(const RequestStats& stats);
nlohmann::ordered_json answer_json(const Answer& answer, const text::Tokenizer& tokenizer);

}  // namespace trine::app
