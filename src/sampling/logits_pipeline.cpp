#include "sampling/logits_pipeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/fixed_math.h"
#include "kernels/dispatch.h"

namespace trine::sampling {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// Sorts ascending as: larger logit first, then smaller id.
std::uint64_t sort_key(float logit, std::size_t token) {
  const auto bits =
      std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 becomes +0: they are equal logits
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint32_t>(token);
}

Candidate make_candidate(std::int32_t token, float logit, double max_logit, double temperature) {
  const double scaled = (double{logit} - max_logit) / temperature;
  return {.token = token, .logit = logit, .scaled = scaled, .weight = fixed_exp(scaled)};
}

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

double sum_weights(std::span<const Candidate> candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  return total;
}

// Sorts `items` from the front only as far as needed: until `enough(item)`, called on each item in
// sorted order, says that the set is complete. Returns the size of that set.
template <typename Item, typename Less, typename Enough>
std::size_t sort_until(std::vector<Item>& items, Less less, Enough enough) {
  std::size_t begin = 0;
  for (std::size_t block = 128; begin < items.size(); block *= 4) {
    const std::size_t end = std::min(begin + block, items.size());
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto middle = items.begin() + static_cast<std::ptrdiff_t>(end);
    if (middle != items.end()) {
      std::nth_element(first, middle, items.end(), less);
    }
    std::sort(first, middle, less);
    for (std::size_t i = begin; i < end; ++i) {
      if (enough(items[i])) {
        return i + 1;
      }
    }
    begin = end;
  }
  return items.size();
}

// The k best tokens, best first.
void keep_top_k(std::span<const float> logits, std::size_t k, double max_logit, double temperature,
                Scratch& scratch) {
  select_top(logits, k, scratch.keys);
  for (const std::uint64_t key : scratch.keys) {
    const std::int32_t token = key_token(key);
    const Candidate candidate =
        make_candidate(token, logits[static_cast<std::size_t>(token)], max_logit, temperature);
    if (candidate.weight > 0.0) {
      scratch.law.candidates.push_back(candidate);
    }
  }
}

std::int64_t size_of(std::span<const float> logits) {
  return static_cast<std::int64_t>(logits.size());
}

// Most words of a mask are all set or all clear.
void keep_allowed(AllowedTokens allowed, std::span<float> logits) {
  for (std::size_t first = 0; first < logits.size(); first += 64) {
    const std::uint64_t word = first / 64 < allowed.size() ? allowed[first / 64] : 0;
    if (word == ~std::uint64_t{0}) {
      continue;
    }
    const std::size_t count = std::min<std::size_t>(64, logits.size() - first);
    if (word == 0) {
      std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(first), count, kImpossible);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if ((word >> i & 1) == 0) {
        logits[first + i] = kImpossible;
      }
    }
  }
}

// A float that every logit with (logit - max) / temperature >= floor exceeds, or -infinity.
float logit_floor(double max_logit, double temperature, double floor) {
  // Rounding moves that quotient by far less than this margin.
  const double logit = max_logit + floor * temperature;
  const double margin = 1e-6 * (1.0 + std::abs(logit) + std::abs(max_logit));
  return logit - margin > -double{std::numeric_limits<float>::max()}
             ? static_cast<float>(logit - margin)
             : kImpossible;
}

// Everything possible, in order of ids.
void keep_all(std::span<const float> logits, double max_logit, double temperature, double floor,
              Scratch& scratch) {
  const auto& select = kernels::select_table();
  const std::int64_t n = size_of(logits);
  const float above = logit_floor(max_logit, temperature, floor);
  for (std::int64_t i = select.first_above(logits.data(), 0, n, above); i < n;
       i = select.first_above(logits.data(), i + 1, n, above)) {
    const float logit = logits[static_cast<std::size_t>(i)];
    const double scaled = (double{logit} - max_logit) / temperature;
    if (scaled < floor) {
      continue;
    }
    const double weight = fixed_exp(scaled);
    if (weight > 0.0) {
      scratch.law.candidates.push_back({.token = static_cast<std::int32_t>(i),
                                        .logit = logit,
                                        .scaled = scaled,
                                        .weight = weight});
    }
  }
}

// The smallest set of best tokens whose weight reaches top_p of `total`, best first.
void cut_top_p(double top_p, double total, bool sorted, std::vector<Candidate>& candidates) {
  double sum = 0.0;
  const auto enough = [&](const Candidate& candidate) {
    sum += candidate.weight;
    return sum >= top_p * total;
  };
  std::size_t count = 0;
  if (sorted) {
    while (count < candidates.size() && !enough(candidates[count++])) {
    }
  } else {
    count = sort_until(candidates, better, enough);
  }
  candidates.resize(count);
}

