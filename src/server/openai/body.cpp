// What all bodies have in common.
#include "server/openai/body.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"

namespace trine::server::openai {

namespace {

constexpr std::int64_t kMaxId = 2147483647;

bool is_id(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kMaxId;
}

std::string at(std::string_view path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

ApiStatus read_stop(const Json& stop, const Limits& limits, std::vector<std::string>& out) {
  const auto max_bytes = static_cast<std::size_t>(limits.max_stop_bytes);
  if (stop.is_string()) {
    TRINE_TRY_ASSIGN(out, get_texts(Json::array({stop}), "stop", 1, max_bytes));
    return {};
  }
  if (stop.size() > static_cast<std::size_t>(limits.max_stop)) {
    return tl::unexpected(
        bad_field("stop", fmt::format("has {} texts, at most {}", stop.size(), limits.max_stop)));
  }
  TRINE_TRY_ASSIGN(out, get_texts(stop, "stop", 1, max_bytes));
  return {};
}

ApiStatus read_logit_bias(const Json& bias, std::vector<sampling::LogitBias>& out) {
  for (const auto& [key, value] : bias.items()) {
    const std::string where = fmt::format("logit_bias.{}", key);
    constexpr std::size_t kLongestId = 10;
    const bool digits =
        !key.empty() && key.size() <= kLongestId &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::int64_t id = digits ? std::stoll(key) : -1;
    if (!digits || id > kMaxId) {
      return tl::unexpected(bad_field(where, "is no token id"));
    }
    constexpr double kMaxBias = 100.0;
    const double number = value.is_number() ? value.get<double>() : kMaxBias + 1;
    if (!(number >= -kMaxBias && number <= kMaxBias)) {
      return tl::unexpected(bad_field(where, "must be a number in [-100, 100]"));
    }
    out.push_back({static_cast<std::int32_t>(id), number});
  }
  return {};
}

ApiStatus read_speculative(const Json& value, CommonRequest& out) {
  Json object = value;
  TRINE_TRY(check_object(Shape::kSpeculative, "speculative", object, out.warnings));
  SpeculativeRequest speculative;
  speculative.enabled = get_bool(object, "enabled", true);
  if (find(object, "num_tokens") != nullptr) {
    speculative.num_tokens = get_int(object, "num_tokens", 0);
  }
  speculative.method = get_string(object, "method");
  if (speculative.enabled && speculative.num_tokens.value_or(1) > 0) {
    out.warnings.emplace_back(
        "speculative has no effect: this version does not speculate; the answer is the same");
  }
  out.speculative = std::move(speculative);
  return {};
}

ApiStatus read_metadata(const Json& metadata, JsonPtr& out) {
  for (const auto& [key, value] : metadata.items()) {
    constexpr std::size_t kMaxKey = 64;
    constexpr std::size_t kMaxValue = 512;
    if (key.size() > kMaxKey || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMaxValue) {
      return tl::unexpected(
          bad_field(fmt::format("metadata.{}", printable(key, kMaxKey)),
                    "must be a text of at most 512 bytes under a key of at most 64"));
    }
  }
  out = std::make_shared<const Json>(metadata);
  return {};
}

void read_sampling(const Json& body, sampling::SamplingParams& out) {
  out.temperature = get_number(body, "temperature", out.temperature);
  out.top_p = get_number(body, "top_p", out.top_p);
  // vLLM writes -1 for "off".
  out.top_k = std::max(get_int(body, "top_k", out.top_k), 0);
  out.min_p = get_number(body, "min_p", out.min_p);
  out.typical_p = get_number(body, "typical_p", out.typical_p);
  out.repetition_penalty = get_number(body, "repetition_penalty", out.repetition_penalty);
  out.presence_penalty = get_number(body, "presence_penalty", out.presence_penalty);
  out.frequency_penalty = get_number(body, "frequency_penalty", out.frequency_penalty);
  out.min_tokens = get_int(body, "min_tokens", out.min_tokens);
  if (const Json* seed = find(body, "seed")) {
    out.seed = seed->get<std::uint64_t>();
  }
}

ApiStatus read_stream(const Json& body, CommonRequest& out) {
  out.stream = get_bool(body, "stream", false);
  const Json* value = find(body, "stream_options");
  if (value == nullptr) {
    return {};
  }
  if (!out.stream) {
    return tl::unexpected(bad_field("stream_options", "is given without stream: true"));
  }
  Json options = *value;
  TRINE_TRY(check_object(Shape::kStreamOptions, "stream_options", options, out.warnings));
  out.continuous_usage = get_bool(options, "continuous_usage_stats", false);
  out.include_usage = get_bool(options, "include_usage", out.continuous_usage);
  return {};
}

}  // namespace

ApiResult<Json> open_body(Shape shape, std::string_view body, const Limits& limits,
                          std::vector<std::string>& warnings, Spelling* spelling) {
  if (body.size() > limits.max_body_bytes) {
    return tl::unexpected(body_too_large(body.size(), limits.max_body_bytes));
  }
  RefusedNumber number;
  auto parsed = parse_json(body, {.max_depth = limits.max_json_depth,
                                  .max_bytes = limits.max_body_bytes,
                                  .refuse_big_integers = true,
                                  .refused_number = &number});
  if (!number.place.empty()) {
    return tl::unexpected(unreadable_number(shape, number.place, number.text));
  }
  if (!parsed.has_value()) {
    ApiError error = api_error(std::move(parsed).error().with_context("the body"));
    error.code = "invalid_json";
    return tl::unexpected(std::move(error));
  }
  if (!parsed->is_object()) {
    ApiError error = bad_field("the body", "must be a JSON object");
    error.param.reset();  // no field is to blame
    return tl::unexpected(std::move(error));
  }
  TRINE_TRY(check_object(shape, "", *parsed, warnings, spelling));
  return std::move(*parsed);
}

ApiResult<std::vector<std::string>> get_texts(const Json& list, std::string_view path,
                                              std::size_t min_bytes, std::size_t max_bytes) {
  std::vector<std::string> out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string* text = list[i].get_ptr<const std::string*>();
    if (text == nullptr || text->size() < min_bytes || text->size() > max_bytes) {
      return tl::unexpected(bad_field(
          at(path, i), fmt::format("must be a text of {} to {} bytes", min_bytes, max_bytes)));
    }
    out.push_back(*text);
  }
  return out;
}

ApiResult<std::vector<std::int32_t>> get_ids(const Json& list, std::string_view path) {
  std::vector<std::int32_t> out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!is_id(list[i])) {
      return tl::unexpected(bad_field(at(path, i), "is no token id in [0, 2147483647]"));
    }
    out.push_back(list[i].get<std::int32_t>());
  }
  return out;
}

