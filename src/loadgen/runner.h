// One run: sends the workload on its schedule and collects what came back.
//
// Open loop: requests go out at their times whatever became of earlier ones, and latencies count
// from those times, so a slow generator or a full server cannot hide waiting (coordinated
// omission). Closed loop: each of N clients sends its next request when its last one ended. The run
// is void, with the reason, when the generator could not keep the schedule or had no CPU. Thread
// rule: the calling thread does everything.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "loadgen/arrivals.h"
#include "loadgen/client.h"
#include "loadgen/workload.h"

namespace trine::loadgen {

enum class Mode : std::uint8_t {
  kOpen,    // arrivals from ArrivalOptions
  kReplay,  // arrivals from the trace
  kClosed,
};

struct RunOptions {
  Mode mode = Mode::kOpen;
  ArrivalOptions arrivals;
  double time_scale = 1.0;  // replay: times of the trace are multiplied with it
  std::int64_t clients = 1;
  std::int64_t num_requests = 0;  // 0: no limit but `duration_s`
  double duration_s = 0.0;        // no request is sent later; 0: no limit
  std::int64_t warmup = 0;        // requests before, not counted
  // Limits of a valid run.
  double max_lag_ms = 100.0;  // 99th percentile of sent - scheduled
  double max_cpu_wait = 0.1;  // share of the run that the thread waited for a CPU
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(std::size_t started, std::size_t ended)> progress;  // may be empty
};

struct GeneratorLoad {
  double cpu_share = 0.0;       // of one CPU, used by the generator
  double cpu_wait_share = 0.0;  // runnable, and another ran
};

struct RunResult {
  std::vector<Outcome> outcomes;  // in order of their schedule
  double start_s = 0.0;
  double end_s = 0.0;  // of the last answer
  double lag_p99_ms = 0.0;
  double lag_max_ms = 0.0;
  GeneratorLoad generator;
  std::string void_reason;  // schedule_lag, generator_cpu; empty: the run is valid
  std::string void_text;
};

// Measures tokens per word and tokens around a prompt, and lays them into the workload; also the
// proof that the server answers. Errors: unavailable with what the server said.
Status calibrate(Client& client, Workload& workload);

// Errors: cancelled; exhausted when a request cannot be started; unavailable when a warm-up request
// failed.
Result<RunResult> run(Client& client, const Workload& workload, const RunOptions& options);

}  // namespace trine::loadgen
