// Help texts. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/trine/command.h"

namespace trine::app {

inline constexpr std::string_view kVersion = TRINE_VERSION;

// The rows a command takes: its own and those every command has.
std::vector<std::string_view> all_options(const Command& command);

std::string usage_line(const Command& command);  // "trine run MODEL [PROMPT] [OPTIONS]"
std::string overview();
std::string command_help(const Command& command);
// Commands and options whose name or help contains `word`; empty when there are none.
std::string search_help(std::string_view word);

}  // namespace trine::app
