// Ctrl-C: the first asks the running work to stop, a second one ends the process at once with
// status 130. Thread rule: interrupted() from any thread; the rest from the main thread.
#pragma once

#include <atomic>

namespace trine::app {

// Installs the SIGINT handler and ignores SIGPIPE, so that a closed pipe is an error of write().
void install_signal_handlers();

// Set by the first SIGINT. Long work polls it; lock-free, so the handler may store to it.
const std::atomic<bool>& interrupt_flag();
bool interrupted();
// For `trine chat`: an interrupt that was answered by stopping one generation.
void clear_interrupt();

// The process ends at the `limit`-th unanswered SIGINT; 2 at first. A chat, where Ctrl-C belongs to
// the answer, is more patient.
void set_interrupt_limit(int limit);

// A function that a signal which ends the process runs first (leave the terminal as it was).
// nullptr: none. Async-signal-safe code only.
void set_exit_hook(void (*hook)());

}  // namespace trine::app
