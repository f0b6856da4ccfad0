// The effective value of every option and where it came from.
//
// A Settings starts at the defaults; apply_file, apply_environment and the command line
// (command_line.h) lay their values on top, whatever order they are called in: a source never
// displaces one that ranks higher. Thread rule: a value; built by one thread, then read by any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "options/option.h"
#include "options/value.h"

namespace trine::options {

// In rising precedence.
enum class Origin : std::uint8_t { kDefault, kModel, kFile, kEnvironment, kFlag };

std::string_view origin_name(Origin origin);

class Settings {
 public:
  Settings();

  // Reads every known TRINE_* variable of `environment` (a null-terminated array of NAME=VALUE).
  // Unknown TRINE_* names are returned, for a warning: service managers set variables of that form
  // without asking. Errors: invalid_argument naming the variable.
  Result<std::vector<std::string>> apply_environment(const char* const* environment);

  // Reads a configuration file. Errors: not_found, invalid_argument with file and line for an
  // unknown key, a value of the wrong type or outside its range, and bad syntax.
  Status apply_file(const std::string& path);

  // The same for the text of a file; `path` is for messages only.
  Status apply_file_text(std::string_view text, const std::string& path);

  // One value from `origin`; `place` is shown by `config show --origin` ("--top-p",
  // "trine.toml:3").
  void set(std::string_view name, Value value, Origin origin, std::string place);

  bool has(std::string_view name) const;  // a value from anywhere, default included
  Origin origin(std::string_view name) const;
  const std::string& place(std::string_view name) const;
  const Value& value(std::string_view name) const;

  // Typed reads. The name must be in the table with that type (a bug otherwise) and, without
  // optional, have a value.
  bool flag(std::string_view name) const;  // unset reads as false
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  std::optional<std::int64_t> maybe_integer(std::string_view name) const;
  std::optional<std::uint64_t> maybe_unsigned(std::string_view name) const;
  std::optional<double> maybe_number(std::string_view name) const;
  std::optional<std::string> maybe_text(std::string_view name) const;
  std::vector<std::string> list(std::string_view name) const;  // unset reads as empty

 private:
  struct Slot {
    Value value;
    Origin origin = Origin::kDefault;
    std::string place;
  };

  const Slot& slot(std::string_view name) const;

  std::vector<Slot> slots_;  // parallel to option_table()
};

// The configuration file used when neither --config nor TRINE_CONFIG names one:
// $XDG_CONFIG_HOME/trine/config.toml or ~/.config/trine/config.toml; empty when neither variable is
// set.
std::string default_config_path();

}  // namespace trine::options
