// What a request may ask of the choice of tokens. Meaning, order and ranges: docs/sampling.md.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"

namespace trine::sampling {

// Largest number of alternatives that a request may ask for beside each token.
inline constexpr std::int32_t kMaxTopLogprobs = 100;

struct LogitBias {
  std::int32_t token = 0;
  double bias = 0.0;  // [-100, 100], added to the logit
};

struct SamplingParams {
  // Penalties. Repetition looks at prompt and output, the other two at the output alone.
  double repetition_penalty = 1.0;  // [0.01, 100]; 1 = none
  double presence_penalty = 0.0;    // [-2, 2]; 0 = none
  double frequency_penalty = 0.0;   // [-2, 2]; 0 = none
  std::vector<LogitBias> logit_bias = {};
  // Token sequences that may not be completed; a sequence of one token never appears.
  std::vector<std::vector<std::int32_t>> bad_words = {};
  // Stop ids are impossible before this many tokens are out.
  std::int32_t min_tokens = 0;

  double temperature = 1.0;  // [0, 100]; 0 = greedy: the largest logit, the lowest id among equals
  std::int32_t top_k = 0;    // >= 0; 0 = off
  double top_p = 1.0;        // (0, 1]; 1 = off
  double min_p = 0.0;        // [0, 1]; 0 = off
  double typical_p = 1.0;    // (0, 1]; 1 = off

  // Without one, a seed is drawn from the operating system and reported with the answer.
  std::optional<std::uint64_t> seed = std::nullopt;

  // Log-probabilities under the raw law (before every transformation above): nullopt = none, n >= 0
  // = those of the chosen token and of the n most likely ones.
  std::optional<std::int32_t> logprobs = std::nullopt;
};

// Errors: invalid_argument naming field, value and range.
Status validate(const SamplingParams& params, std::int32_t vocab_size);

// A seed from the operating system. Errors: unavailable when it has none to give.
Result<std::uint64_t> random_seed();

}  // namespace trine::sampling
