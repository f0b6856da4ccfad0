// A model judged on a text: perplexity, and how far its laws are from a reference's.
//
// The reference's logits are compared with the model's a few rows at a time, both stepping through
// the same windows; results do not depend on threads or on the size of the steps. KL is the mean
// over positions of sum p_ref (log p_ref - log p): unlike perplexity it cannot stay the same while
// the answers change. Thread rule: as Model::forward.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/logit_source.h"
#include "eval/row_metrics.h"
#include "eval/statistics.h"
#include "eval/windows.h"

namespace trine::eval {

struct TextOptions {
  std::uint64_t seed = 1;           // of the intervals
  std::int32_t greedy_prompts = 8;  // windows whose beginning is continued; 0: none
  std::int32_t greedy_prompt_tokens = 64;
  std::int32_t greedy_tokens = 128;  // of each continuation
  // Gets the scored rows so far; false ends the work as cancelled.
  std::function<bool(std::int64_t rows)> progress = [](std::int64_t) { return true; };
};

// A figure and its 95 % interval, of windows drawn anew.
struct Figure {
  double value = 0.0;
  Interval interval;
};

struct GreedyAgreement {
  std::int32_t num_tokens = 0;            // of a whole continuation
  std::vector<std::int32_t> same_tokens;  // of each prompt, until the models part

  double mean() const;
  // The share of prompts whose continuations are the same for `tokens` tokens.
  double share_same(std::int32_t tokens) const;
};

// What a text says about a model beside a reference.
struct TextComparison {
  Figure ppl;         // of the reference
  Figure ppl_change;  // ppl / reference's - 1
  Quantiles kl;
  Interval kl_interval;  // of the mean
  Figure top1;           // share of positions with the same most likely token
  Figure top5;           // mean share of the five most likely tokens that are the same
  double dp_mean = 0.0;  // p(target) minus the reference's, mean and root of the mean square
  double dp_rms = 0.0;
  static constexpr std::size_t kParts = 8;
  std::array<double, kParts> kl_by_position{};  // mean KL of equal parts of the scored rows
  // How many positions have a KL in [10^(i-9), 10^(i-8)), the first also less, the last also more.
  static constexpr std::size_t kDecades = 11;
  std::array<std::int64_t, kDecades> kl_decades{};
  std::vector<double> kl_of_windows;  // mean of each
  GreedyAgreement greedy;
};

struct TextResult {
  std::string protocol;
  std::int64_t tokens = 0;  // scored
  Figure ppl;
  std::optional<TextComparison> comparison;
};

// The beginnings of evenly spread windows that are continued, and a line that says which.
std::vector<std::vector<std::int32_t>> greedy_prompts(const TokenText& text, const WindowPlan& plan,
                                                      const TextOptions& options);
std::string greedy_protocol(const WindowPlan& plan, const TextOptions& options);

// Of greedy_tokens, what fits into a context beside the prompt; 0 when nothing is continued.
std::int32_t greedy_tokens(const WindowPlan& plan, const TextOptions& options);

// `reference` may be null. Errors: those of the sources; internal, naming the window, for logits
// that are not finite; cancelled.
Result<TextResult> evaluate_text(const TokenText& text, const WindowPlan& plan,
                                 ModelSource& candidate, LogitSource* reference, ThreadTeam& team,
                                 const TextOptions& options);

}  // namespace trine::eval
