// What calibration keeps of the inputs of a linear layer: their second moments, which are all that
// GPTQ, AWQ and importance weights need, and two figures per channel.
//
// X is [tokens, K]. H = X^T X / tokens, as E[x x^T]. Sums are float32 products of up to 1024
// tokens, added in double in the order of the calls: the result depends on the tokens and on how
// they were cut into calls, not on the number of threads. Thread rule: the thread that owns the
// team.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "platform/thread_team.h"

namespace trine {

class InputMoments {
 public:
  // products: false keeps the diagonal of H only.
  explicit InputMoments(std::int64_t cols, bool products = true);

  // x is [num_rows, cols], rows `stride` floats apart.
  void add(ThreadTeam& team, const float* x, std::int64_t stride, std::int64_t num_rows);

  std::int64_t cols() const { return cols_; }

  std::int64_t num_tokens() const { return num_tokens_; }

  // H [K, K], symmetric (with products), and its diagonal.
  std::vector<float> second_moments() const;
  std::vector<float> importance() const;
  std::vector<float> mean_abs() const;

  std::span<const float> max_abs() const { return max_abs_; }

  // Whether every sum is finite.
  bool finite() const;

 private:
  std::int64_t cols_;
  std::int64_t num_tokens_ = 0;
  std::vector<double> sums_;      // [K, K], the lower triangle in blocks; empty without products
  std::vector<double> squares_;   // [K]
  std::vector<double> abs_sums_;  // [K]
  std::vector<float> max_abs_;    // [K]
  std::vector<float> transposed_;
};

}  // namespace trine
