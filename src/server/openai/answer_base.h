// What the answers of all endpoints have in common. For this folder only.
// Thread rule: as Answer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/openai/answer.h"

namespace trine::server::openai {

using Json = nlohmann::ordered_json;

// One line; invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& value);
// A number for JSON: what is not finite becomes -9999, as OpenAI writes it.
double shown_logprob(double value);
bool is_utf8(std::string_view text);
// Of an event that ends an answer with an error or because it was cancelled.
ApiError ended_early(const AnswerEvent& event);

// How tokens are written in logprobs.
class TokenTexts {
 public:
  TokenTexts(std::shared_ptr<const text::Tokenizer> tokenizer, bool as_ids)
      : tokenizer_(std::move(tokenizer)), as_ids_(as_ids) {}

  // The bytes of a token; of a control token its spelling.
  std::string bytes(std::int32_t token) const;
  // The text of a token; bytes that are no UTF-8 by themselves as `mark` and \xNN.
  std::string show(std::int32_t token, std::string_view mark) const;

  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool as_ids_;
};

// {"token", "logprob", "bytes", "top_logprobs"}: of chat and /v1/responses.
Json chat_logprob(const TokenTexts& texts, std::int32_t token, const sampling::Logprobs& logprobs);

// The old shape of /v1/completions, grown token by token.
class OldLogprobs {
 public:
  explicit OldLogprobs(bool skip_special) : skip_special_(skip_special) {}

  // `logprobs` null: nothing is known (the first token of a prompt).
  void add(const TokenTexts& texts, std::int32_t token, const sampling::Logprobs* logprobs);
  // What was added since the last take(), as {"tokens", "token_logprobs", "top_logprobs",
  // "text_offset"}.
  Json take();

 private:
  bool skip_special_;
  text::DecodeState state_;
  std::int64_t characters_ = 0;  // whole ones before the next token
  std::string open_;             // bytes of one that is not whole yet
  Json tokens_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json top_logprobs_ = Json::array();
  Json offsets_ = Json::array();
};

class AnswerBase : public Answer {
 public:
  AnswerBase(const CommonRequest& request, AnswerContext context, std::int32_t num_prompts);

  void set_prompt(std::int32_t prompt, std::vector<std::int32_t> tokens) override;
  void add(const AnswerEvent& event, std::vector<SseEvent>& out) final;
  void fail(const ApiError& error, std::vector<SseEvent>& out) override;

  bool done() const override { return open_ == 0; }

  const std::optional<ApiError>& error() const override { return error_; }

 protected:
  struct Usage {
    std::int64_t prompt = 0;
    std::int64_t cached = 0;
    std::int64_t generated = 0;
  };

  struct PromptPart {
    std::vector<std::int32_t> tokens;
    std::int32_t cached = 0;
  };

  // An event that is no error, with the number of its choice.
  virtual void take(std::int32_t choice, const AnswerEvent& event, std::vector<SseEvent>& out) = 0;
  // All answers have ended.
  virtual void close(std::vector<SseEvent>& out) = 0;

  std::int32_t num_choices() const {
    return static_cast<std::int32_t>(prompts_.size()) * per_prompt_;
  }

  Usage usage() const;
  // {"prompt_tokens", "completion_tokens", ...}
  Json usage_json() const;
  // id, object, created, model, system_fingerprint.
  Json head(std::string_view prefix, std::string_view object) const;
  // The same with one choice and what a chunk has beside it.
  Json chunk(std::string_view prefix, std::string_view object, Json choices);
  std::string new_id(std::string_view prefix);
  void add_warnings(Json& body) const;

  const CommonRequest request_;
  const AnswerContext context_;
  const TokenTexts texts_;
  std::vector<PromptPart> prompts_;
  std::int32_t per_prompt_;
  std::int64_t generated_ = 0;  // tokens

 private:
  void end_with(const ApiError& error, std::vector<SseEvent>& out);

  std::int32_t open_;  // answers that have not ended
  std::uint64_t ids_made_ = 0;
  bool warned_ = false;
  std::optional<ApiError> error_;
};

// "stop" or "length".
std::string_view finish_name(FinishReason reason);

}  // namespace trine::server::openai
