#include "server/openai/answer_base.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"

namespace trine::server::openai {

namespace {

// Length of the character that begins with this byte, 0 when none does.
std::size_t character_length(unsigned char c) {
  if (c < 0x80) {
    return 1;
  }
  if (c >= 0xc2 && c < 0xe0) {
    return 2;
  }
  if (c >= 0xe0 && c < 0xf0) {
    return 3;
  }
  return c >= 0xf0 && c < 0xf5 ? 4 : 0;
}

// The second byte keeps overlong forms, surrogates and what is beyond Unicode out.
bool second_fits(unsigned char first, unsigned char second) {
  const unsigned low = first == 0xe0 ? 0xa0u : first == 0xf0 ? 0x90u : 0x80u;
  const unsigned high = first == 0xed ? 0x9fu : first == 0xf4 ? 0x8fu : 0xbfu;
  return second >= low && second <= high;
}

// Bytes of the whole character at the begin of `text`: 0 when it is not whole yet, and one byte for
// what is no character.
std::size_t take_character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = character_length(at(0));
  if (length <= 1) {
    return 1;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      return 0;
    }
    const bool fits = i == 1 ? second_fits(at(0), at(1)) : (at(i) & 0xc0u) == 0x80u;
    if (!fits) {
      return 1;
    }
  }
  return length;
}

}  // namespace

