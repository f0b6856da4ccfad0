#include "eval/text_eval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace trine::eval {
namespace {

// Rows of one step: few enough that both models' logits stay small for any vocabulary.
std::int32_t chunk_rows(std::int32_t num_ids) {
  constexpr std::int64_t kMostFloats = std::int64_t{1} << 24;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(kMostFloats / num_ids, 1, 256));
}

// Sums over the rows of one window; what the intervals draw anew.
struct WindowSums {
  double rows = 0.0;
  double loss = 0.0;
  double reference_loss = 0.0;
  double kl = 0.0;
  double top1 = 0.0;
  double top5 = 0.0;
};

class Scores {
 public:
  Scores(const WindowPlan& plan, bool compares) : plan_(plan), compares_(compares) {
    const auto rows = static_cast<std::size_t>(plan.num_scored());
    if (compares) {
      kl_.reserve(rows);
    }
  }

  void begin() { windows_.emplace_back(); }

  // In order of rows.
  void add(const Window& window, std::int32_t row, const RowMetrics& metrics) {
    WindowSums& sums = windows_.back();
    sums.rows += 1.0;
    sums.loss += metrics.loss;
    if (!compares_) {
      return;
    }
    constexpr double kTop = 5.0;
    sums.reference_loss += metrics.reference_loss;
    sums.kl += metrics.kl;
    sums.top1 += metrics.same_top1 ? 1.0 : 0.0;
    sums.top5 += metrics.shared_top5 / kTop;
    kl_.push_back(metrics.kl);
    const double dp = std::exp(-metrics.loss) - std::exp(-metrics.reference_loss);
    dp_sum_ += dp;
    dp_squares_ += dp * dp;
    const auto part = static_cast<std::size_t>(static_cast<std::int64_t>(row - window.score_from) *
                                               static_cast<std::int64_t>(TextComparison::kParts) /
                                               (window.length - window.score_from));
    part_kl_[part] += metrics.kl;
    part_rows_[part] += 1.0;
    const double decade = metrics.kl > 0.0 ? std::floor(std::log10(metrics.kl)) + 9.0 : 0.0;
    ++decades_[static_cast<std::size_t>(
        std::clamp(decade, 0.0, static_cast<double>(TextComparison::kDecades - 1)))];
  }

  TextResult result(std::uint64_t seed) const {
    TextResult out;
    out.tokens = plan_.num_scored();
    out.ppl = figure(seed, [](const WindowSums& s) { return std::exp(s.loss / s.rows); });
    if (compares_) {
      out.comparison = comparison(seed);
    }
    return out;
  }

 private:
  template <typename Of>
  Figure figure(std::uint64_t seed, const Of& of) const {
    const auto drawn = [&](std::span<const std::uint32_t> counts) {
      WindowSums sums;
      for (std::size_t i = 0; i < windows_.size(); ++i) {
        const WindowSums& w = windows_[i];
        const double n = counts[i];
        sums.rows += n * w.rows;
        sums.loss += n * w.loss;
        sums.reference_loss += n * w.reference_loss;
        sums.kl += n * w.kl;
        sums.top1 += n * w.top1;
        sums.top5 += n * w.top5;
      }
      return of(sums);
    };
    const std::vector<std::uint32_t> once(windows_.size(), 1);
    return {.value = drawn(once), .interval = bootstrap(windows_.size(), seed, drawn)};
  }

  TextComparison comparison(std::uint64_t seed) const {
    TextComparison out;
    out.ppl = figure(seed, [](const WindowSums& s) { return std::exp(s.reference_loss / s.rows); });
    out.ppl_change = figure(
        seed, [](const WindowSums& s) { return std::expm1((s.loss - s.reference_loss) / s.rows); });
    out.kl = quantiles(kl_);
    const Figure kl = figure(seed, [](const WindowSums& s) { return s.kl / s.rows; });
    out.kl.mean = kl.value;
    out.kl_interval = kl.interval;
    out.top1 = figure(seed, [](const WindowSums& s) { return s.top1 / s.rows; });
    out.top5 = figure(seed, [](const WindowSums& s) { return s.top5 / s.rows; });
    const auto rows = static_cast<double>(kl_.size());
    out.dp_mean = dp_sum_ / rows;
    out.dp_rms = std::sqrt(dp_squares_ / rows);
    for (std::size_t i = 0; i < TextComparison::kParts; ++i) {
      out.kl_by_position[i] = part_rows_[i] > 0.0 ? part_kl_[i] / part_rows_[i] : 0.0;
    }
    out.kl_decades = decades_;
    for (const WindowSums& w : windows_) {
      out.kl_of_windows.push_back(w.kl / w.rows);
    }
    return out;
  }

  const WindowPlan& plan_;
  bool compares_;
  std::vector<WindowSums> windows_;
  std::vector<double> kl_;  // of every row
  double dp_sum_ = 0.0;
  double dp_squares_ = 0.0;
  std::array<double, TextComparison::kParts> part_kl_{};
  std::array<double, TextComparison::kParts> part_rows_{};
  std::array<std::int64_t, TextComparison::kDecades> decades_{};
};

