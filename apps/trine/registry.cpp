// The list of commands. To add one: cmd_<name>.cpp with `extern const Command k<Name>Command`, two
// lines here, one in CMakeLists.txt.
#include <array>

#include "apps/trine/command.h"

namespace trine::app {

extern const Command kPullCommand;
extern const Command kLsCommand;
extern const Command kShowCommand;
extern const Command kRmCommand;
extern const Command kRunCommand;
extern const Command kChatCommand;
extern const Command kServeCommand;
extern const Command kTokenizeCommand;
extern const Command kDetokenizeCommand;
extern const Command kTemplateCommand;
extern const Command kLogitsCommand;
extern const Command kQuantizeCommand;
extern const Command kConvertCommand;
extern const Command kVerifyCommand;
extern const Command kEvalCommand;
extern const Command kBenchCommand;
extern const Command kDoctorCommand;
extern const Command kConfigCommand;
extern const Command kOptionsPageCommand;
extern const Command kApiPageCommand;
extern const Command kCompletionCommand;

namespace {

constexpr CommandGroup kGroups[] = {
    {"models", "Models"},
    {"generate", "Generate"},
    {"inspect", "Tokens, templates, logits"},
    {"quantize", "Quantize and convert"},
    {"verify", "Prove and diagnose"},
    {"setup", "Set up"},
};

const Command* const kCommands[] = {
    &kPullCommand,       &kLsCommand,       &kShowCommand,       &kRmCommand,
    &kRunCommand,        &kChatCommand,     &kServeCommand,      &kTokenizeCommand,
    &kDetokenizeCommand, &kTemplateCommand, &kLogitsCommand,     &kQuantizeCommand,
    &kConvertCommand,    &kVerifyCommand,   &kEvalCommand,       &kBenchCommand,
    &kDoctorCommand,     &kConfigCommand,   &kCompletionCommand, &kOptionsPageCommand,
    &kApiPageCommand,
};

}  // namespace

std::span<const CommandGroup> command_groups() {
  return kGroups;
}

std::span<const Command* const> commands() {
  return kCommands;
}

const Command* find_command(std::string_view name) {
  for (const Command* command : kCommands) {
    if (command->name == name) {
      return command;
    }
  }
  return nullptr;
}

}  // namespace trine::app
