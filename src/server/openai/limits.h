// Every cap on a request, in one place. They hold at parse time, before anything is copied.
// Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sampling/sampling_params.h"

namespace trine::server::openai {

struct Limits {
  std::size_t max_body_bytes = std::size_t{8} << 20;
  int max_json_depth = 32;
  // The longest sequence of the model that is asked; a request without max_tokens is counted so.
  std::int32_t context_tokens = 1 << 20;
  // prompts x n x (prompt + max_tokens) of one request, in tokens. A text counts its bytes, at most
  // the context.
  std::int64_t max_cost_tokens = std::int64_t{64} << 20;
  std::int32_t max_prompts = 2048;  // as many as OpenAI takes inputs for embeddings
  std::int32_t max_messages = 4096;
  std::int32_t max_tools = 128;
  std::int32_t max_stop = 16;
  std::int32_t max_stop_bytes = 1024;  // each

  // What a request gets that leaves a field out: the model's own defaults.
  sampling::SamplingParams default_sampling = {};
  std::optional<std::int32_t> default_max_tokens = std::nullopt;
};

}  // namespace trine::server::openai
