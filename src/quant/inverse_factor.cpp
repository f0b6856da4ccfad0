#include "quant/inverse_factor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <lapacke.h>

#include "base/check.h"

namespace trine {
namespace {

// False when A, of which `a` holds H turned by 180 degrees, is not positive definite to rounding.
// With J the reversal, J A J = L L^T gives A = R R^T with R = J L J upper, so U = R^-1 = J L^-1 J:
// one factorisation and one triangular inverse, A^-1 is never formed.
bool factor_in_place(std::vector<double>& a, std::int64_t cols) {
  const auto n = static_cast<lapack_int>(cols);
  // Our lower triangle by rows is LAPACK's upper one by columns, which it takes without a copy.
  if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', n, a.data(), n) != 0 ||
      LAPACKE_dtrtri(LAPACK_COL_MAJOR, 'U', 'N', n, a.data(), n) != 0) {
    return false;
  }
  for (std::int64_t i = 0; i < cols; ++i) {
    const double diagonal = a[static_cast<std::size_t>(i * cols + i)];
    if (!std::isfinite(diagonal) || !std::isnormal(static_cast<float>(diagonal))) {
      return false;
    }
  }
  return true;
}

}  // namespace

InverseFactor inverse_factor(std::span<const float> h, std::int64_t cols, double damping) {
  TRINE_CHECK(static_cast<std::int64_t>(h.size()) == cols * cols);
  double mean = 0;
  double most = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const auto value = static_cast<double>(h[static_cast<std::size_t>(i * cols + i)]);
    mean += value / static_cast<double>(cols);
    most = std::max(most, value);
  }

  struct Attempt {
    double damping_factor;
    double floor;  // share of the largest diagonal element
  };

  constexpr std::array<Attempt, 12> kAttempts{{{1, 0},
                                               {2, 0},
                                               {5, 0},
                                               {10, 0},
                                               {20, 0},
                                               {50, 0},
                                               {50, 1e-6},
                                               {50, 1e-5},
                                               {50, 1e-4},
                                               {50, 1e-3},
                                               {50, 1e-2},
                                               {50, 1e-1}}};
  std::vector<double> a(static_cast<std::size_t>(cols * cols));
  for (const Attempt& attempt : kAttempts) {
    InverseFactor out;
    out.damping = damping * attempt.damping_factor;
    out.floor = most * attempt.floor;
    for (std::int64_t i = 0; i < cols; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t from = (cols - 1 - i) * cols + (cols - 1 - j);
        a[static_cast<std::size_t>(i * cols + j)] =
            static_cast<double>(h[static_cast<std::size_t>(from)]);
      }
      double& diagonal = a[static_cast<std::size_t>(i * cols + i)];
      diagonal = std::max(diagonal + out.damping * mean, out.floor);
    }
    if (!factor_in_place(a, cols)) {
      continue;
    }
    // U[i][j] = L^-1[K-1-i][K-1-j], and row j of U^T is U[.][j].
    out.transposed.assign(static_cast<std::size_t>(cols * cols), 0.0F);
    for (std::int64_t j = 0; j < cols; ++j) {
      for (std::int64_t i = 0; i <= j; ++i) {
        const std::int64_t from = (cols - 1 - i) * cols + (cols - 1 - j);
        out.transposed[static_cast<std::size_t>(j * cols + i)] =
            static_cast<float>(a[static_cast<std::size_t>(from)]);
      }
    }
    return out;
  }
  return {};
}

}  // namespace trine
