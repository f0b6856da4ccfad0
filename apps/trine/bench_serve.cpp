#include "apps/trine/bench_serve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/machine.h"
#include "base/json.h"
#include "hub/files.h"
#include "hub/http.h"
#include "hub/url.h"
#include "loadgen/report.h"
#include "loadgen/runner.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;
using options::Settings;

Result<std::string> api_key(const Settings& settings) {
  if (const auto file = settings.maybe_text("api-key-file"); file.has_value() && !file->empty()) {
    TRINE_TRY_ASSIGN(const std::string text, read_file(*file));
    return hub::clean_token(std::string_view(text).substr(0, text.find('\n')), *file);
  }
  return hub::clean_token(settings.maybe_text("api-key").value_or(""), "TRINE_API_KEY");
}

Result<std::string> base_url(const Settings& settings) {
  const std::string& text = settings.text("base-url");
  auto url = hub::parse_url(text);
  if (!url.has_value()) {
    return tl::unexpected(std::move(url).error().with_context("--base-url"));
  }
  std::string out = text;
  while (out.ends_with('/')) {
    out.pop_back();
  }
  if (out.ends_with("/v1") || out.find_first_of("?#") != out.npos) {
    return fail(ErrorCode::kInvalidArgument,
                "--base-url {}: give it without /v1, query and fragment", text);
  }
  return out;
}

Result<std::vector<loadgen::TraceEntry>> dataset(CommandContext& context) {
  const Settings& settings = context.settings();
  const auto path = settings.maybe_text("dataset");
  const auto format_name = settings.maybe_text("dataset-format");
  if (path.has_value() != format_name.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "give --dataset and --dataset-format together");
  }
  if (!path.has_value()) {
    return std::vector<loadgen::TraceEntry>();
  }
  TRINE_TRY_ASSIGN(const loadgen::TraceFormat format, loadgen::parse_trace_format(*format_name));
  TRINE_TRY_ASSIGN(const std::string text, read_file(*path));
  auto trace = loadgen::read_trace(format, text);
  if (!trace.has_value()) {
    return tl::unexpected(std::move(trace).error().with_context(*path));
  }
  if (trace->num_dropped > 0) {
    context.note(fmt::format("{}: {} of {} conversations left out: too short or too long", *path,
                             trace->num_dropped, trace->num_dropped + trace->entries.size()));
  }
  return std::move(trace->entries);
}

Result<loadgen::Workload> workload(CommandContext& context) {
  const Settings& settings = context.settings();
  loadgen::WorkloadOptions out;
  out.endpoint = settings.text("endpoint") == "chat" ? loadgen::Endpoint::kChat
                                                     : loadgen::Endpoint::kCompletions;
  out.model = context.argument(1);
  TRINE_TRY_ASSIGN(out.input, loadgen::parse_length(settings.text("input-len"), "--input-len"));
  TRINE_TRY_ASSIGN(out.output, loadgen::parse_length(settings.text("output-len"), "--output-len"));
  out.prefix_tokens = settings.integer("prefix-len");
  out.prefix_groups = settings.integer("prefix-groups");
  out.prompt_ids = settings.integer("prompt-ids");
  out.ignore_eos = settings.flag("ignore-eos");
  out.temperature = settings.origin("temperature") == options::Origin::kDefault
                        ? 0.0
                        : settings.number("temperature");
  out.extra_body = settings.maybe_text("extra-body").value_or("");
  out.seed = settings.maybe_unsigned("seed").value_or(0);
  TRINE_TRY_ASSIGN(std::vector<loadgen::TraceEntry> trace, dataset(context));
  return loadgen::Workload::create(std::move(out), std::move(trace));
}

