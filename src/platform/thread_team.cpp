#include "platform/thread_team.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "platform/control_group.h"
#include "platform/cpu.h"

namespace trine {
namespace {

// About 30 us on current cores: longer than the gap between two operations of a step, much shorter
// than a scheduler slice. Teams larger than the machine do not spin: the spinner would hold the
// core of the member it waits for.
constexpr int kSpinRounds = 1000;

void cpu_relax() {
  __builtin_ia32_pause();
}

// std::atomic<uint32_t> is one plain word here, which is what the futex call wants.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  // Returns at once when the word has changed; spurious returns are handled by the callers' loops.
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
          nullptr, 0);
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  // Machines with more than 1024 CPUs need a larger mask than cpu_set_t: grow until the call fits.
  for (int num_bits = CPU_SETSIZE; num_bits <= (1 << 16); num_bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(num_bits));
    if (set == nullptr) {
      break;
    }
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(num_bits));
    CPU_ZERO_S(bytes, set);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !ok && errno == EINVAL;
    if (ok) {
      for (int cpu = 0; cpu < num_bits; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) {
          cpus.push_back(cpu);
        }
      }
    }
    CPU_FREE(set);
    if (!too_small) {
      break;
    }
  }
  return cpus;
}

void pin_to(pthread_t thread, int cpu) {
  cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpu) + 1);
  if (set == nullptr) {
    return;
  }
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpu) + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  // Pinning is an optimisation; a container that forbids it loses speed only.
  static_cast<void>(pthread_setaffinity_np(thread, bytes, set));
  CPU_FREE(set);
}

}  // namespace

int num_usable_cpus() {
  const int count = std::max(static_cast<int>(usable_cpus().size()), 1);
  const std::optional<double> quota = group_limits().cpus;
  // A part of a CPU is worth a thread: the others use what it leaves.
  return quota && *quota < count ? std::max(static_cast<int>(std::ceil(*quota)), 1) : count;
}

struct ThreadTeam::Impl {
  struct Worker {
    Impl* team = nullptr;
    int thread_idx = 0;
    pthread_t handle{};
  };

  int num_threads = 1;
  int spin_rounds = 0;
  void (*body)(void*, int) = nullptr;
  void* context = nullptr;
  bool stopping = false;  // written before an epoch is published, read after it is seen
  // Work is published by the epoch and collected by the count of members still busy. On their own
  // cache lines: the first is read by all, the second written by all.
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  alignas(64) std::atomic<std::uint32_t> pending{0};
  alignas(64) std::atomic<std::uint32_t> sleepers{0};
  std::vector<Worker> workers;  // never resized after start: threads hold pointers into it

  void publish() {
    pending.store(static_cast<std::uint32_t>(workers.size()), std::memory_order_relaxed);
    // Sequentially consistent with the sleeper's increment-then-check, so one of both sees the
    // other.
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) {
      futex_wake(epoch, INT_MAX);
    }
  }

  std::uint32_t wait_for_epoch_after(std::uint32_t seen) {
    for (int round = 0; round < spin_rounds; ++round) {
      const std::uint32_t now = epoch.load(std::memory_order_acquire);
      if (now != seen) {
        return now;
      }
      cpu_relax();
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    std::uint32_t now = epoch.load(std::memory_order_seq_cst);
    while (now == seen) {
      futex_wait(epoch, seen);
      now = epoch.load(std::memory_order_seq_cst);
    }
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return now;
  }

  void finish_member() {
    if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      // The caller may be asleep on this word. A wake that nobody waits for costs one system call,
      // so the caller announces that it sleeps.
      if (caller_sleeps.load(std::memory_order_seq_cst) != 0) {
        futex_wake(pending, 1);
      }
    }
  }

  void wait_for_members() {
    for (int round = 0; round < spin_rounds; ++round) {
      if (pending.load(std::memory_order_acquire) == 0) {
        return;
      }
      cpu_relax();
    }
    caller_sleeps.store(1, std::memory_order_seq_cst);
    for (;;) {
      const std::uint32_t left = pending.load(std::memory_order_seq_cst);
      if (left == 0) {
        break;
      }
      futex_wait(pending, left);
    }
    caller_sleeps.store(0, std::memory_order_relaxed);
  }

  static void* worker_main(void* argument) {
    const Worker& self = *static_cast<Worker*>(argument);
    Impl& team = *self.team;
    std::uint32_t seen = 0;
    for (;;) {
      seen = team.wait_for_epoch_after(seen);
      if (team.stopping) {
        return nullptr;
      }
      team.body(team.context, self.thread_idx);
      team.finish_member();
    }
  }

  void stop() {
    if (workers.empty()) {
      return;
    }
    stopping = true;
    publish();
    for (const Worker& worker : workers) {
      pthread_join(worker.handle, nullptr);
    }
    workers.clear();
  }

  std::atomic<std::uint32_t> caller_sleeps{0};
};

ThreadTeam::ThreadTeam(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ThreadTeam::~ThreadTeam() {
  impl_->stop();
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::create(int num_threads) {
  TRINE_TRY(select_isa_level());
  constexpr int kMaxThreads = 4096;
  if (num_threads < 0 || num_threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument,
                "{} compute threads: choose 1 to {}, or 0 for one per core", num_threads,
                kMaxThreads);
  }
  const std::vector<int> cpus = usable_cpus();
  const int num_cpus = cpus.empty() ? 1 : static_cast<int>(cpus.size());
  auto impl = std::make_unique<Impl>();
  impl->num_threads = num_threads == 0 ? num_cpus : num_threads;
  const bool fits = impl->num_threads <= num_cpus;
  impl->spin_rounds = fits ? kSpinRounds : 0;

  const auto num_workers = static_cast<std::size_t>(impl->num_threads - 1);
  std::vector<Impl::Worker> workers(num_workers);
  impl->workers.swap(workers);
  // Signals belong to the threads of the program, not to the compute threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::size_t started = 0;
  int error = 0;
  for (; started < num_workers; ++started) {
    Impl::Worker& worker = impl->workers[started];
    worker.team = impl.get();
    worker.thread_idx = static_cast<int>(started) + 1;
    error = pthread_create(&worker.handle, nullptr, &Impl::worker_main, &worker);
    if (error != 0) {
      break;
    }
    // Only a team that takes every CPU is pinned: smaller ones of two processes would all choose
    // the same CPUs and leave the others idle. The caller is member 0 and stays unpinned, as
    // threads it starts later would inherit the pin; the CPU that is left over is the first.
    if (impl->num_threads == num_cpus) {
      pin_to(worker.handle, cpus[started + 1]);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    const int wanted = impl->num_threads;
    impl->workers.resize(started);  // shrinks in place: the running threads' addresses stay
    impl->stop();
    return fail(ErrorCode::kExhausted,
                "cannot start compute thread {} of {}: {}; use fewer threads", started + 1, wanted,
                std::strerror(error));
  }
  return std::unique_ptr<ThreadTeam>(new ThreadTeam(std::move(impl)));
}

int ThreadTeam::num_threads() const {
  return impl_->num_threads;
}

void ThreadTeam::run(void (*body)(void* context, int thread_idx), void* context) {
  Impl& team = *impl_;
  if (team.workers.empty()) {
    body(context, 0);
    return;
  }
  team.body = body;
  team.context = context;
  team.publish();
  body(context, 0);
  team.wait_for_members();
}

}  // namespace trine
