// trine convert: a Hugging Face directory as a GGUF file.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/models.h"
#include "convert/to_gguf.h"
#include "hub/files.h"
#include "hub/progress.h"

namespace trine::app {

namespace {

std::unique_ptr<hub::ProgressSink> progress_of(const CommandContext& context) {
  if (context.quiet()) {
    return hub::make_progress(hub::ProgressStyle::kQuiet, stderr);
  }
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return hub::make_progress(terminal ? hub::ProgressStyle::kBar : hub::ProgressStyle::kLines,
                            stderr);
}

std::optional<DType> type_of(const options::Settings& settings) {
  const std::string name = settings.maybe_text("type").value_or("");
  if (name.empty()) {
    return std::nullopt;
  }
  return name == "f32"    ? DType::kF32
         : name == "f16"  ? DType::kF16
         : name == "bf16" ? DType::kBF16
                          : DType::kQ8_0;
}

Result<int> run_convert(CommandContext& context) {
  const options::Settings& settings = context.settings();
  if (!settings.has("out")) {
    return fail(ErrorCode::kInvalidArgument,
                "missing --out; usage: trine convert MODEL --out FILE.gguf");
  }
  ConvertRequest request;
  TRINE_TRY_ASSIGN(request.source, model_path(settings, context.argument(0)));
  request.out = settings.text("out");
  request.type = type_of(settings);
  request.max_context = static_cast<std::int32_t>(settings.maybe_integer("ctx").value_or(0));
  request.replace = settings.flag("force");
  const std::unique_ptr<hub::ProgressSink> sink = progress_of(context);
  bool planned = false;
  request.progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    if (!planned) {
      sink->plan(request.out, 1, total);
      planned = true;
    }
    sink->update(done);
    if (interrupted()) {
      return fail(ErrorCode::kCancelled, "interrupted after {} of {}, nothing was written",
                  hub::format_bytes(done), hub::format_bytes(total));
    }
    return {};
  };
  const auto start = std::chrono::steady_clock::now();
  const auto converted = convert_to_gguf(request);
  sink->finish();
  if (!converted.has_value()) {
    return tl::unexpected(converted.error());
  }
  const ConvertReport& report = *converted;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (const std::string& note : report.notes) {
    context.note(fmt::format("note: {}", note));
  }
  if (context.json()) {
    context.print_json({{"file", request.out},
                        {"bytes", report.bytes},
                        {"architecture", report.architecture},
                        {"type", dtype_info(report.type).name},
                        {"tensors", report.tensors},
                        {"parameters", report.params},
                        {"tokenizer", report.has_tokenizer},
                        {"notes", report.notes},
                        {"seconds", took.count()}});
  } else {
    write_out(fmt::format("{}: {}, {} tensors, {}, {}\n", request.out, report.architecture,
                          report.tensors, dtype_info(report.type).name,
                          hub::format_bytes(report.bytes)));
  }
  return 0;
}

}  // namespace

extern const Command kConvertCommand;
const Command kConvertCommand = {
    .name = "convert",
    .group = "quantize",
    .summary = "Write a directory with safetensors as a GGUF file",
    .positionals = {{.name = "MODEL",
                     .help = "a directory with safetensors in F16, BF16 or F32, or the name of a "
                             "pulled one"}},
    .options = with_store_options({"out", "type", "ctx", "force"}),
    .details =
        "The file has names, row order and keys as llama.cpp reads them, with tokenizer, chat "
        "templates and the authors'\n"
        "sampling. Vectors and routers are F32 in every type. What a GGUF file cannot say is "
        "refused by name, what readers\n"
        "may do differently is noted. --ctx writes a smaller context. Memory holds a megabyte of "
        "weights; the file appears\n"
        "complete or not at all.",
    .run = run_convert,
};

}  // namespace trine::app
