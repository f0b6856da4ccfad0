// Measures a model without a server: prefill, decode at several depths, passes over a few rows,
// batches, load time and memory. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "platform/thread_team.h"

namespace trine::app {

struct OfflineBenchOptions {
  DType kv_dtype = DType::kF16;
  int repeats = 3;
};

// Mean and sample standard deviation over the repeats.
struct Measured {
  double mean = 0;
  double deviation = 0;
};

struct OfflineRow {
  std::string test;  // "pp512", "tg128@2048", "pass 5", "batch 8"
  std::string unit;  // "tokens/s" or "ms"
  Measured value;
  double relative = 0;  // passes only: v(m), the median over medians of the time of one row
};

// Tests that the model's context has no room for are left out. Errors: those of the model;
// cancelled after an interrupt.
Result<std::vector<OfflineRow>> bench_offline(const Model& model, ThreadTeam& team,
                                              const OfflineBenchOptions& options);

// Largest resident size of this process so far, in bytes.
std::int64_t peak_resident_bytes();

}  // namespace trine::app
