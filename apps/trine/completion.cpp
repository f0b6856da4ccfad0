#include "apps/trine/completion.h"

#include <fmt/format.h>

#include "apps/trine/command.h"
#include "apps/trine/help.h"
#include "options/option.h"

namespace trine::app {

namespace {

std::string flags_of(const Command& command) {
  std::string out = "--help";
  for (const std::string_view name : all_options(command)) {
    out += fmt::format(" --{}", name);
  }
  return out;
}

std::string command_names() {
  std::string out = "help";
  for (const Command* command : commands()) {
    if (!command->hidden) {
      out += fmt::format(" {}", command->name);
    }
  }
  return out;
}

std::string spaced(std::string_view choices) {
  std::string out(choices);
  for (char& c : out) {
    c = c == '|' ? ' ' : c;
  }
  return out;
}

// Help text inside single quotes of all three shells; the table has none of them, this keeps it
// safe.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '\'' && c != '[' && c != ']' && c != ':' && c != '`') {
      out += c;
    }
  }
  return out;
}

std::string choice_cases(std::string_view indent) {
  std::string out;
  for (const options::Option& option : options::option_table()) {
    if (option.type == options::Type::kChoice) {
      out += fmt::format("{}--{}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                         indent, option.name, spaced(option.choices));
    }
  }
  return out;
}

std::string bash_script() {
  std::string out =
      "# bash completion for trine: source <(trine completion bash)\n"
      "_trine() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags=\n"
      "  COMPREPLY=()\n";
  out += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$cur\")); return\n"
      "  fi\n",
      command_names());
  out += "  case \"$prev\" in\n" + choice_cases("    ") + "  esac\n";
  out += "  case \"${COMP_WORDS[1]}\" in\n";
  out += fmt::format("    help) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                     command_names());
  for (const Command* command : commands()) {
    if (!command->hidden) {
      out += fmt::format("    {}) flags=\"{}\" ;;\n", command->name, flags_of(*command));
    }
  }
  out +=
      "  esac\n"
      "  case \"$cur\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _trine trine\n";
  return out;
}

std::string zsh_script() {
  std::string out =
      "#compdef trine\n"
      "# zsh completion for trine: trine completion zsh > \"${fpath[1]}/_trine\"\n"
      "_trine() {\n"
      "  local -a names\n"
      "  names=(\n";
  for (const Command* command : commands()) {
    if (!command->hidden) {
      out += fmt::format("    '{}:{}'\n", command->name, plain(command->summary));
    }
  }
  out +=
      "    'help:Describe a command'\n"
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command names\n"
      "    return\n"
      "  fi\n"
      "  case \"$words[2]\" in\n";
  for (const Command* command : commands()) {
    if (command->hidden) {
      continue;
    }
    out += fmt::format("    {}) _arguments -s '1: :' '*:file:_files'", command->name);
    for (const std::string_view name : all_options(*command)) {
      const options::Option& option = *options::find_option(name);
      std::string value;
      if (option.type == options::Type::kChoice) {
        value = fmt::format(":value:({})", spaced(option.choices));
      } else if (option.type != options::Type::kBool) {
        value = ":value:_files";
      }
      out +=
          fmt::format(" \\\n      '{}--{}[{}]{}'", option.type == options::Type::kList ? "*" : "",
                      name, plain(option.help), value);
    }
    out += " ;;\n";
  }
  out +=
      "    help) _describe command names ;;\n"
      "  esac\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _trine ]; then _trine \"$@\"; else compdef _trine trine; fi\n";
  return out;
}

std::string fish_script() {
  std::string out =
      "# fish completion for trine: trine completion fish > "
      "~/.config/fish/completions/trine.fish\n";
  for (const Command* command : commands()) {
    if (command->hidden) {
      continue;
    }
    out += fmt::format("complete -c trine -n __fish_use_subcommand -f -a {} -d '{}'\n",
                       command->name, plain(command->summary));
    for (const std::string_view name : all_options(*command)) {
      const options::Option& option = *options::find_option(name);
      std::string value;
      if (option.type == options::Type::kChoice) {
        value = fmt::format(" -x -a '{}'", spaced(option.choices));
      } else if (option.type != options::Type::kBool) {
        value = " -r";
      }
      const std::string shorter =
          option.short_name == '\0' ? "" : fmt::format(" -s {}", option.short_name);
      out +=
          fmt::format("complete -c trine -n '__fish_seen_subcommand_from {}' -l {}{}{} -d '{}'\n",
                      command->name, name, shorter, value, plain(option.help));
    }
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") {
    return bash_script();
  }
  if (shell == "zsh") {
    return zsh_script();
  }
  if (shell == "fish") {
    return fish_script();
  }
  return fail(ErrorCode::kInvalidArgument,
              "no completion for shell '{}', expected bash, zsh or fish", shell);
}

}  // namespace trine::app