std::int64_t count_prompt_tokens(const Json& value, const Limits& limits) {
  const auto one = [&](std::size_t size) {
    return std::min<std::int64_t>(static_cast<std::int64_t>(size), limits.context_tokens);
  };
  if (value.is_string()) {
    return one(value.get_ref<const std::string&>().size());
  }
  if (value.is_array() && !value.empty() && value.front().is_number()) {
    return one(value.size());
  }
  std::int64_t sum = 0;
  for (const Json& prompt : value) {
    sum += one(prompt.is_string() ? prompt.get_ref<const std::string&>().size() : prompt.size());
  }
  return sum;
}

ApiStatus check_cost(std::int64_t prompts, std::int64_t prompt_tokens, std::int64_t n,
                     std::optional<std::int32_t> max_tokens, std::string_view max_name,
                     const Limits& limits) {
  const std::int64_t longest =
      std::min(max_tokens.value_or(limits.context_tokens), limits.context_tokens);
  // At most 2048 x 128 x 2^31 tokens: no overflow.
  const std::int64_t cost = n * (prompts * longest + prompt_tokens);
  if (cost > limits.max_cost_tokens) {
    ApiError error = bad_field(
        "n",
        fmt::format("is {}: {} prompts of {} tokens or less and up to {} tokens per answer "
                    "make {}, at most {} in one request; lower n or {}, or send fewer "
                    "prompts",
                    n, prompts, prompt_tokens, longest, cost, limits.max_cost_tokens, max_name));
    error.code = "limit_exceeded";
    return tl::unexpected(std::move(error));
  }
  return {};
}

