// How sure a comparison of two models on the same items is.
//
// Everything here is paired: both models saw the same windows or the same tasks, so what is drawn
// anew or tested is the pair. Draws are counter-based (base/rng.h): the same values and seed give
// the same interval whatever else happens. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "loadgen/statistics.h"

namespace trine::eval {

using loadgen::Interval;

// Linear between neighbours (NumPy's default).
struct Quantiles {
  double mean = 0.0;
  double median = 0.0;
  double p99 = 0.0;
  double p999 = 0.0;
  double max = 0.0;
};

// Of at least one value.
Quantiles quantiles(std::vector<double> values);

inline constexpr int kResamples = 2000;

// 95 % percentile interval of a figure of n blocks (windows, tasks) when they are drawn anew with
// replacement: `figure` gets how often each block was drawn. One block or none: both ends are the
// figure of all. (Efron 1979.)
Interval bootstrap(std::size_t n, std::uint64_t seed,
                   const std::function<double(std::span<const std::uint32_t> counts)>& figure);

// McNemar's test, exact: of b + c items on which the models differ, b were lost and c won. The
// two-sided probability of a split at least as uneven when both models are equally good; 1 when
// they never differ. (McNemar 1947; the exact form is the sign test.)
double mcnemar_exact(std::int64_t b, std::int64_t c);

// The smallest difference of accuracy that n paired items could show with 80 % power at the 5 %
// level when the models differ on `discordant` of them: the solution of
//   d sqrt(n) = z(0.975) sqrt(psi) + z(0.8) sqrt(psi - d^2)
// (Connor 1987), but at least what the exact test can call significant at all, 6 of n. psi is the
// share of discordant items, taken as one more of two more items than were seen, because few items
// say little about it, and at least d. 1 when no difference could be shown.
double minimum_detectable_difference(std::int64_t n, std::int64_t discordant);

// F1 of each label from a confusion matrix [expected][answered] and their mean; columns past the
// rows are answers that were no label. A label that is neither expected nor answered does not
// count.
double macro_f1(const std::vector<std::vector<std::int64_t>>& confusion);

}  // namespace trine::eval
