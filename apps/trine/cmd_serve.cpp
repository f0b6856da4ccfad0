// trine serve: the HTTP server, from its options to its orderly end.
#include <cerrno>
#include <csignal>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/describe.h"
#include "apps/trine/model_args.h"
#include "base/log.h"
#include "hub/files.h"
#include "hub/reference.h"
#include "sched/step_budget.h"
#include "server/serving.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// Signals that end the server. They are blocked in every thread and taken by the main one.
sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, signal);
  }
  return set;
}

// True when one of them came within `ms`.
bool end_signal_within(int ms) {
  const sigset_t set = end_signals();
  const timespec time{.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1'000'000L};
  return ::sigtimedwait(&set, nullptr, &time) > 0;
}

std::string default_name(const std::string& argument) {
  std::string out = argument;
  while (out.size() > 1 && out.back() == '/') {
    out.pop_back();
  }
  if (hub::reference_kind(argument) != hub::ReferenceKind::kPath) {
    return out;
  }
  return out.substr(out.rfind('/') + 1);
}

Result<std::vector<server::ModelSpec>> model_specs(const CommandContext& context) {
  const std::vector<std::string> names = context.settings().list("served-name");
  const std::vector<std::string>& models = context.arguments();
  if (!names.empty() && names.size() != models.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "--served-name is given {} times for {} models; give it once for each",
                names.size(), models.size());
  }
  std::vector<server::ModelSpec> out;
  for (std::size_t i = 0; i < models.size(); ++i) {
    TRINE_TRY_ASSIGN(std::string path, model_path(context.settings(), models[i]));
    out.push_back(
        {.id = names.empty() ? default_name(models[i]) : names[i], .path = std::move(path)});
  }
  return out;
}

Status add_keys(const options::Settings& settings, bool admin, server::http::KeyRing& keys) {
  const std::string name = admin ? "admin-key" : "api-key";
  if (const auto file = settings.maybe_text(name + "-file"); file.has_value() && !file->empty()) {
    TRINE_TRY(keys.add_file(*file, admin));
  }
  if (const auto key = settings.maybe_text(name); key.has_value() && !key->empty()) {
    TRINE_TRY(keys.add(*key, admin, options::env_name(*options::find_option(name))));
  }
  return {};
}

server::http::ServerOptions http_options(const options::Settings& settings) {
  const auto bytes = [&settings](std::string_view name) {
    return static_cast<std::size_t>(settings.integer(name));
  };
  server::http::ServerOptions out;
  out.host = settings.text("host");
  out.port = static_cast<std::uint16_t>(settings.integer("port"));
  out.tls_cert = settings.maybe_text("tls-cert").value_or("");
  out.tls_key = settings.maybe_text("tls-key").value_or("");
  out.parser = {.max_header_bytes = bytes("max-header"), .max_body_bytes = bytes("max-body")};
  out.header_timeout_s = settings.number("header-timeout");
  out.body_timeout_s = settings.number("body-timeout");
  out.idle_timeout_s = settings.number("idle-timeout");
  out.write_timeout_s = settings.number("write-timeout");
  out.ping_s = settings.number("ping-interval");
  out.max_stream_buffer_bytes = bytes("stream-buffer");
  out.max_connections = static_cast<std::int32_t>(settings.integer("max-connections"));
  out.max_connections_per_address =
      static_cast<std::int32_t>(settings.integer("max-connections-per-address"));
  return out;
}

EngineOptions engine_options(const options::Settings& settings) {
  EngineOptions out;
  out.num_threads = static_cast<int>(settings.integer("threads"));
  out.kv_dtype = kv_dtype(settings);
  out.context_tokens = load_options(settings).max_context;
  out.kv_tokens = settings.maybe_integer("kv-tokens").value_or(0);
  out.kv_populate = settings.flag("kv-populate");
  out.step_tokens = static_cast<std::int32_t>(settings.integer("step-tokens"));
  out.max_sequences = static_cast<std::int32_t>(settings.integer("max-sequences"));
  out.prefix_cache = settings.flag("prefix-cache");
  out.max_waiting = static_cast<std::int32_t>(settings.integer("max-waiting"));
  out.max_waiting_tokens = settings.integer("max-waiting-tokens");
  out.target_itl_ms = settings.maybe_number("target-itl");
  return out;
}

