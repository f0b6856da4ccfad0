// What a caller asks of the engine and what it gets back.
// Thread rule: plain values.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/matcher.h"
#include "sampling/sampler.h"
#include "sampling/sampling_params.h"

namespace trine {

using RequestId = std::uint64_t;

enum class Pooling : std::uint8_t {
  kNone,
  kMean,  // of all tokens; computed whole, without the prefix cache
  kLast,
};

// What the caller calls these fields of a request, for messages.
struct FieldNames {
  std::string prompt = "prompt";
  std::string max_tokens = "max_tokens";
  std::string stop_ids = "stop_ids";
};

struct GenerationRequest {
  std::vector<std::int32_t> prompt = {};  // at least one token
  sampling::SamplingParams sampling = {};
  // Independent answers to one prompt. They share the prompt's pages; answer i draws with seed + i
  // (mod 2^64), so it equals the only answer of a request with that seed.
  std::int32_t n = 1;
  // Without a number: to the end of the context. 0: nothing is drawn, an answer ends (kLength) when
  // the prompt is read; so the prompt may fill the context.
  std::optional<std::int32_t> max_tokens = std::nullopt;
  // Texts that end an answer; not part of it unless include_stop. Before sampling.min_tokens tokens
  // are out they do not count.
  std::vector<std::string> stop = {};
  bool include_stop = false;
  // Tokens that end an answer, besides the model's own. Their text is shown with include_stop only.
  std::vector<std::int32_t> stop_ids = {};
  // The model's end tokens do not end the answer (benchmarks, fixed-length output).
  bool ignore_eos = false;
  // What every answer must match, bound to the tokenizer's vocabulary; null: any text. A token that
  // ends an answer is possible only where the text may end, and an answer that nothing can follow
  // ends by itself (kStop), before min_tokens too. Where the text may end or go on, min_tokens
  // makes it go on, and ignore_eos as far as it can. max_tokens and stop strings cut the text where
  // they apply. An answer that no token can continue, or whose grammar breaks a work budget, ends
  // with an error.
  std::shared_ptr<const grammar::CompiledGrammar> grammar = nullptr;
  // Log-probabilities of the prompt's tokens, with so many alternatives. They come with the first
  // event. Such a prompt is computed whole: the prefix cache has no logits.
  std::optional<std::int32_t> prompt_logprobs = std::nullopt;
  // Not kNone: nothing is drawn. The only answer ends (kStop) with the prompt's vector, the rows
  // behind the last norm pooled so. max_tokens is not looked at, and the prompt may fill the
  // context.
  Pooling pooling = Pooling::kNone;
  // Leave control tokens out of the text.
  bool skip_special = true;
  // Comes together with the request that was submitted just before: the queue, which took that one,
  // takes this one too.
  bool joins_previous = false;
  // Whose request it is: tenants are served evenly and share no pages of the prefix cache.
  std::string tenant = {};
  // Pages of the prefix cache are shared only among requests with the same salt.
  std::string cache_salt = {};
  // Lower values come first.
  std::int32_t priority = 0;
  // From submit(), in the queue or at work; past it the request ends with an error.
  std::optional<double> timeout_ms = std::nullopt;
  FieldNames names = {};
  // When not null: polled at every step; true ends the request as cancelled. Outlives the request.
  const std::atomic<bool>* cancel = nullptr;
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };

// "stop", "length", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason);

struct RequestStats {
  std::uint64_t seed = 0;  // given or drawn
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  std::int32_t num_preemptions = 0;
  std::int32_t generated_tokens = 0;  // of all answers, end tokens included
  double queue_ms = 0.0;              // submit to the first step with this request
  double ttft_ms = 0.0;               // submit to the first token
  double prefill_ms = 0.0;            // first step to the first token
  double decode_ms = 0.0;             // first token to the last
  std::int32_t decode_steps = 0;      // steps after the first token
  double weight_bytes_per_step = 0.0;

  double prefill_tokens_per_s() const;
  // Tokens after each answer's first one, over decode_ms.
  double decode_tokens_per_s() const;
  // Weights read while decoding, in GB/s (10^9): what the machine's memory really delivered to the
  // model.
  double decode_gb_per_s() const;

  std::int32_t num_answers = 0;
};

// One event per token, and one without a token when a request ends between tokens. Views are valid
// during the call.
struct TokenEvent {
  RequestId request = 0;
  std::int32_t answer = 0;  // [0, n)
  std::int32_t token = -1;  // -1: no new token
  std::string_view
      text;  // what can be shown now; lags behind the tokens where a stop string may begin
  const sampling::Logprobs* logprobs = nullptr;  // when asked for, with a token
  // When asked for, on the first event: entry i belongs to token i of the prompt; nothing comes
  // before the first, so its entry says nothing.
  const std::vector<sampling::Logprobs>* prompt_logprobs = nullptr;
  const std::vector<float>* embedding = nullptr;  // with pooling; E values, not normalised
  std::optional<FinishReason> finish = {};        // set on the last event of an answer
  std::string_view matched_stop = {};             // the stop string, for kStop by text
  const Error* error = nullptr;                   // for kError
  const RequestStats* stats = nullptr;            // on the last event of the request
};

// Runs on the engine thread inside commit(); may call submit() and cancel().
using EventCallback = std::function<void(const TokenEvent&)>;

}  // namespace trine
