#include "quant/input_moments.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/dispatch.h"

namespace trine {
namespace {

constexpr std::int64_t kChunk = 1024;  // tokens
constexpr std::int64_t kBlock = 64;    // columns
constexpr std::int64_t kTileFloats = kBlock * kBlock;

}  // namespace

InputMoments::InputMoments(std::int64_t cols, bool products)
    : cols_(cols),
      sums_(static_cast<std::size_t>(products ? cols * cols : 0)),
      squares_(static_cast<std::size_t>(cols)),
      abs_sums_(static_cast<std::size_t>(cols)),
      max_abs_(static_cast<std::size_t>(cols)) {
  TRINE_CHECK(cols > 0);
}

void InputMoments::add(ThreadTeam& team, const float* x, std::int64_t stride,
                       std::int64_t num_rows) {
  const int num_threads = team.num_threads();
  transposed_.resize(static_cast<std::size_t>(cols_ * std::min(kChunk, num_rows)));
  std::vector<float> tiles(static_cast<std::size_t>(num_threads * kTileFloats));
  const kernels::LinearTable& table = kernels::linear_table();
  for (std::int64_t first = 0; first < num_rows; first += kChunk) {
    const std::int64_t count = std::min(kChunk, num_rows - first);
    const float* from = x + first * stride;
    float* const columns = transposed_.data();
    team.run([&](int thread_idx) {
      const auto [begin, end] = split_range(cols_, 16, thread_idx, num_threads);
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t c = begin; c < end; ++c) {
          columns[c * count + t] = from[t * stride + c];
        }
      }
      for (std::int64_t c = begin; c < end; ++c) {
        const auto at = static_cast<std::size_t>(c);
        for (std::int64_t t = 0; t < count; ++t) {
          const float size = std::fabs(columns[c * count + t]);
          abs_sums_[at] += size;
          squares_[at] += static_cast<double>(size) * static_cast<double>(size);
          max_abs_[at] = std::max(max_abs_[at], size);
        }
      }
    });
    if (sums_.empty()) {
      continue;
    }
    // Blocks of the lower triangle, dealt out in turn: row r of blocks has r + 1 of them.
    team.run([&](int thread_idx) {
      float* const tile = tiles.data() + thread_idx * kTileFloats;
      std::int64_t turn = 0;
      for (std::int64_t i = 0; i < cols_; i += kBlock) {
        for (std::int64_t j = 0; j <= i; j += kBlock, ++turn) {
          if (turn % num_threads != thread_idx) {
            continue;
          }
          const std::int64_t rows = std::min(kBlock, cols_ - i);
          const std::int64_t width = std::min(kBlock, cols_ - j);
          table.dot_rows(columns + j * count, count, width, columns + i * count, count, rows, count,
                         nullptr, tile, kBlock);
          for (std::int64_t r = 0; r < rows; ++r) {
            double* const to = sums_.data() + (i + r) * cols_ + j;
            for (std::int64_t c = 0; c < width; ++c) {
              to[c] += tile[r * kBlock + c];
            }
          }
        }
      }
    });
  }
  num_tokens_ += num_rows;
}

std::vector<float> InputMoments::second_moments() const {
  TRINE_CHECK(!sums_.empty());
  std::vector<float> out(sums_.size());
  const double share = 1.0 / static_cast<double>(std::max<std::int64_t>(num_tokens_, 1));
  for (std::int64_t i = 0; i < cols_; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const auto value = static_cast<float>(sums_[static_cast<std::size_t>(i * cols_ + j)] * share);
      out[static_cast<std::size_t>(i * cols_ + j)] = value;
      out[static_cast<std::size_t>(j * cols_ + i)] = value;
    }
  }
  return out;
}

std::vector<float> InputMoments::importance() const {
  std::vector<float> out(static_cast<std::size_t>(cols_));
  const double share = 1.0 / static_cast<double>(std::max<std::int64_t>(num_tokens_, 1));
  std::transform(squares_.begin(), squares_.end(), out.begin(),
                 [&](double sum) { return static_cast<float>(sum * share); });
  return out;
}

std::vector<float> InputMoments::mean_abs() const {
  std::vector<float> out(static_cast<std::size_t>(cols_));
  const double share = 1.0 / static_cast<double>(std::max<std::int64_t>(num_tokens_, 1));
  std::transform(abs_sums_.begin(), abs_sums_.end(), out.begin(),
                 [&](double sum) { return static_cast<float>(sum * share); });
  return out;
}

bool InputMoments::finite() const {
  // An infinity or NaN of an input reaches its own square.
  return std::all_of(squares_.begin(), squares_.end(),
                     [](double sum) { return std::isfinite(static_cast<float>(sum)); });
}

}  // namespace trine
