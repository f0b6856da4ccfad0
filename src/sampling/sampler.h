// The draw of one token, and the log-probabilities that go with it.
//
// Rule (docs/sampling.md, "coupled"): token = argmin over the law's support of E(t, i) / p(i), with
// E(t, i) = -log(u) standard exponential noise that depends on (seed, absolute position t, token i)
// only. This draws i with probability p(i): the minimum of independent exponentials of rate p(i) is
// at i with that chance. The noise of a token does not depend on the law, so a draft that draws
// from its own law with the same noise often draws the same token, and nothing that happens
// elsewhere shifts the stream. Thread rule: as the pipeline; a scratch belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "sampling/logits_pipeline.h"

namespace trine::sampling {

// E(t, i) of the rule above.
double race_noise(std::uint64_t seed, std::uint64_t position, std::int32_t token,
                  RngPurpose purpose = RngPurpose::kSample);

// argmin E / weight over the candidates; ties go to the lower id. At least one candidate.
std::int32_t draw(const Law& law, std::uint64_t seed, std::uint64_t position,
                  RngPurpose purpose = RngPurpose::kSample);

// One token for the sequence position history.tokens().size(). Equal to law() and draw(), without
// building the law where nothing cuts it. Errors: as LogitsPipeline::adjust.
Result<std::int32_t> sample(const LogitsPipeline& pipeline, std::span<const float> raw,
                            const TokenHistory& history, std::uint64_t seed, Scratch& scratch,
                            AllowedTokens allowed = {});

struct TokenLogprob {
  std::int32_t token = 0;
  double logprob = 0.0;
};

struct Logprobs {
  double chosen = 0.0;            // of the token that was drawn
  std::vector<TokenLogprob> top;  // most likely first, equal ones by id
};

// log softmax of the raw logits in f64, summed in order of ids.
void raw_logprobs(std::span<const float> raw, std::int32_t chosen, std::int32_t num_top,
                  Scratch& scratch, Logprobs& out);

}  // namespace trine::sampling