// The smallest set of tokens, nearest to the law's entropy first, whose probability reaches
// typical_p.
void cut_typical(double typical_p, Scratch& scratch) {
  std::vector<Candidate>& candidates = scratch.law.candidates;
  const double total = sum_weights(candidates);
  const double log_total = fixed_log(total);
  double entropy = 0.0;
  for (const Candidate& candidate : candidates) {
    entropy -= candidate.weight / total * (candidate.scaled - log_total);
  }
  auto& deviations = scratch.deviations;
  deviations.clear();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double surprise = log_total - candidates[i].scaled;
    deviations.emplace_back(std::abs(surprise - entropy), static_cast<std::uint32_t>(i));
  }
  double sum = 0.0;
  const std::size_t count = sort_until(
      deviations,
      [&](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first
                                  : candidates[a.second].token < candidates[b.second].token;
      },
      [&](const auto& item) {
        sum += candidates[item.second].weight;
        return sum >= typical_p * total;
      });
  scratch.candidates.clear();
  for (std::size_t i = 0; i < count; ++i) {
    scratch.candidates.push_back(candidates[deviations[i].second]);
  }
  candidates.swap(scratch.candidates);
}

}  // namespace

std::int32_t argmax(std::span<const float> logits) {
  const auto& select = kernels::select_table();
  const std::int64_t n = size_of(logits);
  const float best = select.largest(logits.data(), n);
  if (best == kImpossible) {
    return -1;
  }
  const float below = std::nextafter(best, kImpossible);
  return static_cast<std::int32_t>(select.first_above(logits.data(), 0, n, below));
}

void select_top(std::span<const float> logits, std::size_t k, std::vector<std::uint64_t>& keys) {
  keys.clear();
  if (k == 0) {
    return;
  }
  // A buffer of 2k + 64 keys is cut back to the k best whenever it is full. From then on only
  // logits above the k-th best can enter: an equal one has a higher id, since ids ascend.
  const auto& select = kernels::select_table();
  const std::int64_t n = size_of(logits);
  const std::size_t room = 2 * std::min(k, logits.size()) + 64;
  keys.reserve(room);
  float threshold = kImpossible;
  for (std::int64_t i = select.first_above(logits.data(), 0, n, threshold); i < n;
       i = select.first_above(logits.data(), i + 1, n, threshold)) {
    keys.push_back(sort_key(logits[static_cast<std::size_t>(i)], static_cast<std::size_t>(i)));
    if (keys.size() == room) {
      const auto last = keys.begin() + static_cast<std::ptrdiff_t>(k - 1);
      std::nth_element(keys.begin(), last, keys.end());
      threshold = logits[static_cast<std::size_t>(key_token(*last))];
      keys.resize(k);
    }
  }
  if (keys.size() > k) {
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(k - 1), keys.end());
    keys.resize(k);
  }
  std::sort(keys.begin(), keys.end());
}

Result<LogitsPipeline> LogitsPipeline::create(const SamplingParams& params, std::int32_t vocab_size,
                                              std::span<const std::int32_t> stop_ids) {
  TRINE_TRY(validate(params, vocab_size));
  LogitsPipeline pipeline;
  pipeline.params_ = params;
  pipeline.vocab_size_ = vocab_size;
  pipeline.stop_ids_.assign(stop_ids.begin(), stop_ids.end());
  for (const std::int32_t id : stop_ids) {
    if (id < 0 || id >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument,
                  "stop_ids: token {} is not in the vocabulary [0, {})", id, vocab_size);
    }
  }
  return pipeline;
}

bool LogitsPipeline::needs_counts() const {
  return params_.repetition_penalty != 1.0 || params_.presence_penalty != 0.0 ||
         params_.frequency_penalty != 0.0;
}

bool LogitsPipeline::adjusts_here(const TokenHistory& history) const {
  return needs_counts() || !params_.logit_bias.empty() || !params_.bad_words.empty() ||
         (history.num_output() < params_.min_tokens && !stop_ids_.empty());
}

void LogitsPipeline::penalize(std::span<float> logits, const TokenHistory& history) const {
  for (const TokenHistory::Count& count : history.counts()) {
    float& logit = logits[static_cast<std::size_t>(count.token)];
    if (params_.repetition_penalty != 1.0 && count.in_prompt + count.in_output > 0) {
      logit = static_cast<float>(logit > 0.0f ? double{logit} / params_.repetition_penalty
                                              : double{logit} * params_.repetition_penalty);
    }
    if (params_.presence_penalty != 0.0 && count.in_output > 0) {
      logit = static_cast<float>(double{logit} - params_.presence_penalty);
    }
    if (params_.frequency_penalty != 0.0 && count.in_output > 0) {
      logit = static_cast<float>(double{logit} - params_.frequency_penalty * count.in_output);
    }
  }
}

void LogitsPipeline::mask_bad_words(std::span<float> logits, const TokenHistory& history) const {
  const auto tokens = history.tokens();
  for (const std::vector<std::int32_t>& word : params_.bad_words) {
    const std::size_t prefix = word.size() - 1;
    if (prefix <= tokens.size() && std::equal(word.begin(), word.end() - 1,
                                              tokens.end() - static_cast<std::ptrdiff_t>(prefix))) {
      logits[static_cast<std::size_t>(word.back())] = kImpossible;
    }
  }
}

