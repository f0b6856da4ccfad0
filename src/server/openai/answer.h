// From token events to bodies and server-sent events.
//
// The engine's callback copies each event (own()); whoever writes to the client feeds the copies to
// an Answer in order. Streaming or not is the request's: a streamed answer gives SSE events as it
// goes, a whole one only a body at its end. Thread rule: an Answer belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/openai/error.h"
#include "server/openai/request.h"
#include "server/openai/tool_calls.h"
#include "text/tokenizer.h"

namespace trine::server::openai {

// A TokenEvent that owns what it says.
struct AnswerEvent {
  std::int32_t prompt = 0;  // of a request with several
  std::int32_t answer = 0;
  std::int32_t token = -1;
  std::string text;
  std::optional<sampling::Logprobs> logprobs = {};
  // Of the prompt's tokens, on its first event when asked for: entry i belongs to token i; nothing
  // comes before the first, so its entry is not used.
  std::vector<sampling::Logprobs> prompt_logprobs = {};
  std::vector<float> embedding = {};
  std::optional<FinishReason> finish = {};
  std::string matched_stop;
  std::optional<Error> error = {};
  std::optional<RequestStats> stats = {};
};

AnswerEvent own(const TokenEvent& event, std::int32_t prompt = 0);

struct SseEvent {
  std::string name;  // empty: none
  std::string data;  // one line of JSON, or [DONE]
};

// "event: name\ndata: ..\n\n"
std::string sse_frame(const SseEvent& event);
// A comment that keeps a connection open.
std::string_view sse_ping();

struct AnswerContext {
  std::string id;     // of the answer, without its prefix ("chatcmpl-", "cmpl-", "resp_")
  std::string model;  // as shown
  std::int64_t created_unix_s = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  // for logprobs and echo; else may be null
  std::string system_fingerprint;                         // empty: null
  ToolFamily tool_family = ToolFamily::kGeneric;
  std::uint64_t id_seed = 0;  // ids of tool calls and items are made from it
};

class Answer {
 public:
  virtual ~Answer() = default;
  // The tokens of prompt i, before its first event; for usage and echo.
  virtual void set_prompt(std::int32_t prompt, std::vector<std::int32_t> tokens) = 0;
  // Before the first event, once: what a stream begins with.
  virtual void begin(std::vector<SseEvent>& out) = 0;
  // One event. After the last one of all answers, the closing events.
  virtual void add(const AnswerEvent& event, std::vector<SseEvent>& out) = 0;
  // Ends a stream with an error: it cannot have another status any more.
  virtual void fail(const ApiError& error, std::vector<SseEvent>& out) = 0;
  virtual bool done() const = 0;
  // The first error that ended an answer; a whole body is then not to be sent, but this.
  virtual const std::optional<ApiError>& error() const = 0;
  // The whole answer, when done() without error().
  virtual std::string body() const = 0;
};

std::unique_ptr<Answer> make_answer(const CompletionRequest& request, AnswerContext context);
std::unique_ptr<Answer> make_answer(const ChatRequest& request, AnswerContext context);
std::unique_ptr<Answer> make_answer(const ResponsesRequest& request, AnswerContext context);
std::unique_ptr<Answer> make_answer(const EmbeddingsRequest& request, AnswerContext context);

// Bodies without events.
std::string embeddings_body(const EmbeddingsRequest& request, std::string_view model,
                            std::span<const std::vector<float>> vectors,
                            std::int64_t prompt_tokens);
std::string tokenize_body(const TokenizeRequest& request, std::span<const std::int32_t> tokens,
                          std::int32_t max_model_len, const text::Tokenizer& tokenizer);
std::string detokenize_body(const DetokenizeRequest& request, std::string_view text);
std::string apply_template_body(const ApplyTemplateRequest& request, std::string_view prompt);

struct ModelCard {
  std::string id;
  std::int64_t created_unix_s = 0;
  std::int32_t max_model_len = 0;
};

std::string models_body(std::span<const ModelCard> models);
std::string model_body(const ModelCard& model);
// What lm-evaluation-harness asks for: eos_token, bos_token, pad_token, chat_template.
std::string tokenizer_info_body(const text::Tokenizer& tokenizer, std::string_view bos_token,
                                std::string_view eos_token, std::string_view chat_template);

}  // namespace trine::server::openai
