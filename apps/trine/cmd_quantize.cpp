// trine quantize: makes a smaller model of a full-precision one.
#include <charconv>
#include <chrono>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "apps/trine/quantize_report.h"
#include "compress/quantize_model.h"
#include "format/open.h"
#include "format/output_file.h"

namespace trine::app {

namespace {

QuantMethod method_of(std::string_view name) {
  for (const QuantMethod method : {QuantMethod::kRtn, QuantMethod::kAwq, QuantMethod::kAwqGptq,
                                   QuantMethod::kSmoothQuant, QuantMethod::kFp8}) {
    if (method_name(method) == name) {
      return method;
    }
  }
  return QuantMethod::kGptq;
}

Result<OutputFormat> format_of(const options::Settings& settings, const std::string& source) {
  if (!settings.has("format")) {
    TRINE_TRY_ASSIGN(const CheckpointKind kind, detect_checkpoint(source));
    const bool gguf = kind == CheckpointKind::kGguf || settings.text("out").ends_with(".gguf");
    return gguf ? OutputFormat::kGguf : OutputFormat::kCompressedTensors;
  }
  const std::string name = settings.text("format");
  for (const OutputFormat format :
       {OutputFormat::kGptq, OutputFormat::kAwq, OutputFormat::kCompressedTensors}) {
    if (format_name(format) == name) {
      return format;
    }
  }
  return OutputFormat::kGguf;
}

// The numbers of a list option, or of one entry with commas.
Result<std::vector<double>> numbers(const options::Settings& settings, std::string_view name) {
  std::vector<double> out;
  for (const std::string& entry : settings.list(name)) {
    std::string_view rest = entry;
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      const std::string_view text = rest.substr(0, comma);
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) ||
          value > 1e9) {
        return fail(ErrorCode::kInvalidArgument, "--{} {}: \"{}\" is no number of 0 or more", name,
                    entry, text);
      }
      out.push_back(value);
      more = comma != std::string_view::npos;
      rest.remove_prefix(more ? comma + 1 : rest.size());
    }
  }
  return out;
}

bool given(const options::Settings& settings, std::string_view name) {
  return settings.origin(name) != options::Origin::kDefault;
}

Result<QuantScheme> scheme_of(const options::Settings& settings, const QuantizeOptions& options) {
  if (options.method == QuantMethod::kFp8 || options.method == QuantMethod::kSmoothQuant) {
    const bool fp8 = options.method == QuantMethod::kFp8;
    for (const char* name : {"bits", "group", "sym"}) {
      if (given(settings, name)) {
        return fail(ErrorCode::kInvalidArgument,
                    "--{} does not go with --method {}, which is 8 bits with a scale per row", name,
                    method_name(options.method));
      }
    }
    return QuantScheme{8, 0, fp8 ? GridKind::kFloat8 : GridKind::kSymmetric};
  }
  QuantScheme scheme;
  scheme.bits = settings.has("bits") ? std::stoi(settings.text("bits")) : 4;
  scheme.group = options.format == OutputFormat::kGguf ? 32 : 128;
  if (settings.has("group")) {
    const std::string group = settings.text("group");
    scheme.group = group == "row" ? 0 : std::stoi(group);
  }
  scheme.kind = settings.flag("sym") ? GridKind::kSymmetric : GridKind::kZeroPoint;
  return scheme;
}

Result<QuantizeOptions> quantize_options(const options::Settings& settings,
                                         const std::string& source) {
  QuantizeOptions out;
  out.method = method_of(settings.text("method"));
  TRINE_TRY_ASSIGN(out.format, format_of(settings, source));
  TRINE_TRY_ASSIGN(const QuantScheme scheme, scheme_of(settings, out));
  for (const std::string& text : settings.list("override")) {
    TRINE_TRY_ASSIGN(ModuleRule rule, parse_rule(text, scheme));
    rule.scheme = format_scheme(out.format, rule.scheme);
    out.rules.push_back(std::move(rule));
  }
  out.scheme = format_scheme(out.format, scheme);
  out.head_bits = settings.has("head-bits") ? std::stoi(settings.text("head-bits")) : 0;
  out.embedding_bits =
      settings.has("embedding-bits") ? std::stoi(settings.text("embedding-bits")) : 0;
  out.clip = given(settings, "clip") ? settings.flag("clip") : out.method == QuantMethod::kAwq;
  out.damping = settings.number("damping");
  out.act_order = settings.flag("act-order");
  out.true_sequential = settings.flag("true-sequential");
  out.smooth_limit = settings.number("smooth-limit");
  out.requantize = settings.flag("requantize");
  TRINE_TRY_ASSIGN(const std::vector<double> alphas, numbers(settings, "alphas"));
  out.alphas.clear();
  for (const double alpha : alphas) {
    if (alpha > 1.0) {
      return fail(ErrorCode::kInvalidArgument, "--alphas {}: from 0 to 1", alpha);
    }
    out.alphas.push_back(static_cast<float>(alpha));
  }
  return out;
}

