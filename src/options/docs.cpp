#include "options/docs.h"

#include <fmt/format.h>

#include "options/option.h"

namespace trine::options {

namespace {

// A cell may not end its column or its row early.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += "\\|";
    } else {
      out += c;
    }
  }
  return out;
}

std::string code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string default_cell(const Option& option) {
  if (!option.default_text.empty()) {
    return fmt::format("`{}`{}{}", cell(option.default_text), option.unit.empty() ? "" : " ",
                       option.unit);
  }
  return option.unset_note.empty() ? "unset" : cell(option.unset_note);
}

std::string type_cell(const Option& option) {
  std::string out = option.type == Type::kChoice ? code(cell(option.choices))
                                                 : std::string(type_name(option.type));
  const std::string range = range_text(option);
  if (!range.empty()) {
    out += ", " + range;
  }
  if (option.default_text.empty() && !option.unit.empty()) {
    out += fmt::format(" ({})", option.unit);
  }
  return out;
}

}  // namespace

std::string options_markdown() {
  std::string out =
      "# Options\n\n"
      "Made from the option table by `trine options-page`; a test fails when it is out of date.\n\n"
      "A value comes from the first of: command-line flag, environment variable, configuration "
      "file, the\n"
      "model's `generation_config.json` (sampling only), default. `trine config show --origin` "
      "prints which one.\n"
      "The file is `--config FILE`, else `$TRINE_CONFIG`, else "
      "`$XDG_CONFIG_HOME/trine/config.toml`\n"
      "(`~/.config/trine/config.toml`). An unknown key or an unreadable value is an error with "
      "file and line;\n"
      "an unknown `TRINE_*` variable is a warning, because container platforms set such names "
      "unasked.\n\n"
      "A *size* takes a suffix: `32k` is 32000, `32K` or `32KiB` is 32768; also m/M, g/G. A *bool* "
      "is `--name` or\n"
      "`--no-name`; in the environment 1/0, true/false, yes/no, on/off. A *list* is a repeated "
      "flag, an array in\n"
      "the file and a comma-separated line in the environment.\n";
  for (const OptionGroup& group : option_groups()) {
    out += fmt::format("\n## {}\n\n", group.title);
    out += "| flag | file key | variable | type | default | scope | meaning |\n";
    out += "| --- | --- | --- | --- | --- | --- | --- |\n";
    for (const Option& option : option_table()) {
      if (option.group != group.name) {
        continue;
      }
      const bool all = option.sources == Sources::kAll;
      const std::string shorter =
          option.short_name == '\0' ? "" : fmt::format("`-{}`, ", option.short_name);
      const std::string flag =
          option.sources == Sources::kEnvOnly ? "-" : fmt::format("{}`--{}`", shorter, option.name);
      out += fmt::format(
          "| {} | {} | {} | {} | {} | {} | {} |\n", flag, all ? code(file_key(option)) : "-",
          option.sources != Sources::kFlagOnly ? code(env_name(option)) : "-", type_cell(option),
          default_cell(option), scope_name(option.scope), cell(option.help));
    }
  }
  return out;
}

}  // namespace trine::options
