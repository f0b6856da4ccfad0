// Command lines: arguments against the rows of the table that a command takes. CLI11 stays behind
// this header. Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "options/option.h"
#include "options/settings.h"

namespace trine::options {

struct ParsedFlag {
  const Option* option = nullptr;
  Value value;
};

struct CommandLine {
  bool help = false;
  std::vector<ParsedFlag> flags;         // in the order of the table; lists are complete
  std::vector<std::string> positionals;  // in order; everything after -- is positional
};

// Reads `args` (without program and command name). `taken` are the names of the rows the command
// takes. For scalars the last occurrence wins, as in other tools, so that an alias can be
// overridden. Errors: invalid_argument for an unknown flag (with the nearest known one), a missing
// value, an unreadable value.
Result<CommandLine> parse_command_line(std::span<const std::string> args,
                                       std::span<const std::string_view> taken);

// Puts the flags into `settings` with origin kFlag.
void apply_flags(const CommandLine& line, Settings& settings);

// The option part of a help text: headings by group, one option per entry, wrapped to `width`
// columns.
std::string options_help(std::span<const std::string_view> taken, int width);

}  // namespace trine::options