// A line for each block on a terminal that is overwritten, else now and then.
class ProgressLine {
 public:
  explicit ProgressLine(const CommandContext& context)
      : context_(context), terminal_(::isatty(STDERR_FILENO) == 1) {}

  void show(const QuantizeProgress& progress) {
    if (context_.quiet()) {
      return;
    }
    const auto now = Clock::now();
    if (progress.stage != stage_) {
      stage_ = progress.stage;
      start_ = now;
      skipped_ = 0;
      end();
    }
    skipped_ += progress.resumed ? 1 : 0;
    const bool last = progress.done == progress.total;
    if (!terminal_ && !last && now - shown_ < std::chrono::seconds(5)) {
      return;
    }
    shown_ = now;
    std::string line = fmt::format("{} {}/{}",
                                   stage_ == QuantizeStage::kBlocks       ? "block"
                                   : stage_ == QuantizeStage::kConversion ? "converting, bytes"
                                                                          : "writing tensor",
                                   progress.done, progress.total);
    // What an earlier run did took no time and tells none.
    const std::int64_t worked = progress.done - skipped_;
    if (!last && worked > 0) {
      const double seconds = std::chrono::duration<double>(now - start_).count();
      line += fmt::format(", {:.0f} s, about {:.0f} s left", seconds,
                          seconds / static_cast<double>(worked) *
                              static_cast<double>(progress.total - progress.done));
    }
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n");
    std::fflush(stderr);
    open_ = terminal_;
  }

  void end() {
    if (open_) {
      fmt::print(stderr, "\n");
      open_ = false;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  const CommandContext& context_;
  bool terminal_;
  bool open_ = false;
  QuantizeStage stage_ = QuantizeStage::kConversion;
  std::int64_t skipped_ = 0;
  Clock::time_point start_, shown_;
};

Result<int> run_quantize(CommandContext& context) {
  const options::Settings& settings = context.settings();
  if (!settings.has("out")) {
    return fail(ErrorCode::kInvalidArgument,
                "missing --out; usage: trine quantize MODEL --out PATH [options]");
  }
  TRINE_TRY(apply_isa(settings));
  QuantizeRequest request;
  TRINE_TRY_ASSIGN(request.source, model_path(settings, context.argument(0)));
  request.out = settings.maybe_text("out").value_or("");
  TRINE_TRY_ASSIGN(request.options, quantize_options(settings, request.source));
  request.calibration.files = settings.list("calib");
  TRINE_TRY_ASSIGN(request.calibration.weights, numbers(settings, "calib-mix"));
  request.calibration.tokens = settings.maybe_integer("calib-tokens").value_or(0);
  request.calibration.window = static_cast<std::int32_t>(settings.integer("calib-window"));
  request.calibration.seed = settings.maybe_unsigned("seed").value_or(1);
  request.threads = static_cast<int>(settings.integer("threads"));
  request.dry_run = settings.flag("dry-run");
  request.restart = settings.flag("restart");
  request.replace = settings.flag("force");
  request.cancel = &interrupt_flag();
  ProgressLine line(context);
  request.progress = [&](const QuantizeProgress& progress) { line.show(progress); };
  request.warn = [&](std::string_view text) {
    line.end();
    context.note(fmt::format("warning: {}", text));
  };
  auto report = quantize_model(request);
  line.end();
  if (!report.has_value()) {
    return tl::unexpected(std::move(report).error());
  }
  if (settings.has("html") && !request.dry_run) {
    TRINE_TRY_ASSIGN(OutputFile page, OutputFile::create(settings.text("html")));
    TRINE_TRY(page.write(std::as_bytes(std::span<const char>(quantize_html(*report)))));
    TRINE_TRY(page.commit());
  }
  if (context.json()) {
    context.print_json(quantize_json(*report, request.dry_run));
  } else {
    write_out(quantize_text(*report, request.dry_run));
  }
  return 0;
}

}  // namespace

extern const Command kQuantizeCommand;
const Command kQuantizeCommand = {
    .name = "quantize",
    .group = "quantize",
    .summary = "Make a smaller model of one in full precision, and report what it cost",
    .positionals = {{.name = "MODEL",
                     .help = "a model in F16, BF16 or F32: a .gguf file, or a directory with "
                             "safetensors"}},
    .options = with_store_options({"out",          "method",          "bits",   "group",
                                   "sym",          "format",          "calib",  "calib-mix",
                                   "calib-tokens", "calib-window",    "seed",   "override",
                                   "head-bits",    "embedding-bits",  "clip",   "damping",
                                   "act-order",    "true-sequential", "alphas", "smooth-limit",
                                   "requantize",   "restart",         "force",  "dry-run",
                                   "html",         "threads",         "isa"}),
    .details =
        "Layers are calibrated on the texts of --calib, which should be like those the model will "
        "see. Each block is\n"
        "quantized with the inputs that the quantized blocks before it make, so memory holds one "
        "block. An interrupted\n"
        "run goes on where it was when the same command is given again. The result is the same "
        "for any --threads.\n"
        "docs/quantization.md explains methods, formats and how to judge the result (trine eval).",
    .run = run_quantize,
};

}  // namespace trine::app
