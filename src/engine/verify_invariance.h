// The self-check behind `trine verify invariance`: one request has one answer, bit for bit,
// whatever the step around it looks like (docs/numerics.md).
//
// Every prompt is first run alone, whole, on one thread. Then the same prompts run under
// permutations of batch, chunking, thread count, page placement (with pages full of NaN before
// use), wanted rows, shared prefixes, rollbacks and instruction sets, one at a time and mixed at
// random, and every row of logits is compared by memcmp. Thread rule: engine thread; nothing else
// computes meanwhile (the instruction-set level is switched in process).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/model.h"

namespace trine {

struct InvarianceOptions {
  // Token ids. When empty, prompts of several lengths are made from the seed. The reference keeps
  // one row of V floats per token.
  std::vector<std::vector<std::int32_t>> prompts = {};
  // One more prompt that passes the smallest sliding window of the model by a few pages, where the
  // window is at most 1024 and the context allows it; always so when `prompts` is empty. Only its
  // last rows are compared: those before the window's end would take time and memory for nothing.
  bool adds_window_prompt = false;
  std::uint64_t seed = 1;
  int num_mixed = 12;   // random mixtures after the single permutations
  int max_threads = 0;  // 0 = usable cores, at least 2
  DType kv_dtype = DType::kF16;
  // Set from outside: the run ends with the error cancelled after the step at hand.
  const std::atomic<bool>* cancel = nullptr;
  // Called after each permutation.
  std::function<void(std::string_view permutation, bool equal)> progress = {};
};

struct InvarianceDifference {
  std::string permutation;
  std::int32_t sequence = 0;  // index of the prompt
  std::int32_t position = 0;  // of the token whose logits differ
  std::int32_t token = 0;     // first differing column
  float expected = 0.0f;
  float got = 0.0f;
  std::int64_t num_different = 0;  // columns of that row
};

struct InvarianceReport {
  std::uint64_t seed = 0;
  std::vector<std::string> permutations;  // that ran, in order
  std::int64_t num_rows = 0;              // compared
  std::int64_t num_values = 0;
  std::optional<InvarianceDifference> difference;  // the first one; the run ends there
};

// Errors: those of the model and of the page pool, with the permutation's name; cancelled. A
// difference is not an error.
Result<InvarianceReport> verify_invariance(const Model& model, const InvarianceOptions& options);

// One line for people.
std::string describe(const InvarianceDifference& difference);

}  // namespace trine
