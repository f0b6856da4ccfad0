// A command of the program: what it is called, what it takes, what it does. One file per command,
// cmd_<name>.cpp, defines one Command; registry.cpp lists them.
//
// stdout is the result, stderr everything else. A command returns an exit status or an Error; main
// turns the Error into one line on stderr, {"error":{"code","message"}} on stdout under --json, and
// the exit status.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "options/settings.h"

namespace trine::app {

struct Positional {
  std::string_view name = {};  // "MODEL"
  std::string_view help = {};
  bool required = true;
  bool repeats = false;  // last one only
};

class CommandContext;

struct Command {
  std::string_view name = {};
  std::string_view group = {};    // one of command_groups()
  std::string_view summary = {};  // one line for `trine --help`
  std::vector<Positional> positionals = {};
  // Rows of the option table; the general ones are added by main.
  std::vector<std::string_view> options = {};
  std::string_view details = {};  // paragraphs below the usage line
  Result<int> (*run)(CommandContext& context) = nullptr;
  bool hidden = false;
};

struct CommandGroup {
  std::string_view name;
  std::string_view title;
};

std::span<const CommandGroup> command_groups();
std::span<const Command* const> commands();
const Command* find_command(std::string_view name);

// Standard output with its errors. A reader that went away (EPIPE) ends the program quietly with
// status 1, any other failure is reported by finish_output(). Thread rule: main thread.
void write_out(std::string_view text);
void flush_out();
// invalid once a write failed; long work should stop then.
bool output_ok();
// Flushes; an error when something could not be written. main calls it last.
Status finish_output();

// Text on stderr, not for errors (main prints those): progress and statistics. Nothing under
// --quiet.
class CommandContext {
 public:
  CommandContext(const Command& command, options::Settings settings,
                 std::vector<std::string> arguments)
      : command_(&command), settings_(std::move(settings)), arguments_(std::move(arguments)) {}

  const Command& command() const { return *command_; }

  options::Settings& settings() { return settings_; }

  const options::Settings& settings() const { return settings_; }

  // Positional arguments; main checked their number against the command.
  const std::vector<std::string>& arguments() const { return arguments_; }

  // The positional at `index`, or empty when it was left out.
  std::string argument(std::size_t index) const {
    return index < arguments_.size() ? arguments_[index] : std::string();
  }

  bool json() const { return settings_.flag("json"); }

  bool quiet() const { return settings_.flag("quiet"); }

  // One JSON value and a line end on stdout.
  void print_json(const nlohmann::ordered_json& value) const;
  void note(std::string_view line) const;

 private:
  const Command* command_;
  options::Settings settings_;
  std::vector<std::string> arguments_;
};

}  // namespace trine::app
