// What the bodies of requests become. Prompts are texts or ids here: the host tokenizes, puts the
// ids into generation.prompt and sets tenant and cancel.
// Thread rule: plain values; the JSON values are shared and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/request.h"
#include "grammar/compile.h"

namespace trine::server::openai {

using JsonPtr = std::shared_ptr<const nlohmann::ordered_json>;

// A grammar that the answer must match; it is compiled elsewhere.
struct Constraint {
  grammar::Notation notation = grammar::Notation::kJsonObject;
  std::string text = {};
  std::string field = {};  // that asked for it, for errors of the compilation
};

// Reserved: speculation never changes an answer, so this is checked and has no effect yet.
struct SpeculativeRequest {
  bool enabled = true;
  std::optional<std::int32_t> num_tokens = {};
  std::string method;  // empty: the server's
};

// What all generating endpoints have.
struct CommonRequest {
  std::string model;  // empty: the server's only or first one
  GenerationRequest generation;
  std::optional<Constraint> constraint = {};
  // generation.max_tokens is Limits::default_max_tokens: the host lowers it to the room there is.
  bool max_tokens_by_default = false;
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // usage in every chunk
  bool tokens_as_ids = false;     // "token_id:17" in logprobs
  bool return_token_ids = false;
  std::optional<SpeculativeRequest> speculative = {};
  // Texts that may not appear; the host turns them into ids (add_bad_words()).
  std::vector<std::string> bad_words = {};
  JsonPtr metadata = {};  // an object of strings, or null
  // Fields without effect, one text each; they go into the answer.
  std::vector<std::string> warnings = {};
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest : CommonRequest {
  std::vector<Prompt> prompts;  // at least one, none empty
  bool echo = false;
  // Answers drawn; the n best by mean log-probability are given. generation.n is this number.
  std::int32_t best_of = 1;
  std::int32_t n = 1;  // answers given per prompt
  bool logprobs = false;
  bool add_special_tokens = true;  // of text prompts
};

enum class ToolChoice : std::uint8_t { kNone, kAuto, kRequired, kNamed };

// The conversation of a chat, a /v1/responses, /tokenize or /apply-template request.
struct Conversation {
  JsonPtr messages = {};         // array in chat shape, as templates take it
  JsonPtr tools = {};            // array in chat shape; null when none or tool_choice is none
  JsonPtr template_kwargs = {};  // object or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct ToolRequest {
  ToolChoice choice = ToolChoice::kNone;
  std::string named;     // for kNamed
  bool parallel = true;  // false: the first call is given
};

struct ChatRequest : CommonRequest {
  Conversation conversation;
  ToolRequest tools;
  bool logprobs = false;
  bool echo = false;  // of the final message, with continue_final_message
};

struct ResponsesRequest : CommonRequest {
  Conversation conversation;  // instructions are its first message
  ToolRequest tools;
  bool logprobs = false;
  // The parts of the request that an answer repeats, ready to be put into one.
  JsonPtr repeated = {};
};

enum class Pooling : std::uint8_t { kDefault, kMean, kLast };

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<std::int32_t> dimensions = {};  // the host refuses any but the model's width
  Pooling pooling = Pooling::kDefault;
  bool normalize = true;
  bool add_special_tokens = true;
  std::int32_t priority = 0;
  std::vector<std::string> warnings = {};
};

struct TokenizeRequest {
  std::string model;
  // A text, or a conversation when its messages are not null.
  std::string text = {};
  Conversation conversation;
  bool add_special_tokens = true;
  bool parse_special = false;  // control tokens in a text
  bool with_token_strs = false;
  std::vector<std::string> warnings = {};
};

struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> tokens;
  bool skip_special = false;
  std::vector<std::string> warnings = {};
};

struct ApplyTemplateRequest {
  std::string model;
  Conversation conversation;
  std::vector<std::string> warnings = {};
};

}  // namespace trine::server::openai
