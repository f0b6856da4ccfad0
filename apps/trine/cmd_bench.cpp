// trine bench: how fast the kernels and a model are on this machine, beside the machine's limits.
#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "apps/trine/bench_attention.h"
#include "apps/trine/bench_kernels.h"
#include "apps/trine/bench_offline.h"
#include "apps/trine/bench_serve.h"
#include "apps/trine/command.h"
#include "apps/trine/machine.h"
#include "apps/trine/model_args.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// 0 for anything that is not a whole number.
std::int64_t whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

// Entries of a list option, each of which may be several with commas between.
std::vector<std::string> entries(const options::Settings& settings, std::string_view name) {
  std::vector<std::string> out;
  for (const std::string& text : settings.list(name)) {
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      out.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return out;
}

Status parse_shape(const std::string& text, KernelBenchOptions& out) {
  const std::size_t cross = std::min(text.find('x'), text.size());
  const std::int64_t n = whole_number(std::string_view(text).substr(0, cross));
  const std::int64_t k =
      cross == text.size() ? 0 : whole_number(std::string_view(text).substr(cross + 1));
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 24;
  if (n < 1 || n > kMaxRows || k < 1 || k > kernels::kMaxPackedCols) {
    return fail(
        ErrorCode::kInvalidArgument,
        "--shape {}: give output rows and columns as NxK, rows from 1 to {}, columns from 1 to {}",
        text, kMaxRows, kernels::kMaxPackedCols);
  }
  out.n = n;
  out.k = k;
  return {};
}

Result<std::vector<std::int64_t>> parse_rows(const options::Settings& settings) {
  constexpr std::int64_t kMaxM = 4096;
  std::vector<std::int64_t> out;
  for (const std::string& text : entries(settings, "rows")) {
    const std::int64_t m = whole_number(text);
    if (m < 1 || m > kMaxM) {
      return fail(ErrorCode::kInvalidArgument, "--rows {}: give whole numbers from 1 to {}", text,
                  kMaxM);
    }
    out.push_back(m);
  }
  return out;
}

Result<KernelBenchOptions> kernel_options(const options::Settings& settings) {
  KernelBenchOptions out;
  TRINE_TRY(parse_shape(settings.text("shape"), out));
  for (const std::string& name : entries(settings, "schemes")) {
    TRINE_TRY_ASSIGN(NamedScheme scheme, parse_scheme(name));
    if (scheme.packed() && kernels::packed_is_super(scheme.scheme) &&
        out.k % kernels::kPackedSuper != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "--shape: {} needs columns in multiples of {}, not {}", name,
                  kernels::kPackedSuper, out.k);
    }
    out.schemes.push_back(std::move(scheme));
  }
  TRINE_TRY_ASSIGN(out.rows, parse_rows(settings));
  out.bytes = settings.integer("weight-bytes");
  out.repeats = static_cast<int>(settings.integer("repeat"));
  return out;
}

std::string group_text(std::int32_t group) {
  return group < 0 ? "-" : group == 0 ? "row" : std::to_string(group);
}

Result<int> run_kernels(CommandContext& context, ThreadTeam& team) {
  TRINE_TRY_ASSIGN(const KernelBenchOptions options, kernel_options(context.settings()));
  TRINE_TRY_ASSIGN(const KernelReport report, bench_kernels(team, options));
  if (context.json()) {
    Json rows = Json::array();
    for (const KernelRow& row : report.rows) {
      rows.push_back({{"scheme", row.scheme},
                      {"group", row.group < 0    ? Json(nullptr)
                                : row.group == 0 ? Json("row")
                                                 : Json(row.group)},
                      {"shape", {row.n, row.k}},
                      {"m", row.m},
                      {"ms", row.ms},
                      {"gbps", row.gbps},
                      {"pct_read", row.pct_read},
                      {"gops", row.gops},
                      {"pct_int8", row.pct_int8}});
    }
    context.print_json({{"machine", machine_json()},
                        {"threads", team.num_threads()},
                        {"read_gbps", report.read_gbps},
                        {"int8_gops", report.int8_gops},
                        {"rows", rows}});
    return 0;
  }
  write_out(fmt::format("{}\n{} threads; read {:.1f} GB/s, int8 {:.0f} GOPS (measured)\n",
                        machine_line(), team.num_threads(), report.read_gbps, report.int8_gops));
  write_out("scheme   group  shape        M        ms     GB/s  % read     GOPS  % int8\n");
  for (const KernelRow& row : report.rows) {
    write_out(
        fmt::format("{:<8} {:>5}  {:<11} {:>3} {:>9.3f} {:>8.1f} {:>7.1f} {:>8.0f} {:>7.1f}\n",
                    row.scheme, group_text(row.group), fmt::format("{}x{}", row.n, row.k), row.m,
                    row.ms, row.gbps, row.pct_read, row.gops, row.pct_int8));
  }
  return 0;
}

