#include "server/openai/parse.h"

#include <utility>

#include <fmt/format.h>

#include "server/openai/body.h"

namespace trine::server::openai {

namespace {

JsonPtr share(Json value) {
  return std::make_shared<const Json>(std::move(value));
}

// A grammar and tool calls exclude each other: both decide what the answer looks like.
ApiStatus check_tools_and_constraint(const CommonRequest& request, const ToolRequest& tools) {
  if (request.constraint && tools.choice != ToolChoice::kNone) {
    return tl::unexpected(bad_field(
        request.constraint->field,
        "cannot be used together with tools; set tool_choice to none, or leave one of them out"));
  }
  return {};
}

std::int64_t text_bytes(const Json& value) {
  if (value.is_string()) {
    return static_cast<std::int64_t>(value.get_ref<const std::string&>().size());
  }
  std::int64_t sum = 0;
  if (value.is_structured()) {
    for (const Json& inner : value) {
      sum += text_bytes(inner);
    }
  }
  return sum;
}

std::optional<std::int32_t> optional_int(const Json& body, std::string_view name,
                                         std::optional<std::int32_t> fallback) {
  return find(body, name) == nullptr ? fallback : std::optional(get_int(body, name, 0));
}

ApiStatus check_min_tokens(const CommonRequest& request, std::string_view max_name) {
  const auto& generation = request.generation;
  if (generation.max_tokens && generation.sampling.min_tokens > *generation.max_tokens) {
    return tl::unexpected(bad_field(
        "min_tokens", fmt::format("is {}, must be at most {} ({})", generation.sampling.min_tokens,
                                  max_name, *generation.max_tokens)));
  }
  return {};
}

ApiStatus read_best_of(const Json& body, CompletionRequest& out) {
  out.n = get_int(body, "n", 1);
  out.best_of = get_int(body, "best_of", out.n);
  if (out.best_of < out.n) {
    return tl::unexpected(
        bad_field("best_of", fmt::format("is {}, must be at least n ({})", out.best_of, out.n)));
  }
  if (out.best_of > out.n && out.stream) {
    return tl::unexpected(bad_field(
        "best_of", fmt::format("is {} with n {}: the best are known at the end only, so it cannot "
                               "be streamed",
                               out.best_of, out.n)));
  }
  out.generation.n = out.best_of;
  if (out.best_of > out.n && !out.generation.sampling.logprobs) {
    out.generation.sampling.logprobs = 0;
  }
  return {};
}

// The conversation of a body that asks for no answer. Takes the messages out of the body.
ApiStatus read_conversation(Json& body, const Limits& limits, std::vector<std::string>& warnings,
                            Conversation& out) {
  TRINE_TRY_ASSIGN(Json messages, read_messages(std::move(body["messages"]), limits, warnings));
  TRINE_TRY(read_conversation_options(body, messages, out));
  if (const Json* given = find(body, "tools"); given != nullptr && !given->empty()) {
    TRINE_TRY_ASSIGN(Json tools, read_tools(*given, false, limits, warnings));
    out.tools = share(std::move(tools));
  }
  out.messages = share(std::move(messages));
  return {};
}

}  // namespace

ApiResult<CompletionRequest> parse_completion(std::string_view body_text, const Limits& limits) {
  CompletionRequest out;
  Spelling spelling;
  TRINE_TRY_ASSIGN(const Json body,
                   open_body(Shape::kCompletions, body_text, limits, out.warnings, &spelling));
  const std::string_view max_name = spelling.of("max_tokens");
  const Json& prompt = body["prompt"];
  constexpr std::int32_t kDefaultTokens = 16;
  const std::int32_t max_tokens =
      get_int(body, "max_tokens", limits.default_max_tokens.value_or(kDefaultTokens));
  const bool many = prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
  const std::int32_t drawn = get_int(body, "best_of", get_int(body, "n", 1));
  TRINE_TRY(check_cost(many ? static_cast<std::int64_t>(prompt.size()) : 1,
                       count_prompt_tokens(prompt, limits), drawn, max_tokens, max_name, limits));
  TRINE_TRY(read_common(body, limits, spelling, out));
  out.generation.names.max_tokens = max_name;
  TRINE_TRY_ASSIGN(out.prompts, get_prompts(prompt, "prompt", limits));
  out.echo = get_bool(body, "echo", false);
  out.add_special_tokens = get_bool(body, "add_special_tokens", true);
  if (find(body, "logprobs") != nullptr) {
    out.logprobs = true;
    out.generation.sampling.logprobs = get_int(body, "logprobs", 0);
    if (out.echo) {
      out.generation.prompt_logprobs = out.generation.sampling.logprobs;
    }
  }
  if (max_tokens == 0 && !out.echo) {
    return tl::unexpected(bad_field(max_name, "is 0, must be at least 1 without echo"));
  }
  out.generation.max_tokens = max_tokens;
  out.max_tokens_by_default =
      find(body, "max_tokens") == nullptr && limits.default_max_tokens.has_value();
  TRINE_TRY(check_min_tokens(out, max_name));
  TRINE_TRY(read_best_of(body, out));
  return out;
}

ApiResult<ChatRequest> parse_chat(std::string_view body_text, const Limits& limits) {
  ChatRequest out;
  Spelling spelling;
  TRINE_TRY_ASSIGN(Json body, open_body(Shape::kChat, body_text, limits, out.warnings, &spelling));
  const std::string_view max_name = spelling.of("max_completion_tokens");
  const auto max_tokens = optional_int(body, "max_completion_tokens", limits.default_max_tokens);
  out.generation.n = get_int(body, "n", 1);
  TRINE_TRY(check_cost(1,
                       std::min<std::int64_t>(text_bytes(body["messages"]), limits.context_tokens),
                       out.generation.n, max_tokens, max_name, limits));
  TRINE_TRY(read_common(body, limits, spelling, out));
  out.generation.max_tokens = max_tokens;
  out.generation.names.prompt = "messages";
  out.generation.names.max_tokens = max_name;
  out.max_tokens_by_default =
      find(body, "max_completion_tokens") == nullptr && max_tokens.has_value();
  TRINE_TRY(check_min_tokens(out, max_name));
  out.logprobs = get_bool(body, "logprobs", false);
  if (find(body, "top_logprobs") != nullptr && !out.logprobs &&
      get_int(body, "top_logprobs", 0) > 0) {
    return tl::unexpected(bad_field("top_logprobs", "needs logprobs: true"));
  }
  if (out.logprobs) {
    out.generation.sampling.logprobs = get_int(body, "top_logprobs", 0);
  }
  TRINE_TRY_ASSIGN(Json messages, read_messages(std::move(body["messages"]), limits, out.warnings));
  Json tools = Json::array();
  if (const Json* given = find(body, "tools")) {
    TRINE_TRY_ASSIGN(tools, read_tools(*given, false, limits, out.warnings));
  }
  TRINE_TRY_ASSIGN(out.tools, read_tool_choice(body, tools, out.warnings));
  TRINE_TRY(check_tools_and_constraint(out, out.tools));
  TRINE_TRY(read_conversation_options(body, messages, out.conversation));
  out.echo = get_bool(body, "echo", false);
  if (out.echo && !out.conversation.continue_final_message) {
    return tl::unexpected(bad_field("echo", "needs continue_final_message"));
  }
  if (out.tools.choice != ToolChoice::kNone && out.conversation.continue_final_message) {
    return tl::unexpected(
        bad_field("continue_final_message", "cannot be used with tools; set tool_choice to none"));
  }
  out.conversation.messages = share(std::move(messages));
  if (out.tools.choice != ToolChoice::kNone) {
    out.conversation.tools = share(std::move(tools));
    // The marks of a call may be control tokens, and the parser has to see them.
    out.generation.skip_special = false;
  }
  return out;
}

ApiResult<EmbeddingsRequest> parse_embeddings(std::string_view body_text, const Limits& limits) {
  EmbeddingsRequest out;
  TRINE_TRY_ASSIGN(const Json body, open_body(Shape::kEmbeddings, body_text, limits, out.warnings));
  const Json& input = body["input"];
  TRINE_TRY(check_cost(1, count_prompt_tokens(input, limits), 1, 0, "input", limits));
  TRINE_TRY_ASSIGN(out.inputs, get_prompts(input, "input", limits));
  out.model = get_string(body, "model");
  out.base64 = get_string(body, "encoding_format") == "base64";
  out.dimensions = optional_int(body, "dimensions", std::nullopt);
  const std::string pooling = get_string(body, "pooling");
  out.pooling = pooling == "mean"   ? Pooling::kMean
                : pooling == "last" ? Pooling::kLast
                                    : Pooling::kDefault;
  out.normalize = get_bool(body, "normalize", true);
  out.add_special_tokens = get_bool(body, "add_special_tokens", true);
  out.priority = get_int(body, "priority", 0);
  return out;
}

ApiResult<TokenizeRequest> parse_tokenize(std::string_view body_text, const Limits& limits) {
  TokenizeRequest out;
  TRINE_TRY_ASSIGN(Json body, open_body(Shape::kTokenize, body_text, limits, out.warnings));
  const bool talk = find(body, "messages") != nullptr;
  if (talk == (find(body, "prompt") != nullptr)) {
    return tl::unexpected(bad_field("prompt", "or messages must be given, and not both"));
  }
  out.model = get_string(body, "model");
  out.with_token_strs = get_bool(body, "return_token_strs", false);
  out.add_special_tokens = get_bool(body, "add_special_tokens", !talk);
  out.parse_special = get_bool(body, "parse_special", false);
  if (!talk) {
    for (const std::string_view name :
         {"tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"}) {
      if (find(body, name) != nullptr) {
        return tl::unexpected(bad_field(name, "belongs to messages, and there is only a prompt"));
      }
    }
    out.text = get_string(body, "prompt");
    return out;
  }
  if (out.parse_special) {
    return tl::unexpected(bad_field("parse_special", "belongs to a prompt, not to messages"));
  }
  TRINE_TRY(read_conversation(body, limits, out.warnings, out.conversation));
  return out;
}

ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body_text, const Limits& limits) {
  DetokenizeRequest out;
  TRINE_TRY_ASSIGN(const Json body, open_body(Shape::kDetokenize, body_text, limits, out.warnings));
  out.model = get_string(body, "model");
  TRINE_TRY_ASSIGN(out.tokens, get_ids(body["tokens"], "tokens"));
  out.skip_special = get_bool(body, "skip_special_tokens", false);
  return out;
}

ApiResult<ApplyTemplateRequest> parse_apply_template(std::string_view body_text,
                                                     const Limits& limits) {
  ApplyTemplateRequest out;
  TRINE_TRY_ASSIGN(Json body, open_body(Shape::kApplyTemplate, body_text, limits, out.warnings));
  out.model = get_string(body, "model");
  TRINE_TRY(read_conversation(body, limits, out.warnings, out.conversation));
  return out;
}

}  // namespace trine::server::openai
