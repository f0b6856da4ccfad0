// The factor that GPTQ works with: upper U with U^T U = (H + damping)^-1, in double precision by
// LAPACK. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trine {

struct InverseFactor {
  std::vector<float> transposed;  // U^T [K, K]: row j holds U[0..j][j], zeros after
  double damping = 0;             // share of the mean of H's diagonal that was added to it
  double floor = 0;               // least diagonal element that was enforced besides; 0: none
};

// `damping` is where the search begins: it grows, then the diagonal gets a floor, until the factor
// exists and is finite. Empty `transposed`: it never did. H is [K, K], symmetric, its diagonal not
// negative.
InverseFactor inverse_factor(std::span<const float> h, std::int64_t cols, double damping);

}  // namespace trine
