#include "quant/gptq.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/dispatch.h"

namespace trine {
namespace {

// Errors of so many columns are gathered before the columns behind them are corrected, all at once.
// Every group size divides it or is a multiple of it, so a group begins with a block.
constexpr std::int64_t kBlock = 128;
// Rows that a member works on at a time.
constexpr std::int64_t kRows = 32;

// The problem with its columns in the order of their turns.
struct Problem {
  const QuantScheme* scheme = nullptr;
  const GptqOptions* options = nullptr;
  std::int64_t cols = 0;
  std::vector<std::int64_t> order;  // turn -> column
  std::vector<float> importance;    // by column
  std::vector<std::uint8_t> dead;   // by column
  std::vector<float> factor;        // U^T in turns
  std::vector<float> block_factor;  // row t: U[t] at the turns of t's block, [K, kBlock]
};

// What a member works in.
struct Scratch {
  std::vector<float> w;           // [kRows, K], by turn
  std::vector<float> errors;      // [kRows, kBlock]
  std::vector<float> correction;  // [kRows, K]
  std::vector<float> group;       // weights of a group, by column
};

std::vector<float> permuted(std::span<const float> h, std::int64_t cols,
                            std::span<const std::int64_t> order) {
  std::vector<float> out(h.size());
  for (std::int64_t i = 0; i < cols; ++i) {
    const float* from = h.data() + order[static_cast<std::size_t>(i)] * cols;
    float* to = out.data() + i * cols;
    for (std::int64_t j = 0; j < cols; ++j) {
      to[j] = from[order[static_cast<std::size_t>(j)]];
    }
  }
  return out;
}

class RowsSolver {
 public:
  RowsSolver(const Problem& problem, Scratch& scratch, QuantizedWeights& out)
      : p_(problem), s_(scratch), out_(out), size_(problem.scheme->group_cols(problem.cols)) {}

  // Rows [first, first + count) of w; returns the number of clipped groups.
  std::int64_t solve(std::span<const float> w, std::int64_t first, std::int64_t count) {
    first_ = first;
    clipped_ = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const float* from = w.data() + (first + r) * p_.cols;
      float* to = row(r);
      for (std::int64_t t = 0; t < p_.cols; ++t) {
        const auto column = static_cast<std::size_t>(p_.order[static_cast<std::size_t>(t)]);
        to[t] = p_.dead[column] != 0 ? 0.0F : from[column];
      }
      if (p_.options->act_order) {
        choose_all_grids(r, from);
      }
    }
    for (std::int64_t begin = 0; begin < p_.cols; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, p_.cols);
      for (std::int64_t r = 0; r < count; ++r) {
        solve_block(r, begin, end);
      }
      correct(begin, end, count);
    }
    return clipped_;
  }

 private:
  float* row(std::int64_t r) { return s_.w.data() + r * p_.cols; }

  void choose(std::int64_t r, std::int64_t group_idx, std::span<const float> w) {
    bool clipped = false;
    const auto first = static_cast<std::size_t>(group_idx * size_);
    out_.set_grid(first_ + r, group_idx,
                  choose_grid(*p_.scheme, p_.options->clip, w,
                              std::span(p_.importance).subspan(first, w.size()), &clipped));
    clipped_ += clipped ? 1 : 0;
  }

  void choose_all_grids(std::int64_t r, const float* from) {
    for (std::int64_t first = 0; first < p_.cols; first += size_) {
      const std::int64_t count = std::min(size_, p_.cols - first);
      s_.group.assign(from + first, from + first + count);
      for (std::int64_t i = 0; i < count; ++i) {
        if (p_.dead[static_cast<std::size_t>(first + i)] != 0) {
          s_.group[static_cast<std::size_t>(i)] = 0.0F;
        }
      }
      choose(r, first / size_, s_.group);
    }
  }

  // Rounds columns [begin, end) of one row and corrects those behind in the block.
  void solve_block(std::int64_t r, std::int64_t begin, std::int64_t end) {
    float* const w = row(r);
    float* const errors = s_.errors.data() + r * kBlock;
    std::int64_t at_group = -1;
    GroupGrid grid;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t column = p_.order[static_cast<std::size_t>(t)];
      if (const std::int64_t group_idx = column / size_; group_idx != at_group) {
        if (!p_.options->act_order && column % size_ == 0) {
          const std::int64_t count = std::min(size_, p_.cols - column);
          choose(r, group_idx, {w + t, static_cast<std::size_t>(count)});
        }
        at_group = group_idx;
        grid = out_.grid(first_ + r, group_idx);
      }
      const std::uint8_t code = grid.code(*p_.scheme, w[t]);
      out_.codes[static_cast<std::size_t>((first_ + r) * p_.cols + column)] = code;
      const float* const factor = p_.block_factor.data() + t * kBlock - begin;
      const float error = (w[t] - grid.value(*p_.scheme, code)) / factor[t];
      errors[t - begin] = error;
      for (std::int64_t j = t + 1; j < end; ++j) {
        w[j] -= error * factor[j];
      }
    }
  }

  // Columns behind the block: w -= errors U[block, behind].
  void correct(std::int64_t begin, std::int64_t end, std::int64_t count) {
    const std::int64_t behind = p_.cols - end;
    if (behind == 0) {
      return;
    }
    kernels::linear_table().dot_rows(p_.factor.data() + end * p_.cols + begin, p_.cols, behind,
                                     s_.errors.data(), kBlock, count, end - begin, nullptr,
                                     s_.correction.data(), p_.cols);
    for (std::int64_t r = 0; r < count; ++r) {
      float* const w = row(r) + end;
      const float* const change = s_.correction.data() + r * p_.cols;
      for (std::int64_t j = 0; j < behind; ++j) {
        w[j] -= change[j];
      }
    }
  }

  const Problem& p_;
  Scratch& s_;
  QuantizedWeights& out_;
  std::int64_t size_;
  std::int64_t first_ = 0;
  std::int64_t clipped_ = 0;
};

