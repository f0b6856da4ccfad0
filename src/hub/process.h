// Runs a child program to its end: its standard output to a callback, the tail of its errors kept
// for the message. Thread rule: one call, one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hub/files.h"

namespace trine::hub {

struct ProcessResult {
  int status = 0;        // exit status; 128 + signal when killed
  std::string err_tail;  // the last 8 KiB of standard error
};

struct ProcessOptions {
  std::vector<std::string> argv;               // argv[0] is looked up in PATH
  std::vector<std::string> extra_environment;  // "NAME=value", replacing inherited ones
  // Gets standard output as it comes; an error ends the child. Empty: output is dropped.
  std::function<Status(std::string_view)> on_output;
  // Called about ten times a second while the child runs.
  std::function<void()> on_tick;
  CancelFlag cancel = nullptr;
};

// Standard input is empty. The child has its own process group, so that a terminal's Ctrl-C reaches
// us alone; on cancel it gets SIGINT and, three seconds later, SIGKILL. Errors: not_found when the
// program does not exist, cancelled, and what on_output returned. A failing child is no error here:
// see status.
Result<ProcessResult> run_process(const ProcessOptions& options);

}  // namespace trine::hub
