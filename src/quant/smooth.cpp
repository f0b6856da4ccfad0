#include "quant/smooth.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quant/dense.h"
#include "quant/quantized_weights.h"

namespace trine {
namespace {

constexpr float kLeast = 1e-5F;

// As the kernels do it (kernels/packed.h): 8 bits, one scale for the row.
void round_activations(std::span<float> row) {
  float most = 0;
  for (const float value : row) {
    most = std::max(most, std::fabs(value));
  }
  if (most < 0x1p-100F) {
    std::fill(row.begin(), row.end(), 0.0F);
    return;
  }
  const float scale = most / 127.0F;
  const float inverse = 127.0F / most;
  for (float& value : row) {
    value = std::nearbyint(value * inverse) * scale;
  }
}

class Losses {
 public:
  Losses(ThreadTeam& team, std::span<const ScaledConsumer> consumers, std::int64_t cols,
         const SmoothInputs& inputs)
      : team_(team), consumers_(consumers), cols_(cols), inputs_(inputs) {
    for (const ScaledConsumer& consumer : consumers) {
      exact_.push_back(product(consumer.w, consumer.rows, inputs.samples));
      for (const float y : exact_.back()) {
        energy_ += static_cast<double>(y) * static_cast<double>(y);
      }
    }
  }

  double of(std::span<const float> scales, bool round_inputs) {
    std::vector<float> x(inputs_.samples.begin(), inputs_.samples.end());
    const auto size = static_cast<std::size_t>(cols_);
    for (std::int64_t t = 0; t < inputs_.num_samples; ++t) {
      const auto row = std::span(x).subspan(static_cast<std::size_t>(t) * size, size);
      for (std::size_t c = 0; c < size; ++c) {
        row[c] /= scales[c];
      }
      if (round_inputs) {
        round_activations(row);
      }
    }
    double loss = 0;
    for (std::size_t i = 0; i < consumers_.size(); ++i) {
      const std::vector<float> y = product(rounded(consumers_[i], scales), consumers_[i].rows, x);
      for (std::size_t j = 0; j < y.size(); ++j) {
        const double d = static_cast<double>(y[j]) - static_cast<double>(exact_[i][j]);
        loss += d * d;
      }
    }
    return energy_ > 0 ? loss / energy_ : 0;
  }

 private:
  std::vector<float> product(std::span<const float> w, std::int64_t rows,
                             std::span<const float> x) {
    std::vector<float> y(static_cast<std::size_t>(inputs_.num_samples * rows));
    multiply_rows(team_, {w.data(), cols_, rows, x.data(), cols_, inputs_.num_samples, cols_,
                          y.data(), rows});
    return y;
  }

  std::vector<float> rounded(const ScaledConsumer& consumer, std::span<const float> scales) {
    const auto size = static_cast<std::size_t>(cols_);
    std::vector<float> w(consumer.w.begin(), consumer.w.end());
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] *= scales[i % size];
    }
    const QuantizedWeights q =
        round_to_nearest(team_, consumer.scheme, {}, w, consumer.rows, cols_, {}, nullptr);
    for (std::int64_t r = 0; r < consumer.rows; ++r) {
      q.dequantize_row(r, std::span(w).subspan(static_cast<std::size_t>(r) * size, size));
    }
    return w;
  }

  ThreadTeam& team_;
  std::span<const ScaledConsumer> consumers_;
  std::int64_t cols_;
  const SmoothInputs& inputs_;
  std::vector<std::vector<float>> exact_;  // outputs, per consumer [num_samples, rows]
  double energy_ = 0;
};

}  // namespace

SmoothScales search_smooth_scales(ThreadTeam& team, std::span<const ScaledConsumer> consumers,
                                  std::int64_t cols, const SmoothInputs& inputs,
                                  std::span<const float> alphas) {
  const auto size = static_cast<std::size_t>(cols);
  TRINE_CHECK(inputs.max_abs.size() == size);
  TRINE_CHECK(static_cast<std::int64_t>(inputs.samples.size()) == inputs.num_samples * cols);
  std::vector<float> weight_max(size, 0.0F);
  for (const ScaledConsumer& consumer : consumers) {
    for (std::size_t i = 0; i < consumer.w.size(); ++i) {
      float& most = weight_max[i % size];
      most = std::max(most, std::fabs(consumer.w[i]));
    }
  }
  Losses losses(team, consumers, cols, inputs);
  SmoothScales best;
  best.scales.assign(size, 1.0F);
  best.plain_loss = losses.of(best.scales, true);
  best.loss = best.plain_loss;
  std::vector<float> scales(size);
  for (const float alpha : alphas) {
    for (std::size_t i = 0; i < size; ++i) {
      scales[i] = std::max(std::pow(std::max(inputs.max_abs[i], kLeast), alpha) /
                               std::pow(std::max(weight_max[i], kLeast), 1.0F - alpha),
                           kLeast);
    }
    if (const double loss = losses.of(scales, true); loss < best.loss) {
      best.loss = loss;
      best.scales = scales;
      best.alpha = alpha;
    }
  }
  best.weight_loss = losses.of(best.scales, false);
  return best;
}

}  // namespace trine
