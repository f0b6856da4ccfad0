#include "loadgen/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/fixed_math.h"
#include "base/json.h"
#include "base/rng.h"

namespace trine::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 64> kWords{
    "the",  "of",    "and",   "to",    "in",   "is",    "that", "for",   "it",    "as",   "was",
    "with", "be",    "by",    "on",    "not",  "his",   "but",  "at",    "are",   "this", "have",
    "from", "or",    "had",   "an",    "they", "which", "one",  "you",   "were",  "all",  "her",
    "she",  "there", "would", "their", "we",   "him",   "been", "has",   "when",  "who",  "will",
    "no",   "more",  "if",    "out",   "so",   "up",    "said", "what",  "about", "into", "than",
    "them", "can",   "only",  "other", "time", "new",   "some", "could", "these"};

// What numbers of one request are drawn for; part of the counter.
enum Use : std::uint32_t { kInput = 0, kOutput = 1, kGroup = 2, kFirstWord = 16 };

// Streams of words that never meet: prompts, prefixes, blocks of traces, probes.
enum class Stream : std::uint64_t { kPrompt = 0, kPrefix = 1, kBlock = 2, kProbe = 3 };

std::uint64_t stream_seed(std::uint64_t seed, Stream stream) {
  return seed * 4 + static_cast<std::uint64_t>(stream);
}

std::uint32_t word(std::uint64_t seed, std::uint64_t index, std::uint32_t use) {
  return philox(seed, index, RngPurpose::kTest, use)[0];
}

double uniform(std::uint64_t seed, std::uint64_t index, std::uint32_t use) {
  return uniform_open(philox(seed, index, RngPurpose::kTest, use), 0);
}

// Words or ids of one text.
class Builder {
 public:
  explicit Builder(std::int64_t num_ids) : num_ids_(num_ids) {}

  void add(std::uint64_t seed, std::uint64_t index, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t drawn = word(seed, index, static_cast<std::uint32_t>(kFirstWord + i));
      if (num_ids_ > 0) {
        // The low ids are control tokens and bytes in most vocabularies.
        const std::int64_t low = std::min<std::int64_t>(512, num_ids_ / 2);
        ids_.push_back(low + drawn % (num_ids_ - low));
      } else {
        text_ += text_.empty() ? "" : " ";
        text_ += kWords[drawn % kWords.size()];
      }
    }
  }

  bool uses_ids() const { return num_ids_ > 0; }

  Json ids() { return Json(std::move(ids_)); }

  std::string text() { return std::move(text_); }

 private:
  std::int64_t num_ids_;
  std::string text_;
  std::vector<std::int64_t> ids_;
};

bool whole(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1 &&
         value <= kMostTokens;
}

bool number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

