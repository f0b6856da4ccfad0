// The tokens that penalties and bad words look at: prompt and output of one sequence, with counts.
// Advances and rolls back token by token, so that speculation can evaluate the law of every drafted
// prefix. Thread rule: belongs to one sequence of the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trine::sampling {

class TokenHistory {
 public:
  struct Count {
    std::int32_t token = 0;
    std::int32_t in_prompt = 0;
    std::int32_t in_output = 0;
  };

  // Starts over with a prompt whose ids are in [0, vocab_size). `counted` keeps counts() up to date
  // (needed by penalties only); room for max_output more tokens is made now, so that append()
  // allocates nothing.
  void reset(std::span<const std::int32_t> prompt, std::int32_t vocab_size, bool counted,
             std::int32_t max_output);
  void append(std::int32_t token);
  // Forgets the last `count` output tokens.
  void rollback(std::int32_t count);

  std::span<const std::int32_t> tokens() const { return tokens_; }

  std::int32_t num_prompt() const { return num_prompt_; }

  std::int32_t num_output() const {
    return static_cast<std::int32_t>(tokens_.size()) - num_prompt_;
  }

  // Every distinct token so far, in order of first appearance; both numbers may be 0 after a
  // rollback.
  std::span<const Count> counts() const { return counts_; }

 private:
  Count& count_of(std::int32_t token);

  std::vector<std::int32_t> tokens_;
  std::int32_t num_prompt_ = 0;
  bool counted_ = false;
  std::vector<Count> counts_;
  std::vector<std::int32_t> slot_;  // per token of the vocabulary: index into counts_, or -1
};

}  // namespace trine::sampling
