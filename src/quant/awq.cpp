#include "quant/awq.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quant/layer_error.h"

namespace trine {
namespace {

constexpr std::int64_t kRows = 512;  // of weights at a time, which bounds the memory
constexpr int kSteps = 10;           // values of alpha for each of the two formulas
constexpr float kLeast = 1e-4F;

// d = round(w s) / s - w for rows [first, first + count) of a consumer.
void rounding_change(ThreadTeam& team, const ScaledConsumer& consumer, std::int64_t cols,
                     std::span<const float> scales, std::int64_t first, std::int64_t count,
                     std::vector<std::vector<float>>& scratch, std::span<float> d) {
  const std::int64_t size = consumer.scheme.group_cols(cols);
  team.run([&](int thread_idx) {
    const auto [begin, end] = split_range(count, 1, thread_idx, team.num_threads());
    std::vector<float>& scaled = scratch[static_cast<std::size_t>(thread_idx)];
    for (std::int64_t r = begin; r < end; ++r) {
      const float* const w = consumer.w.data() + (first + r) * cols;
      float* const out = d.data() + r * cols;
      for (std::int64_t c = 0; c < cols; ++c) {
        scaled[static_cast<std::size_t>(c)] = w[c] * scales[static_cast<std::size_t>(c)];
      }
      for (std::int64_t at = 0; at < cols; at += size) {
        const std::int64_t end_col = std::min(at + size, cols);
        const GroupGrid grid =
            choose_grid(consumer.scheme, {},
                        std::span(scaled).subspan(static_cast<std::size_t>(at),
                                                  static_cast<std::size_t>(end_col - at)),
                        {}, nullptr);
        for (std::int64_t c = at; c < end_col; ++c) {
          const auto i = static_cast<std::size_t>(c);
          out[c] = grid.round(consumer.scheme, scaled[i]) / scales[i] - w[c];
        }
      }
    }
  });
}

// One value for all channels that are tied, their mean.
void tie(std::span<const std::int32_t> tied, std::vector<float>& values) {
  if (tied.empty()) {
    return;
  }
  const auto groups = static_cast<std::size_t>(*std::max_element(tied.begin(), tied.end())) + 1;
  std::vector<double> sums(groups);
  std::vector<int> counts(groups);
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[static_cast<std::size_t>(tied[i])] += values[i];
    ++counts[static_cast<std::size_t>(tied[i])];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto group = static_cast<std::size_t>(tied[i]);
    values[i] = static_cast<float>(sums[group] / counts[group]);
  }
}

// Mean over all consumers' rows of |w| / (largest |w| of its group), per column.
std::vector<float> relative_size(std::span<const ScaledConsumer> consumers, std::int64_t cols) {
  std::vector<double> sums(static_cast<std::size_t>(cols));
  std::int64_t rows = 0;
  for (const ScaledConsumer& consumer : consumers) {
    const std::int64_t size = consumer.scheme.group_cols(cols);
    rows += consumer.rows;
    for (std::int64_t r = 0; r < consumer.rows; ++r) {
      const float* const w = consumer.w.data() + r * cols;
      for (std::int64_t at = 0; at < cols; at += size) {
        const std::int64_t end = std::min(at + size, cols);
        float most = 0;
        for (std::int64_t c = at; c < end; ++c) {
          most = std::max(most, std::fabs(w[c]));
        }
        for (std::int64_t c = at; most > 0 && c < end; ++c) {
          sums[static_cast<std::size_t>(c)] += std::fabs(w[c]) / most;
        }
      }
    }
  }
  std::vector<float> out(sums.size());
  std::transform(sums.begin(), sums.end(), out.begin(),
                 [&](double sum) { return static_cast<float>(sum / static_cast<double>(rows)); });
  return out;
}

// Around 1: divided by the geometric middle of the largest and the smallest.
void normalise(std::vector<float>& scales) {
  for (float& scale : scales) {
    scale = std::max(scale, kLeast);
  }
  const auto [low, high] = std::minmax_element(scales.begin(), scales.end());
  const float middle = std::sqrt(*low * *high);
  for (float& scale : scales) {
    scale /= middle;
  }
}

}  // namespace

AwqScales search_awq_scales(ThreadTeam& team, std::span<const ScaledConsumer> consumers,
                            std::int64_t cols, const AwqInputs& inputs) {
  const auto size = static_cast<std::size_t>(cols);
  TRINE_CHECK(!consumers.empty() && inputs.mean_abs.size() == size);
  TRINE_CHECK(inputs.tied.empty() || inputs.tied.size() == size);
  std::int64_t most_rows = 0;
  for (const ScaledConsumer& consumer : consumers) {
    TRINE_CHECK(static_cast<std::int64_t>(consumer.w.size()) == consumer.rows * cols);
    most_rows = std::max(most_rows, consumer.rows);
  }
  std::vector<float> change(static_cast<std::size_t>(std::min(most_rows, kRows) * cols));
  std::vector<std::vector<float>> scratch(static_cast<std::size_t>(team.num_threads()),
                                          std::vector<float>(size));
  const auto loss_of = [&](std::span<const float> scales) {
    double loss = 0;
    for (const ScaledConsumer& consumer : consumers) {
      for (std::int64_t first = 0; first < consumer.rows; first += kRows) {
        const std::int64_t count = std::min(kRows, consumer.rows - first);
        const auto d = std::span(change).first(static_cast<std::size_t>(count * cols));
        rounding_change(team, consumer, cols, scales, first, count, scratch, d);
        loss += output_energy(team, d, count, cols, inputs.second_moments);
      }
    }
    return loss;
  };
  AwqScales best;
  best.scales.assign(size, 1.0F);
  best.plain_loss = loss_of(best.scales);
  best.loss = best.plain_loss;
  const std::vector<float> weight_size = relative_size(consumers, cols);
  std::vector<float> scales(size);
  for (const bool by_weights : {false, true}) {
    for (int step = 1; step <= kSteps; ++step) {
      const float alpha = static_cast<float>(step) / static_cast<float>(kSteps);
      for (std::size_t i = 0; i < size; ++i) {
        const float input = std::pow(std::max(inputs.mean_abs[i], kLeast * kLeast), alpha);
        const float weight =
            by_weights ? std::pow(std::max(weight_size[i], kLeast), 1.0F - alpha) : 1.0F;
        scales[i] = input / weight;
      }
      tie(inputs.tied, scales);
      normalise(scales);
      if (const double loss = loss_of(scales); loss < best.loss) {
        best.loss = loss;
        best.scales = scales;
        best.alpha = alpha;
        best.by_weights = by_weights;
      }
    }
  }
  return best;
}

}  // namespace trine