std::int32_t prompt_tokens(const WindowPlan& plan, const TextOptions& options) {
  return std::min(options.greedy_prompt_tokens, plan.context / 2);
}

}  // namespace

double GreedyAgreement::mean() const {
  if (same_tokens.empty()) {
    return 0.0;
  }
  return std::accumulate(same_tokens.begin(), same_tokens.end(), 0.0) /
         static_cast<double>(same_tokens.size());
}

double GreedyAgreement::share_same(std::int32_t tokens) const {
  if (same_tokens.empty()) {
    return 0.0;
  }
  const auto same = std::count_if(same_tokens.begin(), same_tokens.end(),
                                  [tokens](std::int32_t n) { return n >= tokens; });
  return static_cast<double>(same) / static_cast<double>(same_tokens.size());
}

std::int32_t greedy_tokens(const WindowPlan& plan, const TextOptions& options) {
  return options.greedy_prompts == 0
             ? 0
             : std::min(options.greedy_tokens, plan.context - prompt_tokens(plan, options));
}

std::vector<std::vector<std::int32_t>> greedy_prompts(const TokenText& text, const WindowPlan& plan,
                                                      const TextOptions& options) {
  std::vector<std::vector<std::int32_t>> out;
  const std::size_t count =
      std::min(static_cast<std::size_t>(options.greedy_prompts), plan.windows.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int32_t> tokens =
        window_tokens(text, plan, plan.windows[i * plan.windows.size() / count]);
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(prompt_tokens(plan, options))));
    out.push_back(std::move(tokens));
  }
  return out;
}

std::string greedy_protocol(const WindowPlan& plan, const TextOptions& options) {
  return fmt::format(
      "prompts={} prompt-tokens={} tokens={}",
      std::min(static_cast<std::size_t>(options.greedy_prompts), plan.windows.size()),
      prompt_tokens(plan, options), greedy_tokens(plan, options));
}

Result<TextResult> evaluate_text(const TokenText& text, const WindowPlan& plan,
                                 ModelSource& candidate, LogitSource* reference, ThreadTeam& team,
                                 const TextOptions& options) {
  const bool compares = reference != nullptr;
  const auto width = static_cast<std::size_t>(text.num_ids);
  Scores scores(plan, compares);
  std::vector<float> rows;
  std::vector<float> reference_rows;
  std::vector<Result<RowMetrics>> metrics;
  std::int64_t done = 0;
  for (const Window& window : plan.windows) {
    scores.begin();
    TRINE_TRY(candidate.begin(text, plan, window));
    if (compares) {
      TRINE_TRY(reference->begin(text, plan, window));
    }
    for (std::int32_t row = window.score_from; row < window.length;) {
      const std::int32_t count = std::min(chunk_rows(text.num_ids), window.length - row);
      TRINE_TRY(candidate.next(count, rows));
      if (compares) {
        TRINE_TRY(reference->next(count, reference_rows));
      }
      metrics.assign(static_cast<std::size_t>(count), RowMetrics{});
      team.run([&](int member) {
        const auto [begin, end] = split_range(count, 1, member, team.num_threads());
        for (std::int64_t i = begin; i < end; ++i) {
          const auto row_of = [&](const std::vector<float>& all) {
            return all.empty() ? std::span<const float>()
                               : std::span<const float>(all).subspan(
                                     static_cast<std::size_t>(i) * width, width);
          };
          metrics[static_cast<std::size_t>(i)] =
              compare_row(row_of(rows), row_of(reference_rows),
                          target(text, plan, window, row + static_cast<std::int32_t>(i)));
        }
      });
      for (std::int32_t i = 0; i < count; ++i) {
        auto& one = metrics[static_cast<std::size_t>(i)];
        if (!one.has_value()) {
          return tl::unexpected(std::move(one).error().with_context(
              fmt::format("text token {}, position {} of its window", window.first, row + i)));
        }
        scores.add(window, row + i, *one);
      }
      row += count;
      done += count;
      if (!options.progress(done)) {
        return fail(ErrorCode::kCancelled, "interrupted after {} of {} tokens", done,
                    plan.num_scored());
      }
    }
  }
  TextResult out = scores.result(options.seed);
  out.protocol = protocol(text, plan);
  if (compares && options.greedy_prompts > 0) {
    const auto prompts = greedy_prompts(text, plan, options);
    GreedyAgreement& greedy = out.comparison->greedy;
    greedy.num_tokens = greedy_tokens(plan, options);
    TRINE_TRY_ASSIGN(const auto said, reference->continue_greedily(prompts, greedy.num_tokens));
    TRINE_TRY_ASSIGN(greedy.same_tokens, candidate.agreement(prompts, said));
  }
  return out;
}

}  // namespace trine::eval
