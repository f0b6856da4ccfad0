#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/completion.h"

namespace trine::app {

namespace {

Result<int> run_completion(CommandContext& context) {
  TRINE_TRY_ASSIGN(const std::string script, completion_script(context.argument(0)));
  if (context.json()) {
    context.print_json({{"shell", context.argument(0)}, {"script", script}});
  } else {
    write_out(script);
  }
  return 0;
}

}  // namespace

extern const Command kCompletionCommand;
const Command kCompletionCommand = {
    .name = "completion",
    .group = "setup",
    .summary = "Print a shell completion script",
    .positionals = {{.name = "SHELL", .help = "bash, zsh or fish"}},
    .details =
        "bash: source <(trine completion bash)\n"
        "zsh:  trine completion zsh > \"${fpath[1]}/_trine\"\n"
        "fish: trine completion fish > ~/.config/fish/completions/trine.fish",
    .run = run_completion,
};

}  // namespace trine::app
