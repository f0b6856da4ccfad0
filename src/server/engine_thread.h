// The thread that owns an engine: nobody else calls it.
//
// Jobs come in through a bounded queue of plain structs; events go out, a step's worth at a time,
// to the answers thread. Several models step one after the other (StepGate), so that their compute
// threads do not fight for the cores. Thread rule: any thread, but create and destroy on one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "engine/engine.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/worker_pool.h"

namespace trine::server {

// Lets one holder in at a time, in the order of arrival.
class StepGate {
 public:
  void enter();
  void leave();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

// Whether an engine moves: what /health/progress answers from.
struct EngineProgress {
  bool has_work = false;
  double idle_ms = 0.0;  // since the last step ended, or the work came
};

bool is_stalled(const EngineProgress& progress, double limit_s);

class EngineThread {
 public:
  static constexpr std::size_t kMaxInbox = 1024;

  // `answers` must be a pool of one thread: it keeps the order of events. All references outlive
  // the object.
  EngineThread(std::unique_ptr<Engine> engine, WorkerPool& answers, Metrics::Model& metrics,
               StepGate& gate);
  // Cancels what is left and ends the thread.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Puts the job in; it hears by accepted() or refused(). False when the inbox is full: it does
  // not hear then.
  bool submit(std::shared_ptr<Job> job);
  // A job's `cancelled` has changed: do not sleep.
  void poke();
  // Ends all answers in work with this error.
  void abort_all(const openai::ApiError& error);
  void clear_prefix_cache();

  EngineMetrics metrics() const;  // at most some steps old
  EngineProgress progress() const;
  std::int32_t context_tokens() const;
  int num_threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::server
