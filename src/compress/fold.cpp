#include "compress/fold.h"

#include "base/check.h"

namespace trine {

void fold_into_norm(std::vector<float>& norm, float offset, std::span<const float> s) {
  TRINE_CHECK(norm.size() == s.size());
  for (std::size_t i = 0; i < s.size(); ++i) {
    norm[i] = (offset + norm[i]) / s[i] - offset;
  }
}

void scale_columns(BlockLinear& linear, std::span<const float> s) {
  const std::size_t cols = s.size();
  TRINE_CHECK(static_cast<std::int64_t>(cols) == linear.cols);
  for (std::size_t i = 0; i < linear.w.size(); ++i) {
    linear.w[i] *= s[i % cols];
  }
  linear.scaled = true;
}

void divide_rows(BlockLinear& linear, std::vector<float>& bias, std::span<const float> s) {
  const auto cols = static_cast<std::size_t>(linear.cols);
  TRINE_CHECK(static_cast<std::int64_t>(s.size()) == linear.rows);
  for (std::size_t i = 0; i < linear.w.size(); ++i) {
    linear.w[i] /= s[i / cols];
  }
  for (std::size_t r = 0; r < bias.size(); ++r) {
    bias[r] /= s[r];
  }
  linear.scaled = true;
}

std::vector<std::int32_t> tied_value_channels(const ModelConfig& config) {
  const std::int32_t dim = config.head_dim;
  const std::int32_t group = config.num_heads / config.num_kv_heads;
  std::vector<std::int32_t> out;
  for (std::int32_t head = 0; head < config.num_heads; ++head) {
    for (std::int32_t d = 0; d < dim; ++d) {
      out.push_back(head / group * dim + d);
    }
  }
  return out;
}

}  // namespace trine
