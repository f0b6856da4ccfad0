// Entry: finds the command, lays the sources of options on top of each other, runs it, reports its
// error.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/help.h"
#include "apps/trine/interrupt.h"
#include "base/log.h"
#include "base/printable.h"
#include "options/command_line.h"

extern char** environ;

namespace trine::app {

int output_errno();

namespace {

// A file opened later must not land on descriptor 1 or 2 because the caller closed them: results
// would be written into it. Reading from a write-only and writing to a read-only descriptor fail
// with EBADF, as on the closed ones.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
      if (opened != -1 && opened != fd) {
        ::dup2(opened, fd);
        ::close(opened);
      }
    }
  }
}

// Messages quote file contents; a terminal must not obey them, and an error is one line.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

int report(const Error& error, bool json) {
  const std::string line = fmt::format("error: {}\n", printable(error.message));
  if (json) {
    const nlohmann::ordered_json value = {
        {"error", {{"code", error_code_name(error.code)}, {"message", error.message}}}};
    write_out(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    write_out("\n");
  }
  flush_out();
  std::fwrite(line.data(), 1, line.size(), stderr);
  return exit_status(error.code);
}

Status check_arguments(const Command& command, const std::vector<std::string>& given) {
  std::size_t required = 0;
  for (const Positional& positional : command.positionals) {
    required += positional.required ? 1 : 0;
  }
  for (std::size_t i = 0; i < std::min(given.size(), command.positionals.size()); ++i) {
    // A lower-case name stands for itself.
    const std::string_view name = command.positionals[i].name;
    if (name[0] >= 'a' && name[0] <= 'z' && given[i] != name) {
      return fail(ErrorCode::kInvalidArgument, "cannot {} '{}'; usage: {}", command.name, given[i],
                  usage_line(command));
    }
  }
  if (given.size() < required) {
    return fail(ErrorCode::kInvalidArgument, "missing {}; usage: {}",
                command.positionals[given.size()].name, usage_line(command));
  }
  const bool open_ended = !command.positionals.empty() && command.positionals.back().repeats;
  if (!open_ended && given.size() > command.positionals.size()) {
    return fail(ErrorCode::kInvalidArgument, "unexpected argument '{}'; usage: {}",
                given[command.positionals.size()], usage_line(command));
  }
  return {};
}

log::Level level_of(const std::string& name) {
  constexpr std::pair<std::string_view, log::Level> kLevels[] = {{"debug", log::Level::kDebug},
                                                                 {"info", log::Level::kInfo},
                                                                 {"warn", log::Level::kWarn},
                                                                 {"error", log::Level::kError}};
  for (const auto& [text, level] : kLevels) {
    if (name == text) {
      return level;
    }
  }
  return log::Level::kOff;
}

Result<options::Settings> read_settings(const options::CommandLine& line) {
  options::Settings settings;
  TRINE_TRY_ASSIGN(const std::vector<std::string> unknown, settings.apply_environment(environ));
  options::apply_flags(line, settings);
  if (settings.has("config")) {
    TRINE_TRY(settings.apply_file(settings.text("config")));
  } else if (const std::string path = options::default_config_path();
             !path.empty() && ::access(path.c_str(), F_OK) == 0) {
    TRINE_TRY(settings.apply_file(path));
  }
  log::set_level(level_of(settings.text("log-level")));
  for (const std::string& name : unknown) {
    log::warn("environment variable {} is not an option of trine and has no effect", name);
  }
  return settings;
}

Result<int> run_command(const Command& command, const std::vector<std::string>& args) {
  const std::vector<std::string_view> taken = all_options(command);
  TRINE_TRY_ASSIGN(const options::CommandLine line, options::parse_command_line(args, taken));
  if (line.help) {
    write_out(command_help(command));
    return 0;
  }
  TRINE_TRY_ASSIGN(options::Settings settings, read_settings(line));
  TRINE_TRY(check_arguments(command, line.positionals));
  CommandContext context(command, std::move(settings), line.positionals);
  return command.run(context);
}

std::vector<std::string> command_names() {
  std::vector<std::string> names = {"help"};
  for (const Command* command : commands()) {
    if (!command->hidden) {
      names.emplace_back(command->name);
    }
  }
  return names;
}

tl::unexpected<Error> unknown_command(const std::string& name) {
  const std::string guess = options::nearest(name, command_names());
  return fail(ErrorCode::kInvalidArgument,
              "unknown command '{}'{}; `trine --help` lists the commands", name,
              guess.empty() ? "" : fmt::format(", did you mean '{}'?", guess));
}

tl::unexpected<Error> unknown_help_word(const std::string& word) {
  const std::vector<std::string> names = command_names();
  const std::string guess = options::nearest(word, names);
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "" : ", ") + name;
  }
  return fail(ErrorCode::kInvalidArgument,
              "no command or option matches '{}'{}; the commands are {}; `trine COMMAND --help` "
              "lists the options of one",
              word, guess.empty() ? "" : fmt::format(", did you mean '{}'?", guess), list);
}

Result<int> help_command(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    write_out(overview());
    return 0;
  }
  if (args.size() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                "unexpected argument '{}'; usage: trine help [COMMAND|WORD]", args[1]);
  }
  if (const Command* command = find_command(args[0]); command != nullptr) {
    write_out(command_help(*command));
    return 0;
  }
  const std::string found = search_help(args[0]);
  if (found.empty()) {
    return unknown_help_word(args[0]);
  }
  write_out(found);
  return 0;
}

Result<int> dispatch(std::vector<std::string> args) {
  const std::string first = args[0];
  args.erase(args.begin());
  if (first == "--help" || first == "-h") {
    write_out(overview());
    return 0;
  }
  if (first == "--version" || first == "-V") {
    write_out(fmt::format("trine {}\n", kVersion));
    return 0;
  }
  if (first == "help") {
    return help_command(args);
  }
  const Command* command = find_command(first);
  if (command == nullptr) {
    if (first.starts_with("-")) {
      return fail(ErrorCode::kInvalidArgument,
                  "unknown option {} before a command; usage: trine COMMAND [ARGUMENTS] [OPTIONS]",
                  first);
    }
    return unknown_command(first);
  }
  return run_command(*command, args);
}

bool asks_for_json(const std::vector<std::string>& args) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::find(args.begin(), end, "--json") != end;
}

int run(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::fputs(overview().c_str(), stderr);
    return 2;
  }
  int status = 0;
  if (const Result<int> done = dispatch(args); done.has_value()) {
    status = *done;
  } else if (output_errno() != EPIPE) {
    status = report(done.error(), asks_for_json(args));
  }
  if (const Status written = finish_output(); !written.has_value()) {
    if (output_errno() != EPIPE) {
      return report(written.error(), false);
    }
    // The reader has what it wanted (`| head`); only the status says that there was more.
    return status == 0 ? 1 : status;
  }
  return status;
}

}  // namespace

}  // namespace trine::app

int main(int argc, char** argv) {
  trine::app::occupy_standard_descriptors();
  trine::app::install_signal_handlers();
  try {
    return trine::app::run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory; use a smaller model, context (--ctx) or batch\n", stderr);
    return 4;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: internal error: %s\n", error.what());
    return 1;
  }
}
