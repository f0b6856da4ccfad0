// Measures a model without a server: prefill, decode at several depths, passes over a few rows,
// batches, time to the first token and memory. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/trine/statistics.h"
#include "base/error.h"
#include "model/model.h"
#include "platform/thread_team.h"

namespace trine::app {

// One entry of --tests.
struct OfflineTest {
  enum class Kind : std::uint8_t { kPrefill, kDecode, kPasses, kBatches };
  Kind kind = Kind::kPrefill;
  // kPrefill: tokens of a pass whose last row gets logits; kDecode: passes of one token;
  // kPasses: rows, all with logits; kBatches: sequences that decode together. 0, for the last two,
  // is the whole series.
  std::int32_t count = 0;
  std::int32_t depth = 0;  // tokens before, for the first two
  std::string name = {};   // the entry
};

// "pp512", "tg128", either with the depth behind ("tg128@2048"), "pass" (1 to 17 rows in turn),
// "pass5", "batch" (1, 2, 4, ... 32 sequences), "batch8"; "load" is no test at all. Errors:
// invalid_argument naming the entry and what there is.
Result<std::vector<OfflineTest>> parse_offline_tests(const std::vector<std::string>& entries);

struct OfflineBenchOptions {
  DType kv_dtype = DType::kF16;
  int repeats = 3;
  std::vector<OfflineTest> tests;
};

struct OfflineRow {
  std::string test;  // "pp512", "tg128@2048", "pass 5", "batch 8"
  std::string unit;  // "tokens/s" or "ms"
  std::vector<double> samples;
  double relative = 0;  // passes only: v(m), the median over medians of the time of one row
};

// A model and how long it took, once for every repetition: it is loaded, computes one token and is
// let go, except the last time.
struct TimedLoad {
  std::shared_ptr<const Model> model;
  std::vector<double> load_seconds;
  std::vector<double> first_token_seconds;  // from the start of the load
};

// Errors: those of Model::load and of the model; cancelled after an interrupt.
Result<TimedLoad> timed_load(const std::string& path, const Model::LoadOptions& load,
                             ThreadTeam& team, const OfflineBenchOptions& options);

// Tests that the model's context has no room for are left out with a warning; exhausted when none
// fits. Errors besides: those of the model; cancelled after an interrupt.
Result<std::vector<OfflineRow>> bench_offline(const Model& model, ThreadTeam& team,
                                              const OfflineBenchOptions& options);

// Largest resident size of this process so far, in bytes.
std::int64_t peak_resident_bytes();

}  // namespace trine::app