std::string_view endpoint_path(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::int64_t LengthLaw::draw(std::uint64_t seed, std::uint64_t index, std::uint32_t use) const {
  if (kind == Kind::kRange) {
    const auto width = static_cast<double>(high - low + 1);
    return low + static_cast<std::int64_t>(uniform(seed, index, use) * width);
  }
  // Twelve uniforms less six are near enough to a normal, and the same bits everywhere.
  double normal = -6.0;
  for (std::uint32_t i = 0; i < 12; ++i) {
    normal += uniform(seed, index, use + 100 * (i + 1));
  }
  const double power = normal * sigma;
  const double factor = power <= 0.0 ? fixed_exp(power) : 1.0 / fixed_exp(-power);
  return std::clamp(static_cast<std::int64_t>(std::min(median * factor, 1e15)), std::int64_t{1},
                    kMostTokens);
}

Result<LengthLaw> parse_length(std::string_view text, std::string_view what) {
  LengthLaw out;
  constexpr std::string_view kLogNormal = "lognormal:";
  bool good = false;
  if (text.starts_with(kLogNormal)) {
    const std::string_view rest = text.substr(kLogNormal.size());
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    out.kind = LengthLaw::Kind::kLogNormal;
    good = colon < rest.size() && number(rest.substr(0, colon), out.median) &&
           number(rest.substr(colon + 1), out.sigma) && out.median >= 1.0 &&
           out.median <= static_cast<double>(kMostTokens) && out.sigma >= 0.0 && out.sigma <= 5.0;
  } else if (const std::size_t dash = text.find('-'); dash != text.npos) {
    good = whole(text.substr(0, dash), out.low) && whole(text.substr(dash + 1), out.high) &&
           out.low <= out.high;
  } else {
    good = whole(text, out.low);
    out.high = out.low;
  }
  if (!good) {
    return fail(ErrorCode::kInvalidArgument,
                "{} {}: give tokens as N, FROM-TO or lognormal:MEDIAN:SIGMA, from 1 to {}, SIGMA "
                "up to 5",
                what, text, kMostTokens);
  }
  return out;
}

Result<Workload> Workload::create(WorkloadOptions options, std::vector<TraceEntry> trace) {
  const bool chat = options.endpoint == Endpoint::kChat;
  if (chat && options.prompt_ids > 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--prompt-ids: a chat takes text only; use --endpoint completions");
  }
  const bool has_chat = std::any_of(
      trace.begin(), trace.end(), [](const TraceEntry& entry) { return !entry.messages.empty(); });
  if (!chat && has_chat) {
    return fail(ErrorCode::kInvalidArgument, "the data set holds 'messages': use --endpoint chat");
  }
  if (!options.extra_body.empty()) {
    const auto extra = parse_json(options.extra_body, {.max_depth = 32});
    if (!extra.has_value() || !extra->is_object()) {
      return fail(ErrorCode::kInvalidArgument, "--extra-body: {}",
                  extra.has_value() ? "must be a JSON object" : extra.error().message);
    }
    for (const char* own : {"prompt", "messages", "stream", "stream_options", "model", "n"}) {
      if (extra->contains(own)) {
        return fail(ErrorCode::kInvalidArgument, "--extra-body: '{}' is set by the benchmark", own);
      }
    }
  }
  return Workload(std::move(options), std::move(trace));
}

std::int64_t Workload::words_for(std::int64_t tokens) const {
  if (options_.prompt_ids > 0) {
    return std::max<std::int64_t>(1, tokens - std::llround(options_.overhead_tokens));
  }
  const double words = (static_cast<double>(tokens) - options_.overhead_tokens) /
                       std::max(options_.tokens_per_word, 1e-3);
  return std::max<std::int64_t>(1, std::llround(words));
}

namespace {

Json common_body(const WorkloadOptions& options, std::int64_t output_tokens) {
  Json out;
  if (!options.model.empty()) {
    out["model"] = options.model;
  }
  out["max_tokens"] = output_tokens;
  out["temperature"] = options.temperature;
  out["stream"] = true;
  out["stream_options"] = {{"include_usage", true}};
  if (options.ignore_eos) {
    out["ignore_eos"] = true;
  }
  if (!options.extra_body.empty()) {
    if (const auto extra = parse_json(options.extra_body, {.max_depth = 32}); extra.has_value()) {
      out.update(*extra);
    }
  }
  return out;
}

void set_prompt(Json& body, Endpoint endpoint, Builder& builder) {
  if (endpoint == Endpoint::kChat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", builder.text()}}});
  } else if (builder.uses_ids()) {
    body["prompt"] = builder.ids();
  } else {
    body["prompt"] = builder.text();
  }
}

}  // namespace

std::string Workload::body(std::uint64_t index) const {
  const WorkloadOptions& o = options_;
  const std::uint64_t seed = stream_seed(o.seed, Stream::kPrompt);
  const TraceEntry* entry = trace_.empty() ? nullptr : &trace_[index % trace_.size()];
  const std::int64_t output = entry != nullptr && entry->output_tokens.has_value()
                                  ? *entry->output_tokens
                                  : o.output.draw(seed, index, kOutput);
  Json out = common_body(o, output);
  if (entry != nullptr && !entry->messages.empty()) {
    if (auto messages = parse_json(entry->messages); messages.has_value()) {
      out["messages"] = std::move(*messages);
    }
    return out.dump();
  }
  if (entry != nullptr && !entry->prompt.empty()) {
    if (o.endpoint == Endpoint::kChat) {
      out["messages"] = Json::array({{{"role", "user"}, {"content", entry->prompt}}});
    } else {
      out["prompt"] = entry->prompt;
    }
    return out.dump();
  }
  Builder builder(o.prompt_ids);
  std::int64_t tokens = entry != nullptr ? entry->prompt_tokens : o.input.draw(seed, index, kInput);
  if (entry != nullptr && !entry->blocks.empty()) {
    std::int64_t done = 0;
    for (const std::uint64_t block : entry->blocks) {
      // Word counts from running sums, so that they add up to the whole prompt.
      const std::int64_t upto = std::min(done + kBlockTokens, tokens);
      builder.add(stream_seed(o.seed, Stream::kBlock), block,
                  words_for(upto) - (done == 0 ? 0 : words_for(done)));
      done = upto;
    }
  } else {
    if (o.prefix_tokens > 0) {
      const std::uint64_t group =
          word(seed, index, kGroup) % static_cast<std::uint64_t>(o.prefix_groups);
      const std::int64_t words = words_for(o.prefix_tokens);
      builder.add(stream_seed(o.seed, Stream::kPrefix), group, words);
      builder.add(seed, index, words_for(o.prefix_tokens + tokens) - words);
    } else {
      builder.add(seed, index, words_for(tokens));
    }
  }
  set_prompt(out, o.endpoint, builder);
  return out.dump();
}

Workload Workload::for_warmup() const {
  WorkloadOptions other = options_;
  other.seed = ~options_.seed;
  return {std::move(other), {}};
}

std::string Workload::probe_body(std::int64_t num_words) const {
  Json out = common_body(options_, 1);
  Builder builder(options_.prompt_ids);
  builder.add(stream_seed(options_.seed, Stream::kProbe), static_cast<std::uint64_t>(num_words),
              num_words);
  set_prompt(out, options_.endpoint, builder);
  return out.dump();
}

}  // namespace trine::loadgen
