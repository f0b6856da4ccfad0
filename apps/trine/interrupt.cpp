#include "apps/trine/interrupt.h"

#include <csignal>

#include <pthread.h>
#include <unistd.h>

namespace trine::app {

namespace {

std::atomic<bool> requested{false};
pthread_t main_thread = {};  // set before any other thread exists
std::atomic<int> count{0};
std::atomic<int> count_limit{2};
std::atomic<void (*)()> exit_hook{nullptr};

static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<void (*)()>::is_always_lock_free);

void run_exit_hook() {
  if (void (*hook)() = exit_hook.load(); hook != nullptr) {
    hook();
  }
}

// The system may pick any thread for a signal; a read in the main thread must be the one that ends.
bool forwarded(int signal) {
  if (::pthread_equal(::pthread_self(), main_thread) != 0) {
    return false;
  }
  ::pthread_kill(main_thread, signal);
  return true;
}

void on_interrupt(int signal) {
  if (forwarded(signal)) {
    return;
  }
  requested.store(true);
  if (count.fetch_add(1) + 1 >= count_limit.load()) {
    run_exit_hook();
    ::_exit(130);
  }
}

void on_terminate(int signal) {
  run_exit_hook();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void install_signal_handlers() {
  main_thread = ::pthread_self();
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a blocked read of standard input must return so that the command can stop.
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_terminate;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
}

const std::atomic<bool>& interrupt_flag() {
  return requested;
}

bool interrupted() {
  return requested.load();
}

void clear_interrupt() {
  requested.store(false);
  count.store(0);
}

void set_interrupt_limit(int limit) {
  count_limit.store(limit);
}

void set_exit_hook(void (*hook)()) {
  exit_hook.store(hook);
}

}  // namespace trine::app