ApiError ended_early(const AnswerEvent& event) {
  if (event.error && event.error->code == ErrorCode::kCancelled) {
    return deadline_passed(event.error->message);  // all that an engine ends so
  }
  if (event.error) {
    return api_error(*event.error);
  }
  return api_error(Error{ErrorCode::kCancelled, "the request was cancelled"});
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double shown_logprob(double value) {
  constexpr double kImpossible = -9999.0;
  return std::isfinite(value) ? value : kImpossible;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = take_character(text);
    if (length == 0 || (length == 1 && static_cast<unsigned char>(text.front()) >= 0x80)) {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

std::string TokenTexts::bytes(std::int32_t token) const {
  if (tokenizer_ == nullptr || token < 0 || token >= tokenizer_->vocab_size()) {
    return {};
  }
  std::string out = tokenizer_->token_bytes(token);
  return out.empty() ? std::string(tokenizer_->piece(token)) : out;
}

std::string TokenTexts::show(std::int32_t token, std::string_view mark) const {
  if (as_ids_ || tokenizer_ == nullptr) {
    return fmt::format("token_id:{}", token);
  }
  std::string raw = bytes(token);
  if (is_utf8(raw)) {
    return raw;
  }
  std::string out(mark);
  for (const char c : raw) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

Json chat_logprob(const TokenTexts& texts, std::int32_t token, const sampling::Logprobs& logprobs) {
  const auto entry = [&](std::int32_t id, double logprob) {
    Json bytes = Json::array();
    for (const char c : texts.bytes(id)) {
      bytes.push_back(static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    Json out;
    out["token"] = texts.show(id, "");
    out["logprob"] = shown_logprob(logprob);
    out["bytes"] = std::move(bytes);
    return out;
  };
  Json out = entry(token, logprobs.chosen);
  out["top_logprobs"] = Json::array();
  for (const sampling::TokenLogprob& top : logprobs.top) {
    out["top_logprobs"].push_back(entry(top.token, top.logprob));
  }
  return out;
}

void OldLogprobs::add(const TokenTexts& texts, std::int32_t token,
                      const sampling::Logprobs* logprobs) {
  constexpr std::string_view kMark = "bytes:";
  const std::string shown = texts.show(token, kMark);
  tokens_.push_back(shown);
  offsets_.push_back(characters_);
  if (texts.tokenizer() != nullptr && token >= 0 && token < texts.tokenizer()->vocab_size()) {
    texts.tokenizer()->append_bytes(state_, token, skip_special_, open_);
  }
  std::string_view rest = open_;
  while (!rest.empty()) {
    const std::size_t length = take_character(rest);
    if (length == 0) {
      break;
    }
    ++characters_;
    rest.remove_prefix(length);
  }
  open_ = std::string(rest);
  if (logprobs == nullptr) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
    return;
  }
  token_logprobs_.push_back(shown_logprob(logprobs->chosen));
  // The likelier of two tokens that look the same comes first and stays. The chosen one is always
  // among them.
  Json top = Json::object();
  for (const sampling::TokenLogprob& each : logprobs->top) {
    const std::string name = texts.show(each.token, kMark);
    if (!top.contains(name)) {
      top[name] = shown_logprob(each.logprob);
    }
  }
  if (!top.contains(shown)) {
    top[shown] = shown_logprob(logprobs->chosen);
  }
  top_logprobs_.push_back(std::move(top));
}

Json OldLogprobs::take() {
  Json out;
  out["tokens"] = std::exchange(tokens_, Json::array());
  out["token_logprobs"] = std::exchange(token_logprobs_, Json::array());
  out["top_logprobs"] = std::exchange(top_logprobs_, Json::array());
  out["text_offset"] = std::exchange(offsets_, Json::array());
  return out;
}

AnswerBase::AnswerBase(const CommonRequest& request, AnswerContext context,
                       std::int32_t num_prompts)
    : request_(request),
      context_(std::move(context)),
      texts_(context_.tokenizer, request.tokens_as_ids),
      prompts_(static_cast<std::size_t>(num_prompts)),
      per_prompt_(request.generation.n),
      open_(num_prompts * request.generation.n) {}

void AnswerBase::set_prompt(std::int32_t prompt, std::vector<std::int32_t> tokens) {
  prompts_[static_cast<std::size_t>(prompt)].tokens = std::move(tokens);
}

void AnswerBase::add(const AnswerEvent& event, std::vector<SseEvent>& out) {
  if (done()) {
    return;
  }
  TRINE_CHECK(event.prompt >= 0 && static_cast<std::size_t>(event.prompt) < prompts_.size());
  TRINE_CHECK(event.answer >= 0 && event.answer < per_prompt_);
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
    end_with(ended_early(event), out);
    return;
  }
  if (event.token >= 0) {
    ++generated_;
  }
  if (event.stats) {
    prompts_[static_cast<std::size_t>(event.prompt)].cached = event.stats->cached_tokens;
  }
  take(event.prompt * per_prompt_ + event.answer, event, out);
  if (event.finish && --open_ == 0) {
    close(out);
  }
}

void AnswerBase::end_with(const ApiError& error, std::vector<SseEvent>& out) {
  error_ = error;
  open_ = 0;
  if (request_.stream) {
    fail(error, out);
  }
}

void AnswerBase::fail(const ApiError& error, std::vector<SseEvent>& out) {
  if (!error_) {
    error_ = error;
  }
  open_ = 0;
  out.push_back({.name = "", .data = error_body(error)});
  out.push_back({.name = "", .data = "[DONE]"});
}

AnswerBase::Usage AnswerBase::usage() const {
  Usage out;
  for (const PromptPart& part : prompts_) {
    out.prompt += static_cast<std::int64_t>(part.tokens.size());
    out.cached += part.cached;
  }
  out.generated = generated_;
  return out;
}

Json AnswerBase::usage_json() const {
  const Usage sums = usage();
  Json out;
  out["prompt_tokens"] = sums.prompt;
  out["completion_tokens"] = sums.generated;
  out["total_tokens"] = sums.prompt + sums.generated;
  out["prompt_tokens_details"] = Json{{"cached_tokens", sums.cached}};
  return out;
}

Json AnswerBase::head(std::string_view prefix, std::string_view object) const {
  Json out;
  out["id"] = fmt::format("{}{}", prefix, context_.id);
  out["object"] = object;
  out["created"] = context_.created_unix_s;
  out["model"] = context_.model;
  out["system_fingerprint"] = nullptr;
  if (!context_.system_fingerprint.empty()) {
    out["system_fingerprint"] = context_.system_fingerprint;
  }
  return out;
}

Json AnswerBase::chunk(std::string_view prefix, std::string_view object, Json choices) {
  Json out = head(prefix, object);
  out["choices"] = std::move(choices);
  if (request_.include_usage) {
    out["usage"] = request_.continuous_usage ? usage_json() : Json(nullptr);
  }
  if (!warned_) {
    warned_ = true;
    add_warnings(out);
  }
  return out;
}

std::string AnswerBase::new_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, context_.id_seed, ids_made_++);
}

void AnswerBase::add_warnings(Json& body) const {
  if (!request_.warnings.empty()) {
    body["warnings"] = request_.warnings;
  }
}

std::string_view finish_name(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

}  // namespace trine::server::openai
