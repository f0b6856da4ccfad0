// What kernels may do differently on one micro-architecture than on another: how far ahead memory
// is asked for and which of two ways to the same bits is taken. Never a result. Thread rule:
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
};

// The row of the table (tuning.cpp) for this CPU and a level.
Tuning tuning(IsaLevel level);

}  // namespace trine::kernels