ApiResult<std::vector<Prompt>> get_prompts(const Json& value, std::string_view path,
                                           const Limits& limits) {
  const auto empty = [](std::string_view where) {
    return tl::unexpected(bad_field(where, "is empty; a prompt has at least one token"));
  };
  std::vector<Prompt> out;
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().empty()) {
      return empty(path);
    }
    out.emplace_back(value.get<std::string>());
    return out;
  }
  if (value.empty()) {
    return empty(path);
  }
  if (value.front().is_number()) {
    TRINE_TRY_ASSIGN(auto ids, get_ids(value, path));
    out.emplace_back(std::move(ids));
    return out;
  }
  if (value.size() > static_cast<std::size_t>(limits.max_prompts)) {
    return tl::unexpected(bad_field(path, fmt::format("has {} prompts, at most {} in one request",
                                                      value.size(), limits.max_prompts)));
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json& prompt = value[i];
    if (!prompt.is_string() && !prompt.is_array()) {
      return tl::unexpected(bad_field(at(path, i), "must be a text or a list of token ids"));
    }
    if (prompt.is_string() ? prompt.get_ref<const std::string&>().empty() : prompt.empty()) {
      return empty(at(path, i));
    }
    if (prompt.is_string()) {
      out.emplace_back(prompt.get<std::string>());
      continue;
    }
    TRINE_TRY_ASSIGN(auto ids, get_ids(prompt, at(path, i)));
    out.emplace_back(std::move(ids));
  }
  return out;
}

ApiStatus read_common(const Json& body, const Limits& limits, const Spelling& spelling,
                      CommonRequest& out) {
  out.model = get_string(body, "model");
  GenerationRequest& generation = out.generation;
  generation.sampling = limits.default_sampling;
  read_sampling(body, generation.sampling);
  if (const Json* bias = find(body, "logit_bias")) {
    TRINE_TRY(read_logit_bias(*bias, generation.sampling.logit_bias));
  }
  if (const Json* words = find(body, "bad_words")) {
    TRINE_TRY_ASSIGN(out.bad_words, get_texts(*words, "bad_words", 1,
                                              static_cast<std::size_t>(limits.max_stop_bytes)));
  }
  if (const Json* stop = find(body, "stop")) {
    TRINE_TRY(read_stop(*stop, limits, generation.stop));
  }
  if (const Json* ids = find(body, "stop_token_ids")) {
    TRINE_TRY_ASSIGN(generation.stop_ids, get_ids(*ids, "stop_token_ids"));
  }
  generation.include_stop = get_bool(body, "include_stop_str_in_output", false);
  generation.ignore_eos = get_bool(body, "ignore_eos", false);
  generation.skip_special = get_bool(body, "skip_special_tokens", true);
  generation.priority = get_int(body, "priority", 0);
  generation.cache_salt = get_string(body, "cache_salt");
  if (const Json* timeout = find(body, "timeout_ms")) {
    generation.timeout_ms = timeout->get<double>();
  }
  out.tokens_as_ids = get_bool(body, "return_tokens_as_token_ids", false);
  out.return_token_ids = get_bool(body, "return_token_ids", false);
  if (const Json* metadata = find(body, "metadata")) {
    TRINE_TRY(read_metadata(*metadata, out.metadata));
  }
  if (const Json* speculative = find(body, "speculative")) {
    TRINE_TRY(read_speculative(*speculative, out));
  }
  TRINE_TRY(read_stream(body, out));
  generation.names.stop_ids = "stop_token_ids";
  return read_constraint(body, spelling, out);
}

}  // namespace trine::server::openai
