#include "sampling/sampling_params.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <sys/random.h>

namespace trine::sampling {

namespace {

enum class Lower : std::uint8_t { kClosed, kOpen };

Status check_range(std::string_view field, double value, Lower lower, double low, double high) {
  // Written so that NaN fails.
  const bool above = lower == Lower::kClosed ? value >= low : value > low;
  if (above && value <= high) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument, "{} is {}, must be in {}{}, {}]", field, value,
              lower == Lower::kClosed ? '[' : '(', low, high);
}

Status check_token(std::string_view field, std::int32_t token, std::int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument, "{}: token {} is not in the vocabulary [0, {})", field,
              token, vocab_size);
}

Status check_logit_bias(const SamplingParams& params, std::int32_t vocab_size) {
  std::vector<std::int32_t> seen;
  seen.reserve(params.logit_bias.size());
  for (const LogitBias& entry : params.logit_bias) {
    TRINE_TRY(check_token("logit_bias", entry.token, vocab_size));
    TRINE_TRY(check_range(fmt::format("logit_bias of token {}", entry.token), entry.bias,
                          Lower::kClosed, -100.0, 100.0));
    seen.push_back(entry.token);
  }
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) {
    return fail(ErrorCode::kInvalidArgument, "logit_bias: token {} is named twice", *twice);
  }
  return {};
}

Status check_bad_words(const SamplingParams& params, std::int32_t vocab_size) {
  for (std::size_t i = 0; i < params.bad_words.size(); ++i) {
    if (params.bad_words[i].empty()) {
      return fail(ErrorCode::kInvalidArgument, "bad_words[{}] is empty, at least one token needed",
                  i);
    }
    for (const std::int32_t token : params.bad_words[i]) {
      TRINE_TRY(check_token(fmt::format("bad_words[{}]", i), token, vocab_size));
    }
  }
  return {};
}

}  // namespace

Status validate(const SamplingParams& params, std::int32_t vocab_size) {
  TRINE_TRY(
      check_range("repetition_penalty", params.repetition_penalty, Lower::kClosed, 0.01, 100.0));
  TRINE_TRY(check_range("presence_penalty", params.presence_penalty, Lower::kClosed, -2.0, 2.0));
  TRINE_TRY(check_range("frequency_penalty", params.frequency_penalty, Lower::kClosed, -2.0, 2.0));
  TRINE_TRY(check_logit_bias(params, vocab_size));
  TRINE_TRY(check_bad_words(params, vocab_size));
  if (params.min_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument, "min_tokens is {}, must be at least 0",
                params.min_tokens);
  }
  TRINE_TRY(check_range("temperature", params.temperature, Lower::kClosed, 0.0, 100.0));
  if (params.top_k < 0) {
    return fail(ErrorCode::kInvalidArgument, "top_k is {}, must be at least 0 (0 turns it off)",
                params.top_k);
  }
  TRINE_TRY(check_range("top_p", params.top_p, Lower::kOpen, 0.0, 1.0));
  TRINE_TRY(check_range("min_p", params.min_p, Lower::kClosed, 0.0, 1.0));
  TRINE_TRY(check_range("typical_p", params.typical_p, Lower::kOpen, 0.0, 1.0));
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > kMaxTopLogprobs)) {
    return fail(ErrorCode::kInvalidArgument, "logprobs is {}, must be in [0, {}]", *params.logprobs,
                kMaxTopLogprobs);
  }
  return {};
}

Result<std::uint64_t> random_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof(seed), 0) != static_cast<ssize_t>(sizeof(seed))) {
    return fail(ErrorCode::kUnavailable,
                "the operating system gave no random seed ({}); pass a seed", std::strerror(errno));
  }
  return seed;
}

}  // namespace trine::sampling