Result<std::span<const float>> LogitsPipeline::adjust(std::span<const float> raw,
                                                      const TokenHistory& history, Scratch& scratch,
                                                      AllowedTokens allowed) const {
  TRINE_CHECK(raw.size() == static_cast<std::size_t>(vocab_size_));
  const std::size_t position = history.tokens().size();
  std::span<const float> out = raw;
  // A comparison that NaN and +infinity fail, summed so that the loop has no branch.
  std::size_t num_bad = 0;
  for (const float logit : raw) {
    num_bad += logit <= std::numeric_limits<float>::max() ? 0u : 1u;
  }
  if (num_bad > 0) {
    const auto bad = std::find_if(raw.begin(), raw.end(), [](float logit) {
      return !(logit <= std::numeric_limits<float>::max());
    });
    return fail(
        ErrorCode::kInternal,
        "position {}: the model gave {} logits that are NaN or infinite, the first is {} at "
        "token {}",
        position, num_bad, *bad, bad - raw.begin());
  }
  if (!allowed.empty() || adjusts_here(history)) {
    scratch.logits.assign(raw.begin(), raw.end());
    const std::span<float> logits(scratch.logits);
    penalize(logits, history);
    for (const LogitBias& entry : params_.logit_bias) {
      float& logit = logits[static_cast<std::size_t>(entry.token)];
      logit = static_cast<float>(double{logit} + entry.bias);
    }
    mask_bad_words(logits, history);
    if (history.num_output() < params_.min_tokens) {
      for (const std::int32_t id : stop_ids_) {
        logits[static_cast<std::size_t>(id)] = kImpossible;
      }
    }
    if (!allowed.empty()) {
      keep_allowed(allowed, logits);
    }
    out = logits;
  }
  return out;
}

Result<std::int32_t> LogitsPipeline::best_token(std::span<const float> logits,
                                                const TokenHistory& history) const {
  const std::int32_t best = argmax(logits);
  const std::size_t position = history.tokens().size();
  if (best < 0) {
    return fail(
        ErrorCode::kUnsupported,
        "position {}: no token is possible, every logit is -infinity after bias, bad_words, "
        "min_tokens and grammar",
        position);
  }
  if (logits[static_cast<std::size_t>(best)] > std::numeric_limits<float>::max()) {
    return fail(ErrorCode::kInternal, "position {}: penalties made the logit of token {} infinite",
                position, best);
  }
  return best;
}

bool LogitsPipeline::cuts() const {
  return params_.temperature == 0.0 || (params_.top_k > 0 && params_.top_k < vocab_size_) ||
         params_.top_p < 1.0 || params_.min_p > 0.0 || params_.typical_p < 1.0;
}

Status LogitsPipeline::law(std::span<const float> raw, const TokenHistory& history,
                           Scratch& scratch, AllowedTokens allowed) const {
  TRINE_TRY_ASSIGN(const std::span<const float> logits, adjust(raw, history, scratch, allowed));
  TRINE_TRY_ASSIGN(const std::int32_t best, best_token(logits, history));
  const float max_logit = logits[static_cast<std::size_t>(best)];
  Law& law = scratch.law;
  law.candidates.clear();
  if (params_.temperature == 0.0) {
    law.candidates.push_back({.token = best, .logit = max_logit, .scaled = 0.0, .weight = 1.0});
    law.total = 1.0;
    return {};
  }
  const double temperature = params_.temperature;
  const auto top_k = static_cast<std::size_t>(params_.top_k);
  if (top_k > 0 && top_k < logits.size()) {
    keep_top_k(logits, top_k, max_logit, temperature, scratch);
    if (params_.top_p < 1.0) {
      cut_top_p(params_.top_p, sum_weights(law.candidates), true, law.candidates);
    }
  } else if (params_.top_p < 1.0) {
    // Tokens below (1 - p) total / V, all together, weigh less than what top-p leaves out: none of
    // them is kept. Half of that bound leaves room for rounding.
    const double total =
        kernels::select_table().exp_sum(logits.data(), size_of(logits), max_logit, temperature);
    const double bound = 0.5 * (1.0 - params_.top_p) * total / static_cast<double>(logits.size());
    keep_all(logits, max_logit, temperature, fixed_log(bound), scratch);
    cut_top_p(params_.top_p, total, false, law.candidates);
  } else {
    // What min_p will drop need not be listed; the exact comparison follows below.
    const double floor = params_.min_p > 1e-300 ? fixed_log(params_.min_p) - 1e-9
                                                : -std::numeric_limits<double>::infinity();
    keep_all(logits, max_logit, temperature, floor, scratch);
  }
  if (params_.min_p > 0.0) {
    // The best token has weight 1, so the ratio to it is the weight.
    std::erase_if(law.candidates,
                  [&](const Candidate& candidate) { return candidate.weight < params_.min_p; });
  }
  if (params_.typical_p < 1.0) {
    cut_typical(params_.typical_p, scratch);
  }
  law.total = sum_weights(law.candidates);
  return {};
}

}  // namespace trine::sampling
