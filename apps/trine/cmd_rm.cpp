// trine rm: deletes a model of the store.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/models.h"
#include "hub/reference.h"

namespace trine::app {

namespace {

// The stored name that the argument means: a name, or the hf: reference it came from.
Result<std::string> stored_name(const hub::Store& store, const std::string& argument) {
  if (hub::reference_kind(argument) == hub::ReferenceKind::kHub) {
    TRINE_TRY_ASSIGN(const hub::HubReference reference, hub::parse_hub_reference(argument));
    TRINE_TRY_ASSIGN(const std::optional<hub::Manifest> manifest,
                     store.find_source(reference.canonical()));
    return manifest.has_value() ? manifest->name : reference.default_name();
  }
  if (const Status valid = hub::check_model_name(argument); !valid.has_value()) {
    return fail(ErrorCode::kInvalidArgument,
                "{}; only models of the store are removed, files elsewhere are yours",
                valid.error().message);
  }
  return argument;
}

// One line from standard input; only "y" and "yes" agree.
bool ask(const std::string& question) {
  std::fputs(question.c_str(), stderr);
  std::fflush(stderr);
  std::string answer;
  for (int c = std::fgetc(stdin); c != EOF && c != '\n'; c = std::fgetc(stdin)) {
    answer += static_cast<char>(c);
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

Result<int> run_rm(CommandContext& context) {
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(context.settings()));
  TRINE_TRY_ASSIGN(const std::string name, stored_name(store, context.argument(0)));
  if (!context.settings().flag("yes")) {
    std::error_code ignored;
    if (!std::filesystem::exists(store.model_dir(name), ignored) &&
        !std::filesystem::exists(store.incoming_dir(name), ignored)) {
      return fail(ErrorCode::kNotFound, "no model {} in the store; `trine ls` lists them", name);
    }
    if (::isatty(STDIN_FILENO) != 1) {
      return fail(ErrorCode::kInvalidArgument,
                  "rm asks before it deletes, and standard input is no terminal: add -y");
    }
    if (!ask(fmt::format("delete {}? [y/N] ", store.model_dir(name).string()))) {
      context.note("nothing deleted");
      return 1;
    }
  }
  TRINE_TRY_ASSIGN(const std::uint64_t freed, store.remove(name));
  if (context.json()) {
    context.print_json({{"removed", name}, {"bytes", freed}});
  } else {
    context.note(fmt::format("removed {}, {}", name, hub::format_bytes(freed)));
  }
  return 0;
}

}  // namespace

extern const Command kRmCommand;
const Command kRmCommand = {
    .name = "rm",
    .group = "models",
    .summary = "Delete a model of the store",
    .positionals = {{.name = "NAME", .help = "name from `trine ls`, or the hf: reference"}},
    .options = with_store_options({"yes"}),
    .details = "Also deletes what an unfinished download of that name left behind.",
    .run = run_rm,
};

}  // namespace trine::app
