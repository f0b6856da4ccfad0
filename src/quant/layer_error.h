// What a change of a linear layer's weights does to its outputs, from the inputs' second moments
// alone: mean over tokens of ||(W' - W) x||^2 = trace(dW H dW^T), without another pass over the
// tokens. Thread rule: the thread that owns the team.
#pragma once

#include <cstdint>
#include <span>

#include "platform/thread_team.h"
#include "quant/quantized_weights.h"

namespace trine {

// trace(D H D^T) for D [rows, cols], H [cols, cols]; sums in double, in one order.
double output_energy(ThreadTeam& team, std::span<const float> d, std::int64_t rows,
                     std::int64_t cols, std::span<const float> second_moments);

// output_energy() of `q` less `w`; without moments (empty) the squared error of the weights.
double output_error(ThreadTeam& team, const QuantizedWeights& q, std::span<const float> w,
                    std::span<const float> second_moments);

}  // namespace trine
