// trine verify: checks that the product's promises hold for the user's model on the user's machine.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/verify_invariance.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kLongestMade =
    160;  // several pages and chunks, still quick on a large model

// Random ids of random lengths: invariance is about arithmetic, not about language.
std::vector<std::vector<std::int32_t>> make_prompts(std::int64_t count, std::uint64_t seed,
                                                    const ModelConfig& config) {
  const auto longest = static_cast<std::uint64_t>(std::min(kLongestMade, config.context_length));
  const auto vocab = static_cast<std::uint64_t>(config.vocab_size);
  std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto draw = [&](std::uint32_t index) {
      const auto block = philox(seed, i, RngPurpose::kTest, index);
      return std::uint64_t{block[0]} << 32 | block[1];
    };
    out[i].resize(1 + draw(0) % longest);
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      out[i][t] = static_cast<std::int32_t>(draw(static_cast<std::uint32_t>(t + 1)) % vocab);
    }
  }
  return out;
}

// {"ids": [...]} or {"text": "..."} a line.
Result<std::vector<std::vector<std::int32_t>>> read_prompts(const std::string& file,
                                                            const std::string& model_file) {
  std::vector<std::vector<std::int32_t>> out;
  std::optional<ModelText> text;
  const auto read_line = [&](std::string_view line) -> Status {
    auto value = parse_json(line);
    if (!value.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "{}", value.error().message);
    }
    if (value->is_object() && value->contains("ids")) {
      TRINE_TRY_ASSIGN(std::vector<std::int32_t> ids, parse_ids((*value)["ids"].dump(), "\"ids\""));
      out.push_back(std::move(ids));
    } else if (value->is_object() && value->contains("text") && (*value)["text"].is_string()) {
      if (!text.has_value()) {
        TRINE_TRY_ASSIGN(text, ModelText::load(model_file));
      }
      TRINE_TRY_ASSIGN(const auto tokenizer, text->tokenizer());
      TRINE_TRY_ASSIGN(
          std::vector<std::int32_t> ids,
          tokenizer->encode((*value)["text"].get_ref<const std::string&>(), text::EncodeOptions{}));
      out.push_back(std::move(ids));
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "a JSON object with \"text\" or \"ids\" is expected");
    }
    if (out.back().empty()) {
      return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
    }
    return {};
  };
  TRINE_TRY(for_each_line(file, read_line));
  if (out.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: no prompts", file);
  }
  return out;
}

Json report_json(const InvarianceReport& report) {
  Json out = {{"equal", !report.difference.has_value()},
              {"seed", report.seed},
              {"rows", report.num_rows},
              {"values", report.num_values},
              {"permutations", report.permutations}};
  if (report.difference.has_value()) {
    const InvarianceDifference& d = *report.difference;
    out["difference"] = {{"permutation", d.permutation},
                         {"sequence", d.sequence},
                         {"position", d.position},
                         {"token", d.token},
                         {"expected", d.expected},
                         {"got", d.got},
                         {"different_values", d.num_different}};
  }
  return out;
}

Result<int> run_verify(CommandContext& context) {
  const options::Settings& settings = context.settings();
  TRINE_TRY(apply_isa(settings));
  TRINE_TRY_ASSIGN(const std::string path, model_path(settings, context.argument(1)));
  TRINE_TRY_ASSIGN(const auto model, Model::load(path, load_options(settings)));
  InvarianceOptions options;
  options.seed = settings.maybe_unsigned("seed").value_or(1);
  options.num_mixed = static_cast<int>(settings.integer("mixtures"));
  options.max_threads = static_cast<int>(settings.integer("threads"));
  options.kv_dtype = kv_dtype(settings);
  if (settings.has("jsonl") && settings.has("prompts")) {
    return fail(ErrorCode::kInvalidArgument, "--prompts and --jsonl are given; give one of them");
  }
  if (settings.has("jsonl")) {
    TRINE_TRY_ASSIGN(options.prompts, read_prompts(settings.text("jsonl"), path));
  } else if (settings.has("prompts")) {
    options.prompts = make_prompts(settings.integer("prompts"), options.seed, model->config());
  }
  options.adds_window_prompt = !settings.has("jsonl");
  options.cancel = &interrupt_flag();
  options.progress = [&](std::string_view permutation, bool equal) {
    context.note(fmt::format("{}  {}", equal ? "equal    " : "DIFFERENT", permutation));
  };
  TRINE_TRY_ASSIGN(const InvarianceReport report, verify_invariance(*model, options));
  if (context.json()) {
    context.print_json(report_json(report));
  } else if (report.difference.has_value()) {
    write_out(fmt::format("NOT invariant: {}\n", describe(*report.difference)));
  } else {
    write_out(
        fmt::format("invariant: {} permutations, {} rows and {} logits equal bit for bit "
                    "(measured)\n",
                    report.permutations.size(), report.num_rows, report.num_values));
  }
  return report.difference.has_value() ? 1 : 0;
}

}  // namespace

extern const Command kVerifyCommand;
const Command kVerifyCommand = {
    .name = "verify",
    .group = "verify",
    .summary =
        "Prove that a model answers the same in every batch, chunk, thread count and page layout",
    .positionals = {{.name = "invariance", .help = "the promise to check"}, kModelArgument},
    .options = joined({"prompts", "jsonl", "mixtures", "seed"}, model_options()),
    .details =
        "Runs every prompt alone, then again in permutations of batch, chunking, threads, page "
        "placement, shared\n"
        "prefixes and instruction sets, and compares every logit bit by bit. --threads is the "
        "largest team tried.\n"
        "Prompts are random tokens, one of them longer than a sliding window of up to 1024 tokens, "
        "unless --jsonl\n"
        "gives {\"text\": ...} or {\"ids\": [...]} lines.\n"
        "Status 1 when a bit differs.",
    .run = run_verify,
};

}  // namespace trine::app
