// trine bench serve: load on an OpenAI-compatible server, from the options to the report.
// Thread rule: main thread.
#pragma once

#include <string_view>
#include <vector>

#include "apps/trine/command.h"
#include "base/error.h"

namespace trine::app {

// A void run ends with this, after its report.
inline constexpr int kVoidRunStatus = 6;

std::vector<std::string_view> bench_serve_options();
// The exit status: 0, kVoidRunStatus, or 1 when not one request succeeded.
Result<int> bench_serve(CommandContext& context);

}  // namespace trine::app
