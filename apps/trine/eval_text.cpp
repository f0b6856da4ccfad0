// trine eval --text: perplexity and the distance to a reference.
#include <algorithm>
#include <filesystem>

#include "apps/trine/eval_run.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "eval/documents.h"
#include "eval/ref_cache.h"
#include "platform/thread_team.h"

namespace trine::app {

namespace {

Result<std::vector<eval::Document>> read_documents(const options::Settings& settings) {
  const std::string file = settings.text("text");
  TRINE_TRY_ASSIGN(const std::string content, read_file(file));
  return eval::parse_documents(content, file);
}

// The share of --text that is in the texts of --calib.
Result<double> leaked_share(const CommandContext& context,
                            const std::vector<eval::Document>& documents,
                            const eval::LeakageIndex* leaks) {
  if (leaks == nullptr) {
    return 0.0;
  }
  std::string all;
  for (const eval::Document& document : documents) {
    all += document.text + document.messages + "\n";
  }
  const double share = leaks->share(all);
  if (share >= eval::kLeakShare && !context.settings().flag("allow-leaks")) {
    return fail(ErrorCode::kInvalidArgument,
                "--text {}: {:.0f} % of it is in the texts of --calib; judge on texts that the "
                "model has not seen, or give --allow-leaks",
                context.settings().text("text"), share * 100.0);
  }
  return share;
}

// What a model is, without the work of packing its weights.
Result<std::shared_ptr<const Model>> peek(const EvalSide& side) {
  Model::LoadOptions options = side.load;
  options.activations = Model::LoadOptions::Activations::kF32;
  return Model::load(side.path, options);
}

// Everything that decides which rows are scored.
struct TextPlan {
  eval::TokenText text;
  eval::WindowPlan windows;
  eval::TextOptions options;
};

Result<TextPlan> plan_text(const CommandContext& context, const EvalSides& sides,
                           const std::vector<eval::Document>& documents) {
  const options::Settings& settings = context.settings();
  const std::string file = settings.text("text");
  TRINE_TRY_ASSIGN(const auto model, peek(sides.model));
  std::int32_t rows = model->config().vocab_size;
  std::int32_t model_context = model->config().context_length;
  if (sides.reference.has_value()) {
    TRINE_TRY_ASSIGN(const auto reference, peek(*sides.reference));
    rows = std::min(rows, reference->config().vocab_size);
    model_context = std::min(model_context, reference->config().context_length);
  }
  if (sides.prefill.has_value()) {
    if (settings.has("stride")) {
      return fail(ErrorCode::kInvalidArgument,
                  "--prefill reads the first half of each window and needs windows that do not "
                  "overlap; leave --stride out");
    }
    TRINE_TRY_ASSIGN(const auto prefill, peek(*sides.prefill));
    TRINE_TRY(eval::check_shares_cache(*model, *prefill, sides.model.kv));
  }
  TextPlan out;
  TRINE_TRY_ASSIGN(const auto tokens,
                   eval::encode_documents(documents, file, *sides.model.text, model->config()));
  TRINE_TRY_ASSIGN(const auto tokenizer, sides.model.text->tokenizer());
  TRINE_TRY_ASSIGN(out.text, eval::join_documents(tokens, *tokenizer, rows));
  const std::int64_t stride = settings.maybe_integer("stride").value_or(0);
  TRINE_TRY_ASSIGN(
      out.windows,
      eval::plan_windows(out.text,
                         static_cast<std::int32_t>(settings.maybe_integer("ctx").value_or(0)),
                         model_context, static_cast<std::int32_t>(stride),
                         settings.maybe_integer("windows").value_or(0)));
  out.options.seed = settings.maybe_unsigned("seed").value_or(1);
  out.options.greedy_prompts = static_cast<std::int32_t>(settings.integer("greedy-prompts"));
  out.options.greedy_tokens = static_cast<std::int32_t>(settings.integer("greedy-tokens"));
  return out;
}

Result<std::unique_ptr<eval::ModelSource>> model_source(const EvalSide& side, const TextPlan& plan,
                                                        const std::optional<EvalSide>& prefill,
                                                        ops::Context& ops) {
  TRINE_TRY_ASSIGN(auto model, Model::load(side.path, side.load));
  eval::ModelSource::Options options{
      .kv_dtype = side.kv, .context = plan.windows.context, .num_ids = plan.text.num_ids};
  if (prefill.has_value()) {
    TRINE_TRY_ASSIGN(options.prefill, Model::load(prefill->path, prefill->load));
  }
  return eval::ModelSource::create(std::move(model), ops, options);
}

// The rows of --ref-cache, computed first where the file is not there.
Result<std::unique_ptr<eval::LogitSource>> cached_reference(const CommandContext& context,
                                                            const EvalSide& side,
                                                            const TextPlan& plan,
                                                            ops::Context& ops) {
  const options::Settings& settings = context.settings();
  const std::string file = settings.text("ref-cache");
  TRINE_TRY_ASSIGN(std::string hash, eval::fingerprint(side.path, &interrupt_flag()));
  const eval::RefCacheKey key{.model_hash = std::move(hash),
                              .settings = side.settings(),
                              .protocol = eval::protocol(plan.text, plan.windows),
                              .text_hash = plan.text.hash,
                              .num_ids = plan.text.num_ids,
                              .num_rows = plan.windows.num_scored(),
                              .greedy = eval::greedy_protocol(plan.windows, plan.options),
                              .type = settings.text("ref-cache-type") == "f16"
                                          ? eval::RefCacheType::kF16
                                          : eval::RefCacheType::kF32};
  if (std::error_code error; !std::filesystem::exists(file, error)) {
    context.note(fmt::format("computing the reference's logits once: {}", file));
    TRINE_TRY_ASSIGN(const auto source, model_source(side, plan, std::nullopt, ops));
    TRINE_TRY(eval::write_ref_cache(file, key, plan.text, plan.windows, *source,
                                    eval::greedy_prompts(plan.text, plan.windows, plan.options),
                                    eval::greedy_tokens(plan.windows, plan.options),
                                    EvalProgress(context, "reference", "tokens", key.num_rows)));
  }
  TRINE_TRY_ASSIGN(auto out, eval::RefCacheSource::open(file, key));
  return std::unique_ptr<eval::LogitSource>(std::move(out));
}

}  // namespace

Result<TextReport> run_eval_text(const CommandContext& context, const EvalSides& sides,
                                 const eval::LeakageIndex* leaks) {
  const options::Settings& settings = context.settings();
  TextReport out;
  TRINE_TRY_ASSIGN(const auto documents, read_documents(settings));
  TRINE_TRY_ASSIGN(out.leaked, leaked_share(context, documents, leaks));
  TRINE_TRY_ASSIGN(TextPlan plan, plan_text(context, sides, documents));
  TRINE_TRY_ASSIGN(const auto team,
                   ThreadTeam::create(static_cast<int>(settings.integer("threads"))));
  ops::Context ops(*team);
  std::unique_ptr<eval::LogitSource> reference;
  if (sides.reference.has_value() && settings.has("ref-cache")) {
    TRINE_TRY_ASSIGN(reference, cached_reference(context, *sides.reference, plan, ops));
  } else if (sides.reference.has_value()) {
    TRINE_TRY_ASSIGN(reference, model_source(*sides.reference, plan, std::nullopt, ops));
  }
  TRINE_TRY_ASSIGN(const auto candidate, model_source(sides.model, plan, sides.prefill, ops));
  context.note(fmt::format("text: {} windows of {} tokens, {} tokens scored",
                           plan.windows.windows.size(), plan.windows.context,
                           plan.windows.num_scored()));
  plan.options.progress = EvalProgress(context, "text", "tokens", plan.windows.num_scored());
  TRINE_TRY_ASSIGN(out.result, eval::evaluate_text(plan.text, plan.windows, *candidate,
                                                   reference.get(), *team, plan.options));
  out.protocol = fmt::format("{} | model: {}", out.result.protocol, sides.model.settings());
  if (sides.prefill.has_value()) {
    out.protocol += fmt::format(" | prefill: {}", sides.prefill->settings());
  }
  if (sides.reference.has_value()) {
    out.protocol += fmt::format(" | reference: {}", sides.reference->settings());
    out.greedy_protocol = eval::greedy_protocol(plan.windows, plan.options);
  }
  return out;
}

}  // namespace trine::app