void gather_block_factor(Problem& problem) {
  const std::int64_t cols = problem.cols;
  problem.block_factor.assign(static_cast<std::size_t>(cols * kBlock), 0.0F);
  for (std::int64_t t = 0; t < cols; ++t) {
    const std::int64_t begin = t / kBlock * kBlock;
    for (std::int64_t j = t; j < std::min(begin + kBlock, cols); ++j) {
      problem.block_factor[static_cast<std::size_t>(t * kBlock + j - begin)] =
          problem.factor[static_cast<std::size_t>(j * cols + t)];
    }
  }
}

// The order of the columns, the dead ones marked, and H in that order with 1 for those.
std::vector<float> arrange(Problem& problem, std::span<const float> second_moments) {
  const std::int64_t cols = problem.cols;
  const auto size = static_cast<std::size_t>(cols);
  problem.importance.resize(size);
  problem.dead.assign(size, 0);
  problem.order.resize(size);
  std::iota(problem.order.begin(), problem.order.end(), std::int64_t{0});
  for (std::size_t i = 0; i < size; ++i) {
    problem.importance[i] = second_moments[i * size + i];
    problem.dead[i] = problem.importance[i] > 0.0F ? 0 : 1;
  }
  if (problem.options->act_order) {
    std::stable_sort(problem.order.begin(), problem.order.end(),
                     [&](std::int64_t a, std::int64_t b) {
                       return problem.importance[static_cast<std::size_t>(a)] >
                              problem.importance[static_cast<std::size_t>(b)];
                     });
  }
  std::vector<float> h = permuted(second_moments, cols, problem.order);
  for (std::size_t t = 0; t < size; ++t) {
    if (problem.dead[static_cast<std::size_t>(problem.order[t])] != 0) {
      h[t * size + t] = 1.0F;
    }
  }
  return h;
}

}  // namespace

GptqResult gptq(ThreadTeam& team, const QuantScheme& scheme, const GptqOptions& options,
                std::span<const float> w, std::int64_t rows, std::int64_t cols,
                std::span<const float> second_moments) {
  TRINE_CHECK(static_cast<std::int64_t>(w.size()) == rows * cols);
  TRINE_CHECK(static_cast<std::int64_t>(second_moments.size()) == cols * cols);
  Problem problem;
  problem.scheme = &scheme;
  problem.options = &options;
  problem.cols = cols;
  GptqResult out;
  {
    const std::vector<float> h = arrange(problem, second_moments);
    InverseFactor factor = inverse_factor(h, cols, options.damping);
    problem.factor = std::move(factor.transposed);
    out.damping = factor.damping;
    out.floor = factor.floor;
  }
  out.dead_columns = std::count(problem.dead.begin(), problem.dead.end(), std::uint8_t{1});
  if (problem.factor.empty()) {
    out.fell_back = true;
    out.weights = round_to_nearest(team, scheme, options.clip, w, rows, cols, problem.importance,
                                   &out.clipped_share);
    return out;
  }
  gather_block_factor(problem);
  out.weights = QuantizedWeights(scheme, rows, cols);
  std::vector<Scratch> scratches(static_cast<std::size_t>(team.num_threads()));
  for (Scratch& scratch : scratches) {
    scratch.w.resize(static_cast<std::size_t>(kRows * cols));
    scratch.errors.resize(static_cast<std::size_t>(kRows * kBlock));
    scratch.correction.resize(static_cast<std::size_t>(kRows * cols));
    scratch.group.reserve(static_cast<std::size_t>(scheme.group_cols(cols)));
  }
  std::atomic<std::int64_t> clipped{0};
  team.run([&](int thread_idx) {
    RowsSolver solver(problem, scratches[static_cast<std::size_t>(thread_idx)], out.weights);
    const auto [begin, end] = split_range(rows, 1, thread_idx, team.num_threads());
    for (std::int64_t first = begin; first < end; first += kRows) {
      clipped += solver.solve(w, first, std::min(kRows, end - first));
    }
  });
  out.clipped_share =
      static_cast<double>(clipped) / static_cast<double>(rows * out.weights.num_groups());
  return out;
}

}  // namespace trine
