#include "sampling/token_history.h"

#include <algorithm>

#include "base/check.h"

namespace trine::sampling {

void TokenHistory::reset(std::span<const std::int32_t> prompt, std::int32_t vocab_size,
                         bool counted, std::int32_t max_output) {
  TRINE_CHECK(max_output >= 0);
  const std::size_t room = prompt.size() + static_cast<std::size_t>(max_output);
  tokens_.clear();
  tokens_.reserve(room);
  tokens_.assign(prompt.begin(), prompt.end());
  num_prompt_ = static_cast<std::int32_t>(prompt.size());
  counted_ = counted;
  counts_.clear();
  slot_.clear();
  if (!counted) {
    return;
  }
  slot_.assign(static_cast<std::size_t>(vocab_size), -1);
  counts_.reserve(std::min(room, slot_.size()));
  for (const std::int32_t token : prompt) {
    ++count_of(token).in_prompt;
  }
}

TokenHistory::Count& TokenHistory::count_of(std::int32_t token) {
  TRINE_CHECK(token >= 0 && static_cast<std::size_t>(token) < slot_.size());
  std::int32_t& slot = slot_[static_cast<std::size_t>(token)];
  if (slot < 0) {
    slot = static_cast<std::int32_t>(counts_.size());
    counts_.push_back({.token = token});
  }
  return counts_[static_cast<std::size_t>(slot)];
}

void TokenHistory::append(std::int32_t token) {
  tokens_.push_back(token);
  if (counted_) {
    ++count_of(token).in_output;
  }
}

void TokenHistory::rollback(std::int32_t count) {
  TRINE_CHECK(count >= 0 && count <= num_output());
  for (std::int32_t i = 0; i < count; ++i) {
    if (counted_) {
      --count_of(tokens_.back()).in_output;
    }
    tokens_.pop_back();
  }
}

}  // namespace trine::sampling