Result<AttentionBenchOptions> attention_options(const options::Settings& settings) {
  AttentionBenchOptions out;
  for (const std::string& text : entries(settings, "heads")) {
    TRINE_TRY_ASSIGN(const AttentionShape shape, parse_attention_shape(text));
    out.shapes.push_back(shape);
  }
  out.kv_dtypes = {DType::kF16, DType::kI8};
  if (settings.origin("kv") == options::Origin::kFlag) {
    out.kv_dtypes = {kv_dtype(settings)};
  }
  out.rows = {1, 5, 9};
  if (settings.origin("rows") == options::Origin::kFlag) {
    TRINE_TRY_ASSIGN(out.rows, parse_rows(settings));
  }
  out.depth = settings.integer("depth");
  out.bytes = settings.integer("weight-bytes");
  out.repeats = static_cast<int>(settings.integer("repeat"));
  return out;
}

Result<int> run_attention(CommandContext& context, ThreadTeam& team) {
  TRINE_TRY_ASSIGN(const AttentionBenchOptions options, attention_options(context.settings()));
  TRINE_TRY_ASSIGN(const AttentionReport report, bench_attention(team, options));
  if (context.json()) {
    Json rows = Json::array();
    for (const AttentionRow& row : report.rows) {
      rows.push_back({{"heads", row.shape.num_heads},
                      {"kv_heads", row.shape.num_kv_heads},
                      {"head_dim", row.shape.head_dim},
                      {"kv", dtype_info(row.kv_dtype).name},
                      {"depth", options.depth},
                      {"m", row.rows},
                      {"us", row.us},
                      {"gbps", row.gbps},
                      {"pct_read", row.pct_read},
                      {"gflops", row.gflops}});
    }
    context.print_json({{"machine", machine_json()},
                        {"threads", team.num_threads()},
                        {"read_gbps", report.read_gbps},
                        {"rows", rows}});
    return 0;
  }
  write_out(fmt::format("{}\n{} threads; read {:.1f} GB/s (measured); {} tokens of context\n",
                        machine_line(), team.num_threads(), report.read_gbps, options.depth));
  write_out("heads        kv     M   us/layer     GB/s  % read   GFLOPS\n");
  for (const AttentionRow& row : report.rows) {
    write_out(fmt::format("{:<12} {:<5} {:>3} {:>10.1f} {:>8.1f} {:>7.1f} {:>8.0f}\n",
                          row.shape.text(), dtype_info(row.kv_dtype).name, row.rows, row.us,
                          row.gbps, row.pct_read, row.gflops));
  }
  return 0;
}

Json samples_json(const std::vector<double>& samples) {
  const Measured value = measured(samples);
  return {{"mean", value.mean}, {"deviation", value.deviation}, {"samples", samples}};
}

std::string sample_line(std::string_view name, const std::vector<double>& samples,
                        std::string_view unit, std::string_view remark = {}) {
  const Measured value = measured(samples);
  return fmt::format("{:<14} {:.2f} ± {:.2f} {}{}\n", name, value.mean, value.deviation, unit,
                     remark);
}

Result<int> run_offline(CommandContext& context, ThreadTeam& team) {
  const options::Settings& settings = context.settings();
  OfflineBenchOptions options;
  options.kv_dtype = kv_dtype(settings);
  options.repeats = static_cast<int>(settings.integer("repeat"));
  TRINE_TRY_ASSIGN(options.tests, parse_offline_tests(entries(settings, "tests")));
  TRINE_TRY_ASSIGN(const std::string path, model_path(settings, context.argument(1)));
  TRINE_TRY_ASSIGN(const TimedLoad loaded, timed_load(path, load_options(settings), team, options));
  TRINE_TRY_ASSIGN(const auto rows, bench_offline(*loaded.model, team, options));
  const std::int64_t peak = peak_resident_bytes();
  if (context.json()) {
    Json out = Json::array();
    for (const OfflineRow& row : rows) {
      Json entry = {{"test", row.test}, {"unit", row.unit}};
      entry.update(samples_json(row.samples));
      if (row.relative > 0) {
        entry["v"] = row.relative;
      }
      out.push_back(std::move(entry));
    }
    context.print_json({{"machine", machine_json()},
                        {"threads", team.num_threads()},
                        {"model", path},
                        {"load_seconds", samples_json(loaded.load_seconds)},
                        {"first_token_seconds", samples_json(loaded.first_token_seconds)},
                        {"peak_resident_bytes", peak},
                        {"rows", out}});
    return 0;
  }
  write_out(fmt::format("{}\n{} threads (measured)\n", machine_line(), team.num_threads()));
  const auto milliseconds = [](std::vector<double> seconds) {
    std::ranges::for_each(seconds, [](double& value) { value *= 1e3; });
    return seconds;
  };
  write_out(sample_line("load", milliseconds(loaded.load_seconds), "ms"));
  write_out(sample_line("first token", milliseconds(loaded.first_token_seconds), "ms"));
  for (const OfflineRow& row : rows) {
    write_out(sample_line(row.test, row.samples, row.unit,
                          row.relative > 0 ? fmt::format("  v = {:.2f}", row.relative) : ""));
  }
  write_out(fmt::format("{:<14} {:.1f} MB\n", "peak resident", static_cast<double>(peak) / 1e6));
  return 0;
}

