#include "sampling/sampler.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/fixed_math.h"
#include "kernels/dispatch.h"

namespace trine::sampling {

namespace {

double race_uniform(std::uint64_t seed, std::uint64_t position, std::int32_t token,
                    RngPurpose purpose) {
  return uniform_open(philox(seed, position, purpose, static_cast<std::uint32_t>(token)), 0);
}

// The token whose noise over weight is least so far.
struct Race {
  std::uint64_t seed;
  std::uint64_t position;
  RngPurpose purpose;
  double best = std::numeric_limits<double>::infinity();
  std::int32_t winner = -1;

  void enter(std::int32_t token, double weight) {
    const double u = race_uniform(seed, position, token, purpose);
    // -log(u) >= 1 - u: most tokens lose without a logarithm. The factor keeps rounding on the safe
    // side.
    if ((1.0 - u) * (1.0 - 1e-12) > best * weight) {
      return;
    }
    const double arrival = -fixed_log(u) / weight;
    if (arrival < best || (arrival == best && token < winner)) {
      best = arrival;
      winner = token;
    }
  }
};

}  // namespace

double race_noise(std::uint64_t seed, std::uint64_t position, std::int32_t token,
                  RngPurpose purpose) {
  return -fixed_log(race_uniform(seed, position, token, purpose));
}

std::int32_t draw(const Law& law, std::uint64_t seed, std::uint64_t position, RngPurpose purpose) {
  Race race{.seed = seed, .position = position, .purpose = purpose};
  for (const Candidate& candidate : law.candidates) {
    race.enter(candidate.token, candidate.weight);
  }
  TRINE_CHECK(race.winner >= 0);
  return race.winner;
}

Result<std::int32_t> sample(const LogitsPipeline& pipeline, std::span<const float> raw,
                            const TokenHistory& history, std::uint64_t seed, Scratch& scratch,
                            AllowedTokens allowed) {
  const std::uint64_t position = history.tokens().size();
  if (pipeline.cuts()) {
    TRINE_TRY(pipeline.law(raw, history, scratch, allowed));
    return draw(scratch.law, seed, position);
  }
  // The whole vocabulary takes part: race without writing the law down.
  TRINE_TRY_ASSIGN(const std::span<const float> logits,
                   pipeline.adjust(raw, history, scratch, allowed));
  TRINE_TRY_ASSIGN(const std::int32_t best, pipeline.best_token(logits, history));
  const double max_logit = double{logits[static_cast<std::size_t>(best)]};
  const double temperature = pipeline.params().temperature;
  Race race{.seed = seed, .position = position, .purpose = RngPurpose::kSample};
  // The favourite runs first: its arrival spares most others their logarithm. Entering it again
  // changes nothing.
  race.enter(best, 1.0);
  const kernels::RaceArgs args{max_logit, temperature, seed, position,
                               static_cast<std::uint32_t>(race.purpose)};
  const auto& select = kernels::select_table();
  const auto n = static_cast<std::int64_t>(logits.size());
  for (std::int64_t i = select.first_entrant(logits.data(), 0, n, &args, race.best); i < n;
       i = select.first_entrant(logits.data(), i + 1, n, &args, race.best)) {
    const double logit = double{logits[static_cast<std::size_t>(i)]};
    const double weight = fixed_exp((logit - max_logit) / temperature);
    if (weight > 0.0) {
      race.enter(static_cast<std::int32_t>(i), weight);
    }
  }
  return race.winner;
}

void raw_logprobs(std::span<const float> raw, std::int32_t chosen, std::int32_t num_top,
                  Scratch& scratch, Logprobs& out) {
  const std::int32_t best = argmax(raw);
  TRINE_CHECK(best >= 0);
  const double max_logit = double{raw[static_cast<std::size_t>(best)]};
  const double total = kernels::select_table().exp_sum(
      raw.data(), static_cast<std::int64_t>(raw.size()), max_logit, 1.0);
  const double log_total = fixed_log(total);
  const auto logprob = [&](std::int32_t token) {
    return double{raw[static_cast<std::size_t>(token)]} - max_logit - log_total;
  };
  out.chosen = logprob(chosen);
  out.top.clear();
  select_top(raw, static_cast<std::size_t>(num_top), scratch.keys);
  for (const std::uint64_t key : scratch.keys) {
    out.top.push_back({.token = key_token(key), .logprob = logprob(key_token(key))});
  }
}

}  // namespace trine::sampling
