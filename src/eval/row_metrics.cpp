#include "eval/row_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/fixed_math.h"
#include "kernels/dispatch.h"

namespace trine::eval {
namespace {

constexpr std::size_t kTop = 5;

// Ids of the largest logits, the largest first, of equals the lower id first; -1 where there are
// fewer ids.
std::array<std::int32_t, kTop> top_ids(std::span<const float> logits) {
  std::array<std::int32_t, kTop> ids;
  ids.fill(-1);
  std::array<float, kTop> values;
  values.fill(-std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float value = logits[i];
    if (!(value > values.back())) {
      continue;
    }
    std::size_t at = kTop - 1;
    for (; at > 0 && value > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = static_cast<std::int32_t>(i);
  }
  return ids;
}

bool all_finite(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
}

double kl_divergence(std::span<const float> p, double p_log_sum, std::span<const float> q,
                     double q_log_sum) {
  // Eight sums side by side, so that one addition need not wait for another.
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_log_sum;
    const double log_q = double{q[i]} - q_log_sum;
    // A sum of logarithms may be a little below one of its terms.
    sums[i % kLanes] += fixed_exp(std::min(log_p, 0.0)) * (log_p - log_q);
  }
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return std::max(total, 0.0);
}

}  // namespace

std::int32_t best_id(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = double{logits[static_cast<std::size_t>(best_id(logits))]};
  return largest + fixed_log(kernels::select_table().exp_sum(
                       logits.data(), static_cast<std::int64_t>(logits.size()), largest, 1.0));
}

Result<RowMetrics> compare_row(std::span<const float> logits, std::span<const float> reference,
                               std::int32_t target) {
  TRINE_CHECK(target >= 0 && static_cast<std::size_t>(target) < logits.size());
  TRINE_CHECK(reference.empty() || reference.size() == logits.size());
  if (!all_finite(logits) || !all_finite(reference)) {
    return fail(ErrorCode::kInternal, "the {} gave logits that are not finite",
                all_finite(logits) ? "reference" : "model");
  }
  RowMetrics out;
  const double log_sum = log_sum_exp(logits);
  out.loss = log_sum - double{logits[static_cast<std::size_t>(target)]};
  if (reference.empty()) {
    return out;
  }
  const double reference_log_sum = log_sum_exp(reference);
  out.reference_loss = reference_log_sum - double{reference[static_cast<std::size_t>(target)]};
  out.kl = kl_divergence(reference, reference_log_sum, logits, log_sum);
  const auto top = top_ids(logits);
  const auto reference_top = top_ids(reference);
  out.same_top1 = top[0] == reference_top[0];
  for (const std::int32_t id : top) {
    if (id >= 0) {
      out.shared_top5 +=
          static_cast<std::int32_t>(std::count(reference_top.begin(), reference_top.end(), id));
    }
  }
  return out;
}

}  // namespace trine::eval
