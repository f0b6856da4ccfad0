#include "options/command_line.h"

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "base/check.h"

namespace trine::options {

namespace {

std::string flag_name(const Option& option) {
  return "--" + std::string(option.name);
}

std::string shown_value(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return fmt::format("'{}{}'", text.substr(0, kShown), text.size() > kShown ? "..." : "");
}

struct Arguments {
  std::vector<std::string> flags;  // and positionals among them
  std::vector<std::string> rest;   // behind --
};

bool takes_value(std::string_view arg, std::span<const std::string_view> taken) {
  return std::any_of(taken.begin(), taken.end(), [&](std::string_view name) {
    const Option* option = find_option(name);
    const bool is_short = arg.size() == 2 && arg[0] == '-' && option->short_name == arg[1];
    return option->type != Type::kBool &&
           (is_short || (arg.starts_with("--") && arg.substr(2) == name));
  });
}

// What CLI11 would read in its own way is settled here: "--name=" with nothing behind it would take
// the next argument as the value, so "--name=value" becomes two arguments; and "--" would be
// reported as unknown, so it splits the line.
Arguments split_arguments(std::span<const std::string> args,
                          std::span<const std::string_view> taken) {
  Arguments out;
  bool value_follows = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (value_follows) {
      value_follows = false;
      out.flags.push_back(arg);
      continue;
    }
    if (arg == "--") {
      out.rest.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    const std::size_t equals = arg.starts_with("--") ? arg.find('=') : std::string::npos;
    if (equals != std::string::npos && takes_value(arg.substr(0, equals), taken)) {
      out.flags.push_back(arg.substr(0, equals));
      out.flags.push_back(arg.substr(equals + 1));
      continue;
    }
    value_follows = takes_value(arg, taken);
    out.flags.push_back(arg);
  }
  return out;
}

tl::unexpected<Error> unknown_flag(const std::string& arg,
                                   std::span<const std::string_view> taken) {
  const std::string name = arg.substr(0, arg.find('='));
  std::vector<std::string> known = {"--help"};
  for (const std::string_view row : taken) {
    known.push_back("--" + std::string(row));
  }
  const std::string guess = nearest(name, known);
  return fail(
      ErrorCode::kInvalidArgument, "unknown option {}{}", name,
      guess.empty() ? "; --help lists the options" : fmt::format(", did you mean {}?", guess));
}

Result<Value> flag_value(const Option& option, const std::vector<std::string>& given) {
  if (option.type == Type::kBool) {
    return parse_value(option, given.back(), flag_name(option));
  }
  // Of a setting the last one counts, so that an alias can be overridden. The inputs of one call
  // have no such use: one of two prompts would be lost unseen.
  if (option.type == Type::kText && option.sources == Sources::kFlagOnly && given.size() > 1) {
    return fail(ErrorCode::kInvalidArgument, "{} is given {} times, as {} and {}; give it once",
                flag_name(option), given.size(), shown_value(given[0]), shown_value(given[1]));
  }
  if (option.type != Type::kList) {
    return parse_value(option, given.back(), flag_name(option));
  }
  return given;
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const std::string> args,
                                       std::span<const std::string_view> taken) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  CommandLine line;
  app.add_flag("-h,--help", line.help);

  struct Bound {
    const Option* option;
    CLI::Option* parsed;
  };

  std::vector<Bound> bound;
  std::vector<std::string> rest;
  try {
    for (const std::string_view name : taken) {
      const Option* option = find_option(name);
      TRINE_CHECK(option != nullptr);
      std::string names = flag_name(*option);
      if (option->short_name != '\0') {
        names += fmt::format(",-{}", option->short_name);
      }
      CLI::Option* parsed = nullptr;
      if (option->type == Type::kBool) {
        parsed = app.add_flag(names + fmt::format(",!--no-{}", option->name));
      } else {
        parsed = app.add_option(names);
      }
      parsed->take_all();
      bound.push_back({option, parsed});
    }
    Arguments split = split_arguments(args, taken);
    rest = std::move(split.rest);
    std::reverse(split.flags.begin(), split.flags.end());
    app.parse(std::move(split.flags));
  } catch (const CLI::ArgumentMismatch& error) {
    // "--ctx: 1 required  missing"
    const std::string text = error.what();
    return fail(ErrorCode::kInvalidArgument, "{} needs a value", text.substr(0, text.find(':')));
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, "{}", error.what());
  }
  // Positionals are CLI11's leftovers: as an option of its own it would take "[a,b]" apart.
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra[0] == '-') {
      return unknown_flag(extra, taken);
    }
    line.positionals.push_back(extra);
  }
  line.positionals.insert(line.positionals.end(), rest.begin(), rest.end());
  if (line.help) {
    return line;
  }
  for (const Bound& row : bound) {
    if (row.parsed->count() > 0) {
      TRINE_TRY_ASSIGN(Value value, flag_value(*row.option, row.parsed->results()));
      line.flags.push_back({row.option, std::move(value)});
    }
  }
  return line;
}

void apply_flags(const CommandLine& line, Settings& settings) {
  for (const ParsedFlag& flag : line.flags) {
    settings.set(flag.option->name, flag.value, Origin::kFlag, flag_name(*flag.option));
  }
}

namespace {

void append_wrapped(std::string& out, std::string_view text, std::size_t indent,
                    std::size_t width) {
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (column > indent && column + 1 + word.size() > width) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    if (space == std::string_view::npos) {
      break;
    }
    text.remove_prefix(space + 1);
  }
  out += '\n';
}

std::string help_of(const Option& option) {
  std::string text(option.help);
  const std::string range = range_text(option);
  if (!range.empty()) {
    text += fmt::format(" ({})", range);
  }
  if (!option.default_text.empty() && option.type != Type::kBool) {
    text += fmt::format(" [default: {}{}{}]", option.default_text, option.unit.empty() ? "" : " ",
                        option.unit);
  } else if (option.type == Type::kBool && option.default_text == "true") {
    text += " [default: on]";
  } else if (!option.unset_note.empty()) {
    text += fmt::format(" [default: {}]", option.unset_note);
  }
  return text;
}

}  // namespace

std::string options_help(std::span<const std::string_view> taken, int width) {
  constexpr std::size_t kIndent = 32;
  std::string out;
  for (const OptionGroup& group : option_groups()) {
    std::string block;
    for (const Option& option : option_table()) {
      if (option.group != group.name ||
          std::find(taken.begin(), taken.end(), option.name) == taken.end()) {
        continue;
      }
      std::string left =
          option.short_name != '\0' ? fmt::format("  -{}, ", option.short_name) : "      ";
      left += option.type == Type::kBool && option.default_text == "true"
                  ? fmt::format("--{0} / --no-{0}", option.name)
                  : fmt::format("--{}", option.name);
      const std::string value = placeholder(option);
      if (!value.empty()) {
        left += ' ' + value;
      }
      if (left.size() + 2 > kIndent) {
        left += '\n' + std::string(kIndent, ' ');
      } else {
        left.append(kIndent - left.size(), ' ');
      }
      block += left;
      append_wrapped(block, help_of(option), kIndent,
                     static_cast<std::size_t>(std::max(width, 60)));
    }
    if (!block.empty()) {
      out += fmt::format("\n{}:\n{}", group.title, block);
    }
  }
  return out;
}

}  // namespace trine::options
