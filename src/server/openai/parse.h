// Bodies of requests to structs. Errors: 400 naming the field and what to do (413 for a body over
// the limit); no input crashes. Model-dependent checks (vocabulary, context) are the engine's.
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "server/openai/error.h"
#include "server/openai/limits.h"
#include "server/openai/request.h"

namespace trine::server::openai {

ApiResult<CompletionRequest> parse_completion(std::string_view body, const Limits& limits);
ApiResult<ChatRequest> parse_chat(std::string_view body, const Limits& limits);
ApiResult<ResponsesRequest> parse_responses(std::string_view body, const Limits& limits);
ApiResult<EmbeddingsRequest> parse_embeddings(std::string_view body, const Limits& limits);
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body, const Limits& limits);
ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body, const Limits& limits);
ApiResult<ApplyTemplateRequest> parse_apply_template(std::string_view body, const Limits& limits);

}  // namespace trine::server::openai
