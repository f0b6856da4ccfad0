#include "apps/trine/help.h"

#include <algorithm>

#include <fmt/format.h>

#include "options/command_line.h"

namespace trine::app {

namespace {

constexpr int kWidth = 100;

bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> all_options(const Command& command) {
  std::vector<std::string_view> names = command.options;
  for (const std::string_view common : {"json", "quiet", "log-level", "config"}) {
    if (std::find(names.begin(), names.end(), common) == names.end()) {
      names.push_back(common);
    }
  }
  return names;
}

std::string usage_line(const Command& command) {
  std::string line = fmt::format("trine {}", command.name);
  for (const Positional& positional : command.positionals) {
    const std::string name = fmt::format("{}{}", positional.name, positional.repeats ? "..." : "");
    line += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  return line + " [OPTIONS]";
}

std::string overview() {
  std::string out = fmt::format(
      "trine {}: run, compare and tune large language models\n\nUsage: trine COMMAND [ARGUMENTS] "
      "[OPTIONS]\n",
      kVersion);
  for (const CommandGroup& group : command_groups()) {
    std::string block;
    for (const Command* command : commands()) {
      if (command->group == group.name && !command->hidden) {
        block += fmt::format("  {:<12}  {}\n", command->name, command->summary);
      }
    }
    if (!block.empty()) {
      out += fmt::format("\n{}:\n{}", group.title, block);
    }
  }
  out +=
      "\n`trine COMMAND --help` or `trine help COMMAND` describes a command, `trine help WORD` "
      "searches.\n"
      "Exit status: 0 ok, 1 failure, 2 usage, 3 bad or unsupported model, 4 does not fit, 5 floor "
      "not met,\n"
      "6 void measurement, 130 interrupted.\n";
  return out;
}

std::string command_help(const Command& command) {
  std::string out = fmt::format("{}\n\nUsage: {}\n", command.summary, usage_line(command));
  if (!command.positionals.empty()) {
    out += "\nArguments:\n";
    for (const Positional& positional : command.positionals) {
      out += fmt::format("  {:<12}  {}\n", positional.name, positional.help);
    }
  }
  if (!command.details.empty()) {
    out += fmt::format("\n{}\n", command.details);
  }
  const std::vector<std::string_view> names = all_options(command);
  out += options::options_help(names, kWidth);
  return out;
}

std::string search_help(std::string_view word) {
  std::string out;
  for (const Command* command : commands()) {
    if (!command->hidden && (contains(command->name, word) || contains(command->summary, word))) {
      out += fmt::format("  trine {:<22}  {}\n", command->name, command->summary);
    }
  }
  for (const options::Option& option : options::option_table()) {
    if (!contains(option.name, word) && !contains(option.help, word)) {
      continue;
    }
    std::string users;
    for (const Command* command : commands()) {
      const auto names = all_options(*command);
      if (!command->hidden && std::find(names.begin(), names.end(), option.name) != names.end()) {
        users += (users.empty() ? "" : ", ") + std::string(command->name);
      }
    }
    // An option that no command takes is not there for the user.
    if (!users.empty()) {
      out += fmt::format("  --{:<26}  {} ({})\n", option.name, option.help, users);
    }
  }
  return out;
}

}  // namespace trine::app
