// What one row of logits says about the text and about the row of a reference.
//
// Sums are in double, in a fixed order, so figures do not depend on threads or instruction sets.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"

namespace trine::eval {

// Of one position; the fields of a comparison are 0 without a reference.
struct RowMetrics {
  double loss = 0.0;             // -log p(target), nats
  double reference_loss = 0.0;   // of the reference
  double kl = 0.0;               // sum p_ref (log p_ref - log p), nats, at least 0
  bool same_top1 = false;        // both find the same token most likely; of equals the lower id
  std::int32_t shared_top5 = 0;  // tokens that are among the five most likely of both
};

// `logits` and `reference` are of the ids that a tokenizer knows; `reference` may be empty.
// Errors: internal for logits that are not finite.
Result<RowMetrics> compare_row(std::span<const float> logits, std::span<const float> reference,
                               std::int32_t target);

// The most likely id, of equals the lowest.
std::int32_t best_id(std::span<const float> logits);

// log of the sum of exp(logits). All finite.
double log_sum_exp(std::span<const float> logits);

}  // namespace trine::eval