Result<server::ServingOptions> serving_options(const CommandContext& context) {
  const options::Settings& settings = context.settings();
  server::ServingOptions out;
  TRINE_TRY_ASSIGN(out.specs, model_specs(context));
  out.http = http_options(settings);
  TRINE_TRY(add_keys(settings, false, out.guard.keys));
  TRINE_TRY(add_keys(settings, true, out.guard.keys));
  for (const std::string& host : settings.list("allowed-hosts")) {
    out.guard.allowed_hosts.push_back(host == "*" ? host : server::http::host_of(host));
  }
  out.guard.cors_origins = settings.list("cors-origins");
  out.allow_no_auth = settings.flag("allow-no-auth");
  out.models.load = load_options(settings);
  out.models.engine = engine_options(settings);
  out.models.keep_alive_s = settings.number("keep-alive");
  out.models.memory_budget_bytes = settings.maybe_integer("memory-budget").value_or(0);
  out.models.drain_timeout_s = settings.number("drain-timeout");
  out.models.generation_config = settings.text("generation-config") == "auto";
  TRINE_TRY_ASSIGN(hub::Store store, open_store(settings));
  // Names of the store only: an admin's request must not open any path of the machine.
  out.models.resolve = [store = std::move(store)](std::string_view name) -> Result<std::string> {
    TRINE_TRY(hub::check_model_name(name));
    return store.resolve(name);
  };
  out.text_threads = static_cast<int>(settings.integer("text-threads"));
  out.progress_timeout_s = settings.number("progress-timeout");
  out.web_page = settings.flag("web-page");
  out.pooling = settings.text("pooling") == "mean" ? Pooling::kMean : Pooling::kLast;
  out.version = TRINE_VERSION;
  return out;
}

std::string formats_text(const ModelDescription& model) {
  std::string out = model.format;
  for (const TypeTotal& type : model.types) {
    out += fmt::format("{}{} {}", &type == model.types.data() ? ": " : "; ", type.name,
                       hub::format_bytes(type.bytes));
  }
  return out;
}

Json model_json(const server::ModelStatus& status, const options::Settings& settings) {
  Json out = {{"id", status.spec.id},
              {"path", status.spec.path},
              {"weight_bytes", status.weight_bytes},
              {"sampling_defaults", status.defaults},
              {"kv_cache_bytes", status.kv_bytes},
              {"kv_pages", status.engine.kv_pages},
              {"context_tokens", status.context_tokens},
              {"concurrency_at_context", status.context_tokens == 0
                                             ? 0.0
                                             : static_cast<double>(status.engine.kv_pages) *
                                                   kPageTokens / status.context_tokens}};
  const auto described =
      describe_model(status.spec.path, {.context = status.context_tokens,
                                        .kv_dtype = kv_dtype(settings),
                                        .packs_weights = settings.text("activations") == "int8"});
  if (described.has_value()) {
    out["formats"] = formats_text(*described);
    if (const auto& memory = described->memory; memory.has_value()) {
      out["packed_bytes"] = memory->packed_bytes;
      out["mapped_bytes"] = memory->mapped_bytes;
      out["activation_bytes"] = memory->activation_bytes;
    }
  }
  return out;
}

std::string auth_text(const server::Serving& serving, const options::Settings& settings) {
  std::string out = serving.needs_key() ? "an API key is needed"
                    : server::http::is_loopback(settings.text("host"))
                        ? "no key (this machine only)"
                        : "NO KEY, AND OTHER MACHINES CAN REACH THIS SERVER";
  out += serving.has_admin_keys() ? "; /admin/ needs an admin key" : "; /admin/ is off";
  return out + (settings.has("tls-cert") ? "; TLS" : "; no TLS");
}

// The time between tokens that prompts are cut to.
std::string target_text(const options::Settings& settings) {
  const std::optional<double> target = settings.maybe_number("target-itl");
  if (!target.has_value()) {
    return fmt::format("{:g} times a step that reads no prompt", sched::StepBudget::kAutoSteps);
  }
  return *target > 0.0 ? fmt::format("{:g} ms", *target) : "none";
}

void print_banner(const CommandContext& context, const server::Serving& serving) {
  const options::Settings& settings = context.settings();
  const auto bytes = [](const Json& model, const char* key) {
    return model.contains(key) ? hub::format_bytes(model[key].get<std::uint64_t>())
                               : std::string("?");
  };
  Json models = Json::array();
  for (const server::ModelStatus& status : serving.models()) {
    models.push_back(model_json(status, settings));
    const Json& model = models.back();
    context.note(fmt::format("model        {} ({})", status.spec.id, model.value("formats", "")));
    context.note(
        fmt::format("memory       weights {} packed + {} mapped, {} cache {}, activations {}",
                    bytes(model, "packed_bytes"), bytes(model, "mapped_bytes"), settings.text("kv"),
                    hub::format_bytes(static_cast<std::uint64_t>(status.kv_bytes)),
                    bytes(model, "activation_bytes")));
    context.note(fmt::format(
        "sampling     {}", status.defaults.empty() ? "no defaults of the model" : status.defaults));
    context.note(
        fmt::format("concurrency  {:.1f} requests of the whole context of {} tokens, at "
                    "most {} at once",
                    model["concurrency_at_context"].get<double>(), status.context_tokens,
                    settings.integer("max-sequences")));
  }
  context.note(
      fmt::format("prompts      at most {} tokens a step; beside answers, time between "
                  "their tokens: {}",
                  settings.integer("step-tokens"), target_text(settings)));
  context.note(fmt::format("cache        prefix cache {}; speculation off",
                           settings.flag("prefix-cache") ? "on, apart for each key" : "off"));
  context.note(fmt::format("auth         {}", auth_text(serving, settings)));
  if (settings.flag("web-page")) {
    context.note(fmt::format("web page     {}/", serving.url()));
  }
  context.note(fmt::format("ready        {}", serving.url()));
  if (context.json()) {
    const std::optional<double> target = settings.maybe_number("target-itl");
    write_out(Json{{"url", serving.url()},
                   {"port", serving.port()},
                   {"target_itl_ms", target.has_value() ? Json(*target) : Json("auto")},
                   {"models", models}}
                  .dump() +
              "\n");
    flush_out();
  }
}

