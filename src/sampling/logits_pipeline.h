// From raw logits to the law that a token is drawn from, in the one order of docs/sampling.md:
//   repetition, presence, frequency; logit bias; bad words; min_tokens; allowed tokens;
//   temperature; top-k; top-p; min-p; typical.
//
// Numeric contract: logits are f32; each of the first six steps is computed in f64 and rounded to
// f32 once per step; everything from the temperature on is f64 with sums in one fixed order
// (candidates in the order that law() returns them), so the law is a function of (logits, history,
// parameters) alone. Sources: repetition penalty - Keskar et al. 2019 (CTRL); top-k - Fan et al.
// 2018; top-p - Holtzman et al. 2019; typical - Meister et al. 2022; min-p - Nguyen et al. 2024.
// Thread rule: immutable after creation; a scratch belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sampling/sampling_params.h"
#include "sampling/token_history.h"

namespace trine::sampling {

// One token that the law gives a positive weight.
struct Candidate {
  std::int32_t token = 0;
  float logit = 0.0f;   // after penalties, bias and masks
  double scaled = 0.0;  // (logit - largest logit) / temperature, <= 0
  double weight = 0.0;  // exp(scaled), in (0, 1]: the probability up to the common factor 1 / total
};

// The filtered law. Order of candidates: ascending token id when neither top-k, top-p nor typical
// cut it, else as the last cut sorted them.
struct Law {
  std::vector<Candidate> candidates;
  double total = 0.0;  // sum of weights in that order

  double probability(std::size_t i) const { return candidates[i].weight / total; }
};

// Bit i % 64 of word i / 64 set: token i is possible; tokens past the words are not. Without words
// every token is.
using AllowedTokens = std::span<const std::uint64_t>;

// Buffers that grow on first use and are then reused.
struct Scratch {
  std::vector<float> logits;
  std::vector<std::uint64_t> keys;
  std::vector<std::pair<double, std::uint32_t>> deviations;
  std::vector<Candidate> candidates;
  Law law;

  // Room for whatever a draw from `vocab_size` tokens may need.
  void reserve(std::size_t vocab_size) {
    logits.reserve(vocab_size);
    keys.reserve(vocab_size);
    deviations.reserve(vocab_size);
    candidates.reserve(vocab_size);
    law.candidates.reserve(vocab_size);
  }
};

class LogitsPipeline {
 public:
  // `stop_ids` are what min_tokens makes impossible. Errors: invalid_argument as in validate().
  static Result<LogitsPipeline> create(const SamplingParams& params, std::int32_t vocab_size,
                                       std::span<const std::int32_t> stop_ids);

  // Whether the history must keep counts.
  bool needs_counts() const;

  // Penalties, bias, bad words, min_tokens and allowed tokens: `raw` itself when none of them
  // applies here, else a view of the scratch. Errors: internal, naming the position, for a raw
  // logit that is NaN or +infinity.
  Result<std::span<const float>> adjust(std::span<const float> raw, const TokenHistory& history,
                                        Scratch& scratch, AllowedTokens allowed = {}) const;

  // The token with the largest adjusted logit. Errors, naming the position: unsupported when the
  // request leaves no token (all -infinity); internal when penalties made it infinite.
  Result<std::int32_t> best_token(std::span<const float> logits, const TokenHistory& history) const;

  // Whether anything narrows the law: temperature 0, top-k, top-p, min-p or typical.
  bool cuts() const;

  // The whole way; the result lives in scratch.law. Temperature 0 gives one candidate. Errors: as
  // adjust() and best_token().
  Status law(std::span<const float> raw, const TokenHistory& history, Scratch& scratch,
             AllowedTokens allowed = {}) const;

  const SamplingParams& params() const { return params_; }

  std::int32_t vocab_size() const { return vocab_size_; }

 private:
  bool adjusts_here(const TokenHistory& history) const;
  void penalize(std::span<float> logits, const TokenHistory& history) const;
  void mask_bad_words(std::span<float> logits, const TokenHistory& history) const;

  SamplingParams params_;
  std::int32_t vocab_size_ = 0;
  std::vector<std::int32_t> stop_ids_;
};

// The largest logit's token, the lowest id among equals; -1 when every logit is -infinity.
std::int32_t argmax(std::span<const float> logits);

// The k largest logits as keys whose low 32 bits are token ids, best first: by logit, then by id.
// Tokens at -infinity are left out. One pass over the vocabulary; only O(k) keys are ever sorted.
void select_top(std::span<const float> logits, std::size_t k, std::vector<std::uint64_t>& keys);

inline std::int32_t key_token(std::uint64_t key) {
  return static_cast<std::int32_t>(key & 0xffffffffu);
}

}  // namespace trine::sampling