// The options that a measurement takes, of those of the command; empty for an unknown one.
std::vector<std::string_view> options_of(std::string_view what) {
  if (what == "kernels") {
    return {"schemes", "rows", "shape", "weight-bytes", "repeat", "threads", "isa"};
  }
  if (what == "attention") {
    return {"heads", "depth", "rows", "kv", "weight-bytes", "repeat", "threads", "isa"};
  }
  if (what == "offline") {
    return joined({"tests", "repeat"}, model_options());
  }
  if (what == "serve") {
    return bench_serve_options();
  }
  return {};
}

// One that says nothing about the measurement would be ignored.
Status refuse_foreign(const CommandContext& context, const std::string& what) {
  const std::vector<std::string_view> taken = options_of(what);
  for (const std::string_view name : context.command().options) {
    if (context.settings().origin(name) == options::Origin::kFlag &&
        std::ranges::find(taken, name) == taken.end()) {
      return fail(ErrorCode::kInvalidArgument, "--{}: bench {} does not take it", name, what);
    }
  }
  return {};
}

Result<int> run_bench(CommandContext& context) {
  const options::Settings& settings = context.settings();
  const std::string what = context.argument(0);
  const bool has_model = context.arguments().size() > 1;
  const bool known = what == "serve" || (what == "offline" && has_model) ||
                     ((what == "kernels" || what == "attention") && !has_model);
  if (!known) {
    return fail(ErrorCode::kInvalidArgument,
                "cannot bench '{}'{}; there are: trine bench kernels, trine bench attention, "
                "trine bench offline MODEL, trine bench serve",
                what, has_model ? " with a model" : " without a model");
  }
  TRINE_TRY(refuse_foreign(context, what));
  if (what == "serve") {
    return bench_serve(context);
  }
  TRINE_TRY(apply_isa(settings));
  TRINE_TRY_ASSIGN(const auto team,
                   ThreadTeam::create(static_cast<int>(settings.integer("threads"))));
  if (what == "kernels") {
    return run_kernels(context, *team);
  }
  return what == "attention" ? run_attention(context, *team) : run_offline(context, *team);
}

}  // namespace

extern const Command kBenchCommand;
const Command kBenchCommand = {
    .name = "bench",
    .group = "verify",
    .summary = "Measure kernels, a model or a server",
    .positionals = {{.name = "WHAT", .help = "kernels, attention, offline or serve"},
                    {.name = "MODEL",
                     .help = "the model of offline; of serve, its name in requests",
                     .required = false}},
    .options = joined(
        joined({"schemes", "rows", "shape", "weight-bytes", "heads", "depth", "tests", "repeat"},
               model_options()),
        bench_serve_options()),
    .details =
        "kernels: multiplies random packed weights with M rows of activations, and right beside "
        "each\n"
        "measurement reads the same bytes and runs int8 products on registers alone, on the same "
        "threads.\n"
        "Shares are medians of paired ratios.\n"
        "\n"
        "attention: M rows attend to --depth tokens, beside a plain read of as many bytes, F16 and "
        "INT8 keys and\n"
        "values in turn (--kv: that type alone); 1, 5 and 9 rows unless --rows says otherwise.\n"
        "\n"
        "offline MODEL: the load, then each entry of --tests. pp512 is a prefill of 512 tokens, "
        "tg128 the\n"
        "decoding of 128, with @DEPTH behind that many tokens; pass is one pass over 1 to 17 rows "
        "in turn, with\n"
        "v(m) = time / time of one row; batch is 1 to 32 sequences that decode together; passN and "
        "batchN are\n"
        "single ones; load is the load and the first token alone.\n"
        "\n"
        "serve [NAME]: sends streamed requests to any OpenAI-compatible server at --base-url, by "
        "default to the\n"
        "first model it lists: open loop with --request-rate, replay of --dataset, or closed loop "
        "with --clients.\n"
        "Latencies count from the scheduled arrival, tokens by the server's usage. A run that the "
        "generator could\n"
        "not keep up with is void: exit status 6. The key comes from TRINE_API_KEY or "
        "--api-key-file. See\n"
        "docs/benchmarks.md.",
    .run = run_bench,
};

}  // namespace trine::app
