// trine eval: judges a model on the user's text and tasks, beside a reference.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/eval_output.h"
#include "apps/trine/eval_run.h"
#include "apps/trine/model_args.h"
#include "eval/windows.h"
#include "format/output_file.h"

namespace trine::app {

namespace {

Result<EvalSide> open_side(const CommandContext& context, const std::string& name) {
  EvalSide out;
  out.name = name;
  out.load = load_options(context.settings());
  out.kv = kv_dtype(context.settings());
  TRINE_TRY_ASSIGN(out.path, model_path(context.settings(), name));
  TRINE_TRY_ASSIGN(ModelText text, ModelText::load(out.path));
  out.text = std::make_shared<const ModelText>(std::move(text));
  return out;
}

bool given(const options::Settings& settings, std::string_view name) {
  return settings.has(name) && settings.origin(name) != options::Origin::kDefault;
}

// Options that say nothing without the other one.
Status check_needs(const options::Settings& settings, bool has_reference) {
  struct Need {
    std::string_view option;
    std::string_view wanted;
  };

  constexpr Need kNeeds[] = {{"stride", "text"},
                             {"windows", "text"},
                             {"prefill", "text"},
                             {"ref-cache", "text"},
                             {"greedy-prompts", "text"},
                             {"greedy-tokens", "text"},
                             {"ref-cache-type", "ref-cache"},
                             {"max-kl", "text"},
                             {"max-ppl-delta", "text"},
                             {"min-accuracy", "tasks"}};
  for (const Need& need : kNeeds) {
    if (given(settings, need.option) && !settings.has(need.wanted)) {
      return fail(ErrorCode::kInvalidArgument, "--{} has no effect without --{}", need.option,
                  need.wanted);
    }
  }
  if (settings.has("prefill") && settings.has("tasks")) {
    return fail(ErrorCode::kInvalidArgument,
                "--prefill and --tasks: tasks are answered by one model; leave one of them out");
  }
  for (const std::string_view name :
       {"ref-cache", "greedy-prompts", "greedy-tokens", "max-kl", "max-ppl-delta"}) {
    if (given(settings, name) && !has_reference) {
      return fail(ErrorCode::kInvalidArgument,
                  "--{} needs something to compare with: --ref MODEL, or another --kv or "
                  "--activations than the reference's",
                  name);
    }
  }
  return {};
}

// The bounds that the user set, and whether they hold.
std::vector<EvalFloor> floors(const options::Settings& settings, const EvalReport& report) {
  std::vector<EvalFloor> out;
  if (const auto limit = settings.maybe_number("max-kl"); limit.has_value()) {
    const double kl = report.text->result.comparison->kl.mean;
    out.push_back({.option = "max-kl", .limit = *limit, .value = kl, .met = kl <= *limit});
  }
  if (const auto limit = settings.maybe_number("max-ppl-delta"); limit.has_value()) {
    const double change = report.text->result.comparison->ppl_change.value;
    out.push_back(
        {.option = "max-ppl-delta", .limit = *limit, .value = change, .met = change <= *limit});
  }
  if (const auto limit = settings.maybe_number("min-accuracy"); limit.has_value()) {
    const double score = report.tasks->report.all.accuracy.value;
    out.push_back(
        {.option = "min-accuracy", .limit = *limit, .value = score, .met = score >= *limit});
  }
  return out;
}

Status write_page(const std::string& path, const std::string& html) {
  TRINE_TRY_ASSIGN(OutputFile page, OutputFile::create(path));
  TRINE_TRY(page.write(std::as_bytes(std::span<const char>(html))));
  return page.commit();
}

Result<int> run_eval(CommandContext& context) {
  const options::Settings& settings = context.settings();
  if (!settings.has("text") && !settings.has("tasks")) {
    return fail(ErrorCode::kInvalidArgument,
                "missing --text or --tasks; usage: trine eval MODEL --text FILE [--ref MODEL]");
  }
  TRINE_TRY(apply_isa(settings));
  TRINE_TRY_ASSIGN(const EvalSides sides, eval_sides(context));
  TRINE_TRY_ASSIGN(const auto leaks, leakage_index(context, sides));
  EvalReport report;
  report.sides = &sides;
  if (settings.has("text")) {
    TRINE_TRY_ASSIGN(report.text, run_eval_text(context, sides, leaks.get()));
  }
  if (settings.has("tasks")) {
    TRINE_TRY_ASSIGN(report.tasks, run_eval_tasks(context, sides, leaks.get()));
  }
  report.floors = floors(settings, report);
  if (report.text.has_value() && report.text->result.comparison.has_value() &&
      report.tasks.has_value()) {
    const std::string warning = eval::hidden_change_warning(
        report.text->result.comparison->ppl_change.value, report.tasks->report.all);
    if (!warning.empty()) {
      report.warnings.push_back(warning);
      context.note("warning: " + warning);
    }
  }
  if (settings.has("html")) {
    TRINE_TRY(write_page(settings.text("html"), eval_html(report)));
  }
  if (context.json()) {
    context.print_json(eval_json(report));
  } else {
    write_out(eval_text(report));
  }
  constexpr int kFloorNotMet = 5;
  return std::all_of(report.floors.begin(), report.floors.end(),
                     [](const EvalFloor& floor) { return floor.met; })
             ? 0
             : kFloorNotMet;
}

}  // namespace

std::string_view kv_name(DType type) {
  return type == DType::kF32    ? "f32"
         : type == DType::kBF16 ? "bf16"
         : type == DType::kI8   ? "int8"
                                : "f16";
}

std::string EvalSide::settings() const {
  return fmt::format("kv={} activations={}", kv_name(kv),
                     load.activations == Model::LoadOptions::Activations::kF32 ? "f32" : "int8");
}

std::string EvalSides::mode() const {
  std::string out;
  const auto add = [&out](bool differs, std::string_view what) {
    if (differs && !out.empty()) {
      out += '+';
    }
    out += differs ? what : std::string_view();
  };
  if (reference.has_value()) {
    add(model.path != reference->path, "weights");
    add(model.kv != reference->kv, "kv");
    add(model.load.activations != reference->load.activations, "activations");
  }
  add(prefill.has_value(), "prefill");
  return out.empty() ? "none" : out;
}

Result<EvalSides> eval_sides(const CommandContext& context) {
  const options::Settings& settings = context.settings();
  EvalSides out;
  TRINE_TRY_ASSIGN(out.model, open_side(context, context.argument(0)));
  const DType reference_kv = kv_type(settings.text("ref-kv"));
  Model::LoadOptions reference_load = out.model.load;
  if (const auto name = settings.maybe_text("ref-activations"); name.has_value()) {
    reference_load.activations = activations_type(*name);
  }
  const bool has_reference = settings.has("ref") || settings.has("prefill") ||
                             given(settings, "ref-kv") || settings.has("ref-activations") ||
                             reference_kv != out.model.kv;
  TRINE_TRY(check_needs(settings, has_reference));
  if (has_reference) {
    if (settings.has("ref")) {
      TRINE_TRY_ASSIGN(out.reference, open_side(context, settings.text("ref")));
    } else {
      out.reference = out.model;
    }
    out.reference->kv = reference_kv;
    out.reference->load = reference_load;
  }
  if (settings.has("prefill")) {
    TRINE_TRY_ASSIGN(out.prefill, open_side(context, settings.text("prefill")));
  }
  const auto same_vocabulary = [&](const std::optional<EvalSide>& other,
                                   std::string_view option) -> Status {
    if (!other.has_value() || other->path == out.model.path) {
      return {};
    }
    TRINE_TRY_ASSIGN(const auto tokenizer, out.model.text->tokenizer());
    TRINE_TRY_ASSIGN(const auto theirs, other->text->tokenizer());
    return eval::check_same_vocabulary(*tokenizer, *theirs,
                                       fmt::format("--{} {}", option, other->name));
  };
  TRINE_TRY(same_vocabulary(out.reference, "ref"));
  TRINE_TRY(same_vocabulary(out.prefill, "prefill"));
  return out;
}

extern const Command kEvalCommand;
const Command kEvalCommand = {
    .name = "eval",
    .group = "verify",
    .summary = "Judge a model on your text and tasks, beside a reference",
    .positionals = {kModelArgument},
    .options =
        joined({"text", "ref", "ref-kv", "ref-activations", "prefill", "stride", "windows",
                "greedy-prompts", "greedy-tokens", "ref-cache", "ref-cache-type", "seed", "tasks",
                "calib", "allow-leaks", "max-kl", "max-ppl-delta", "min-accuracy", "html"},
               model_options()),
    .details =
        "--text gives perplexity and, beside a reference, the KL divergence of every position's "
        "law from it; --tasks\n"
        "answers and scores your tasks and pairs them with the reference's answers. The reference "
        "is --ref, or the same\n"
        "model with another --ref-kv or --ref-activations. --ctx is the length of the text's "
        "windows, 2048 or the\n"
        "model's context unless given. --calib names the calibration texts, in which no test may "
        "be. Status 5 when a\n"
        "bound (--max-kl, --max-ppl-delta, --min-accuracy) does not hold. docs/eval.md explains "
        "figures and files.",
    .run = run_eval,
};

}  // namespace trine::app