Status set_arrivals(const Settings& settings, loadgen::RunOptions& run) {
  const std::string text = settings.maybe_text("request-rate").value_or("inf");
  const std::size_t dash = text.find('-', 1);
  const bool exponent = dash != text.npos && (text[dash - 1] == 'e' || text[dash - 1] == 'E');
  loadgen::ArrivalOptions& out = run.arrivals;
  if (dash == text.npos || exponent) {
    TRINE_TRY_ASSIGN(out.rate, loadgen::parse_rate(text, "--request-rate"));
    out.end_rate = out.rate;
  } else {
    TRINE_TRY_ASSIGN(out.rate, loadgen::parse_rate(text.substr(0, dash), "--request-rate"));
    TRINE_TRY_ASSIGN(out.end_rate, loadgen::parse_rate(text.substr(dash + 1), "--request-rate"));
    if (std::isinf(out.rate) || std::isinf(out.end_rate)) {
      return fail(ErrorCode::kInvalidArgument, "--request-rate {}: a ramp needs two finite rates",
                  text);
    }
    if (!(run.duration_s > 0.0)) {
      return fail(ErrorCode::kInvalidArgument,
                  "--request-rate {}: a ramp goes over --duration, which is not given", text);
    }
    out.ramp_s = run.duration_s;
  }
  out.ramp_shape = settings.text("ramp-shape") == "exponential" ? loadgen::RampShape::kExponential
                                                                : loadgen::RampShape::kLinear;
  out.burstiness = settings.number("burstiness");
  out.seed = settings.maybe_unsigned("seed").value_or(0);
  return {};
}

Result<loadgen::RunOptions> run_options(const Settings& settings,
                                        const loadgen::Workload& workload) {
  loadgen::RunOptions out;
  const bool has_trace = !workload.trace().empty();
  const bool has_times = has_trace && workload.trace().front().at_ms.has_value();
  const bool has_rate = settings.has("request-rate");
  const auto clients = settings.maybe_integer("clients");
  if (has_rate && clients.has_value()) {
    return fail(ErrorCode::kInvalidArgument,
                "--clients is a closed loop, --request-rate an open one; give one of them");
  }
  out.duration_s = settings.maybe_number("duration").value_or(0.0);
  out.clients = clients.value_or(1);
  out.mode = clients.has_value()      ? loadgen::Mode::kClosed
             : has_times && !has_rate ? loadgen::Mode::kReplay
                                      : loadgen::Mode::kOpen;
  for (const char* name : {"burstiness", "ramp-shape"}) {
    if (out.mode != loadgen::Mode::kOpen && settings.origin(name) == options::Origin::kFlag) {
      return fail(ErrorCode::kInvalidArgument, "--{} needs --request-rate", name);
    }
  }
  if (out.mode != loadgen::Mode::kReplay &&
      settings.origin("time-scale") == options::Origin::kFlag) {
    return fail(ErrorCode::kInvalidArgument, "--time-scale is for replays of a data set's times");
  }
  TRINE_TRY(set_arrivals(settings, out));
  constexpr std::int64_t kDefaultPrompts = 100;
  const bool open_end = out.duration_s > 0.0 || out.mode == loadgen::Mode::kReplay;
  out.num_requests = settings.maybe_integer("num-prompts").value_or(open_end ? 0 : kDefaultPrompts);
  if (out.num_requests == 0 && out.mode == loadgen::Mode::kOpen && std::isinf(out.arrivals.rate)) {
    return fail(ErrorCode::kInvalidArgument,
                "--duration without --num-prompts needs a finite --request-rate or --clients");
  }
  out.time_scale = settings.number("time-scale");
  out.warmup = settings.integer("warmup");
  out.max_lag_ms = settings.number("max-lag");
  out.max_cpu_wait = settings.number("max-cpu-wait");
  out.cancel = &interrupt_flag();
  return out;
}

// The first model that the server lists.
Result<std::string> first_model(loadgen::Client& client) {
  TRINE_TRY_ASSIGN(const std::string text, client.get("/v1/models"));
  const auto list = parse_json(text, {.max_bytes = std::size_t{1} << 20});
  if (list.has_value() && list->is_object() && list->contains("data")) {
    const Json& data = (*list)["data"];
    if (data.is_array() && !data.empty() && data[0].is_object() && data[0].contains("id") &&
        data[0]["id"].is_string()) {
      return data[0]["id"].get<std::string>();
    }
  }
  return fail(ErrorCode::kUnavailable, "/v1/models lists no model; give its name as an argument");
}

std::string arrivals_text(const loadgen::RunOptions& run) {
  const loadgen::ArrivalOptions& a = run.arrivals;
  switch (run.mode) {
    case loadgen::Mode::kClosed:
      return fmt::format("closed loop, {} clients", run.clients);
    case loadgen::Mode::kReplay:
      return fmt::format("replay, times x {:g}", run.time_scale);
    case loadgen::Mode::kOpen:
      break;
  }
  if (std::isinf(a.rate)) {
    return "all at once";
  }
  const std::string law =
      a.burstiness == 1.0 ? "Poisson" : fmt::format("gamma of shape {:g}", a.burstiness);
  return a.ramp_s > 0.0
             ? fmt::format("{}, {:g} to {:g} requests/s, {}", law, a.rate, a.end_rate,
                           a.ramp_shape == loadgen::RampShape::kLinear ? "linear" : "exponential")
             : fmt::format("{}, {:g} requests/s", law, a.rate);
}

