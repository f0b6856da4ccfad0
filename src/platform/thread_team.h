// The compute threads: a fixed team that runs one function on every member and waits for all.
//
// Work is split by the caller over output rows or heads, never over a reduction, so results do not
// depend on the team's size. The calling thread is member 0. Waiting spins briefly, then sleeps on
// a futex, so that an idle team costs nothing and two processes on one machine do not fight. A team
// of as many members as usable CPUs is pinned to them; the scheduler places the members of others.
// Thread rule: run() is called by one thread at a time (the engine role).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace trine {

// CPUs that this process may use: its scheduler affinity, and no more than its control groups give
// it time on.
int num_usable_cpus();

class ThreadTeam {
 public:
  // num_threads >= 1; 0 means one per usable core. Errors: exhausted when a thread cannot be
  // started.
  static Result<std::unique_ptr<ThreadTeam>> create(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const;

  // Calls body(context, thread_idx) once on every member, thread_idx in [0, num_threads()). Returns
  // when all are done. The body must not call run() and must not allocate.
  void run(void (*body)(void* context, int thread_idx), void* context);

  // The same for a callable; no allocation, the callable is borrowed.
  template <typename Body>
  void run(Body&& body) {
    run([](void* context,
           int thread_idx) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread_idx); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  struct Impl;
  explicit ThreadTeam(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The half-open part of [0, total) that belongs to thread_idx, in multiples of `grain`.
inline std::pair<std::int64_t, std::int64_t> split_range(std::int64_t total, std::int64_t grain,
                                                         int thread_idx, int num_threads) {
  const std::int64_t units = (total + grain - 1) / grain;
  const std::int64_t begin = units * thread_idx / num_threads * grain;
  const std::int64_t end = units * (thread_idx + 1) / num_threads * grain;
  return {begin < total ? begin : total, end < total ? end : total};
}

}  // namespace trine
