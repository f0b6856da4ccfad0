// The rows. Order here is the order of help and of docs/options.md.
#include <array>

#include "options/option.h"

namespace trine::options {

namespace {

constexpr OptionGroup kGroups[] = {
    {"input", "Input"},
    {"output", "Output"},
    {"sampling", "Sampling"},
    {"engine", "Engine"},
    {"hub", "Models and downloads"},
    {"verify", "Verification"},
    {"general", "General"},
};

constexpr Option kTable[] = {
    // -- input
    {.name = "prompt",
     .short_name = 'p',
     .type = Type::kText,
     .group = "input",
     .sources = Sources::kFlagOnly,
     .unset_note = "the PROMPT argument, --file or standard input",
     .help = "Prompt text"},
    {.name = "file",
     .short_name = 'f',
     .type = Type::kText,
     .group = "input",
     .sources = Sources::kFlagOnly,
     .unset_note = "none",
     .placeholder = "FILE",
     .help = "Read the text from FILE, - for standard input"},
    // -- output
    {.name = "origin",
     .type = Type::kBool,
     .group = "output",
     .scope = Scope::kProcess,
     .sources = Sources::kFlagOnly,
     .help = "Also print where each value came from"},
    // -- general
    {.name = "config",
     .type = Type::kText,
     .group = "general",
     .scope = Scope::kProcess,
     .sources = Sources::kFlagOrEnv,
     .unset_note = "the user's config.toml",
     .placeholder = "FILE",
     .help = "Configuration file"},
    {.name = "json",
     .type = Type::kBool,
     .group = "general",
     .scope = Scope::kProcess,
     .sources = Sources::kFlagOnly,
     .help = "Print the result as JSON on standard output"},
    {.name = "quiet",
     .short_name = 'q',
     .type = Type::kBool,
     .group = "general",
     .scope = Scope::kProcess,
     .help = "No progress and no statistics on standard error"},
    {.name = "log-level",
     .type = Type::kChoice,
     .group = "general",
     .scope = Scope::kProcess,
     .default_text = "warn",
     .choices = "debug|info|warn|error|off",
     .help = "Log lines on standard error from this level up"},
};

}  // namespace

std::span<const Option> option_table() {
  return kTable;
}

std::span<const OptionGroup> option_groups() {
  return kGroups;
}

}  // namespace trine::options
