// What kernels may do differently on one micro-architecture than on another: how far ahead memory
// is asked for, how much of a cache a pass fills and which of two ways to the same bits is taken.
// Never a result. Tile heights are not here: docs/adr/register-tiles-by-level.md. Thread rule:
// values; tuning() may be called from any thread.
#pragma once

#include <cstdint>

#include "platform/cpu.h"

namespace trine::kernels {

struct Tuning {
  // Weights are asked for this many bytes before their use.
  std::int64_t weight_prefetch_bytes = 0;
  // Keys and values likewise.
  std::int64_t kv_prefetch_bytes = 0;
  // Rows of activations up to which weight codes stay in registers; for more they are decoded into
  // the first-level cache once.
  std::int64_t direct_rows = 0;
  // Activation codes of a pass over decoded weights: a part of the second-level cache.
  std::int64_t pass_bytes = 0;
};

// The row of the table (tuning.cpp) for this CPU and a level.
Tuning tuning(IsaLevel level);

}  // namespace trine::kernels