loadgen::RunNames run_names(const std::string& url, const loadgen::Workload& workload,
                            const loadgen::RunOptions& run, std::size_t sent) {
  const bool open = run.mode == loadgen::Mode::kOpen;
  return {.base_url = url,
          .endpoint = std::string(loadgen::endpoint_path(workload.options().endpoint)),
          .model = workload.options().model,
          .arrivals = arrivals_text(run),
          .request_rate = open ? run.arrivals.rate : std::numeric_limits<double>::infinity(),
          .burstiness = run.arrivals.burstiness,
          .max_concurrency = run.mode == loadgen::Mode::kClosed ? run.clients : 0,
          .num_prompts = static_cast<std::int64_t>(sent),
          .seed = workload.options().seed};
}

std::function<void(std::size_t, std::size_t)> progress_of(const CommandContext& context) {
  if (context.quiet() || ::isatty(STDERR_FILENO) == 0) {
    return {};
  }
  return [last = 0.0](std::size_t started, std::size_t ended) mutable {
    if (const double now = loadgen::now_s(); now - last > 0.5) {
      last = now;
      fmt::print(stderr, "\r{} sent, {} ended ", started, ended);
    }
  };
}

}  // namespace

std::vector<std::string_view> bench_serve_options() {
  return {"base-url",   "api-key-file", "endpoint",        "num-prompts",
          "duration",   "request-rate", "ramp-shape",      "burstiness",
          "clients",    "dataset",      "dataset-format",  "time-scale",
          "input-len",  "output-len",   "prefix-len",      "prefix-groups",
          "prompt-ids", "warmup",       "request-timeout", "goodput",
          "extra-body", "max-lag",      "max-cpu-wait",    "save",
          "seed",       "temperature",  "ignore-eos"};
}

Result<int> bench_serve(CommandContext& context) {
  const Settings& settings = context.settings();
  TRINE_TRY_ASSIGN(const loadgen::Slo slo, loadgen::parse_slo(settings.list("goodput")));
  loadgen::ClientOptions client_options;
  TRINE_TRY_ASSIGN(client_options.base_url, base_url(settings));
  TRINE_TRY_ASSIGN(client_options.api_key, api_key(settings));
  client_options.timeout_s = settings.number("request-timeout");
  const std::string url = client_options.base_url;
  TRINE_TRY_ASSIGN(loadgen::Workload load, workload(context));
  TRINE_TRY_ASSIGN(loadgen::RunOptions run, run_options(settings, load));
  TRINE_TRY_ASSIGN(const auto client, loadgen::Client::create(std::move(client_options)));
  if (load.options().model.empty()) {
    TRINE_TRY_ASSIGN(load.options().model, first_model(*client));
  }
  TRINE_TRY(loadgen::calibrate(*client, load));
  context.note(fmt::format("{}: {:.3f} tokens a word, {:.1f} around a prompt", url,
                           load.options().tokens_per_word, load.options().overhead_tokens));
  run.progress = progress_of(context);
  TRINE_TRY_ASSIGN(const loadgen::RunResult result, loadgen::run(*client, load, run));
  if (run.progress) {
    fmt::print(stderr, "\n");
  }
  const loadgen::Report report = loadgen::make_report(result, slo, load.options().seed);
  const loadgen::RunNames names = run_names(url, load, run, result.outcomes.size());
  if (const auto path = settings.maybe_text("save"); path.has_value() && !path->empty()) {
    Json full = loadgen::report_json(report, result, names, slo, true);
    full["machine"] = machine_json();
    TRINE_TRY(hub::write_file_atomic(*path, full.dump() + "\n"));
  }
  if (context.json()) {
    Json out = loadgen::report_json(report, result, names, slo, false);
    out["machine"] = machine_json();
    context.print_json(out);
  } else {
    write_out(loadgen::report_text(report, result, names, slo));
  }
  if (!result.void_reason.empty()) {
    context.note(fmt::format("void: {}", result.void_text));
    return kVoidRunStatus;
  }
  return report.completed > 0 ? 0 : 1;
}

}  // namespace trine::app