// Until an end signal came. Errors: a model given at start could not be loaded.
Status serve_until_signal(const CommandContext& context, const server::Serving& serving) {
  bool announced = false;
  for (;;) {
    Error error;
    const auto loading = serving.loading(error);
    if (!announced && loading == server::Serving::Loading::kFailed) {
      return tl::unexpected(std::move(error));
    }
    if (!announced && loading == server::Serving::Loading::kDone) {
      announced = true;
      print_banner(context, serving);
    }
    if (end_signal_within(announced ? 1000 : 20)) {
      return {};
    }
  }
}

// Lets running answers finish. A second signal cuts them short, a third ends the process.
void drain(const CommandContext& context, server::Serving& serving) {
  const double limit_s = context.settings().number("drain-timeout");
  serving.begin_drain();
  context.note(fmt::format("draining: running answers have {:g} s to finish", limit_s));
  double waited_s = 0.0;
  constexpr double kPollS = 0.05;
  while (waited_s < limit_s && !serving.idle(kPollS) && !end_signal_within(0)) {
    waited_s += kPollS;
  }
  if (serving.idle(0.0)) {
    return;
  }
  context.note("ending the answers that are still running");
  serving.cut_off();
  constexpr int kMostPolls = 200;
  for (int i = 0; i < kMostPolls && !serving.idle(kPollS); ++i) {
    if (end_signal_within(0)) {
      ::_exit(130);
    }
  }
}

Result<int> run_serve(CommandContext& context) {
  TRINE_TRY(apply_isa(context.settings()));
  TRINE_TRY_ASSIGN(server::ServingOptions options, serving_options(context));
  // Before any thread exists: they inherit the mask.
  const sigset_t set = end_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  TRINE_TRY_ASSIGN(const std::unique_ptr<server::Serving> serving,
                   server::Serving::start(std::move(options)));
  context.note(fmt::format("listening    {} (loading)", serving->url()));
  TRINE_TRY(serve_until_signal(context, *serving));
  drain(context, *serving);
  return 0;
}

std::vector<std::string_view> serve_options() {
  return joined(model_options(), {"step-tokens",
                                  "prefix-cache",
                                  "kv-tokens",
                                  "kv-populate",
                                  "max-sequences",
                                  "max-waiting",
                                  "max-waiting-tokens",
                                  "target-itl",
                                  "host",
                                  "port",
                                  "served-name",
                                  "api-key-file",
                                  "admin-key-file",
                                  "allow-no-auth",
                                  "allowed-hosts",
                                  "cors-origins",
                                  "web-page",
                                  "tls-cert",
                                  "tls-key",
                                  "max-header",
                                  "max-body",
                                  "header-timeout",
                                  "body-timeout",
                                  "idle-timeout",
                                  "write-timeout",
                                  "stream-buffer",
                                  "ping-interval",
                                  "max-connections",
                                  "max-connections-per-address",
                                  "text-threads",
                                  "drain-timeout",
                                  "progress-timeout",
                                  "generation-config",
                                  "pooling",
                                  "keep-alive",
                                  "memory-budget"});
}

}  // namespace

extern const Command kServeCommand;
const Command kServeCommand = {
    .name = "serve",
    .group = "generate",
    .summary = "Serve models over an OpenAI-compatible HTTP API",
    .positionals = {{.name = "MODEL",
                     .help =
                         "names of pulled models, .gguf files, or directories with safetensors; "
                         "the first one answers requests that name none",
                     .repeats = true}},
    .options = serve_options(),
    .details =
        "Listens on this machine only, unless --host says otherwise and a key is set. Keys come "
        "from a file or from\n"
        "the variables TRINE_API_KEY and TRINE_ADMIN_KEY. SIGTERM or Ctrl-C lets running answers "
        "finish; a second one\n"
        "ends them with an error event. --json prints one line with the address and the models "
        "when all are loaded.\n"
        "Endpoints, limits and metrics: docs/serving.md; what is safe and what is not: "
        "SECURITY.md.",
    .run = run_serve,
};

}  // namespace trine::app
