// trine logits: the raw output of the model for given tokens, for comparison with other engines.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "apps/trine/npy.h"
#include "format/output_file.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "ops/ops.h"
#include "platform/thread_team.h"

namespace trine::app {

namespace {

// Rows of one step: few enough that their logits stay small for any vocabulary.
std::int32_t step_tokens(std::int32_t vocab_size) {
  constexpr std::int64_t kMaxFloats = std::int64_t{1} << 24;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(kMaxFloats / vocab_size, 1, 256));
}

Status write_rows(const Model& model, const options::Settings& settings,
                  std::span<const std::int32_t> tokens, bool last_only, OutputFile& out) {
  TRINE_TRY_ASSIGN(const auto team,
                   ThreadTeam::create(static_cast<int>(settings.integer("threads"))));
  ops::Context ops(*team);
  const auto num_tokens = static_cast<std::int32_t>(tokens.size());
  TRINE_TRY_ASSIGN(const auto pool, PagePool::create(model.kv_geometry(kv_dtype(settings)),
                                                     (num_tokens + kPageTokens - 1) / kPageTokens));
  KvSequence sequence(*pool);
  const auto workspace = model.make_workspace();
  std::vector<float> logits;
  const std::int32_t step = step_tokens(model.config().vocab_size);
  for (std::int32_t done = 0; done < num_tokens;) {
    if (interrupted()) {
      return fail(ErrorCode::kCancelled, "interrupted after {} of {} tokens, nothing was written",
                  done, num_tokens);
    }
    const std::int32_t count = std::min(step, num_tokens - done);
    TRINE_TRY(sequence.reserve(done + count));
    Span span;
    span.sequence = &sequence;
    span.tokens = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    if (last_only) {
      span.logits = done + count == num_tokens ? Span::Logits::kLast : Span::Logits::kNone;
    } else {
      span.logits = Span::Logits::kAll;
    }
    TRINE_TRY(model.forward(ops, std::span<const Span>(&span, 1), *workspace, logits));
    sequence.commit(count);
    done += count;
    if (span.logits != Span::Logits::kNone) {
      TRINE_TRY(out.write(std::as_bytes(std::span<const float>(logits))));
    }
  }
  return {};
}

Result<int> run_logits(CommandContext& context) {
  const options::Settings& settings = context.settings();
  if (!settings.has("tokens") || !settings.has("out")) {
    return fail(ErrorCode::kInvalidArgument,
                "missing --{}; usage: trine logits MODEL --tokens IDS --out FILE",
                settings.has("tokens") ? "out" : "tokens");
  }
  TRINE_TRY_ASSIGN(const std::vector<std::int32_t> tokens,
                   ids_of_argument(settings.text("tokens"), "--tokens"));
  if (tokens.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--tokens: no token ids given");
  }
  const bool to_stdout = settings.text("out") == "-";
  if (to_stdout && context.json()) {
    return fail(ErrorCode::kInvalidArgument,
                "--out - and --json both write to standard output; give one of them");
  }
  TRINE_TRY(apply_isa(settings));
  TRINE_TRY_ASSIGN(const std::string path, model_path(settings, context.argument(0)));
  TRINE_TRY_ASSIGN(const auto model, Model::load(path, load_options(settings)));
  const ModelConfig& config = model->config();
  if (tokens.size() > static_cast<std::size_t>(config.context_length)) {
    return fail(ErrorCode::kExhausted, "{} tokens do not fit the context of {} tokens",
                tokens.size(), config.context_length);
  }
  const bool last_only = settings.text("positions") == "last";
  const std::int64_t rows = last_only ? 1 : static_cast<std::int64_t>(tokens.size());
  TRINE_TRY_ASSIGN(OutputFile out, to_stdout ? OutputFile::standard_output()
                                             : OutputFile::create(settings.text("out")));
  const std::string header = npy_header(rows, config.vocab_size);
  TRINE_TRY(out.write(std::as_bytes(std::span<const char>(header))));
  TRINE_TRY(write_rows(*model, settings, tokens, last_only, out));
  TRINE_TRY(out.commit());
  if (context.json()) {
    context.print_json(
        {{"file", out.path()}, {"shape", {rows, config.vocab_size}}, {"dtype", "float32"}});
  } else if (to_stdout) {
    context.note(fmt::format("{} x {} float32", rows, config.vocab_size));
  } else {
    write_out(fmt::format("{}: {} x {} float32\n", out.path(), rows, config.vocab_size));
  }
  return 0;
}

}  // namespace

extern const Command kLogitsCommand;
const Command kLogitsCommand = {
    .name = "logits",
    .group = "inspect",
    .summary = "Raw logits of given tokens, as a NumPy file",
    .positionals = {kModelArgument},
    .options = joined({"tokens", "out", "positions"}, model_options()),
    .details =
        "Row i holds the logits after token i. Needs no tokenizer; the ids are taken as they are, "
        "without adding a\n"
        "begin token. The file appears complete or not at all; --out - writes to standard output.",
    .run = run_logits,
};

}  // namespace trine::app
