// trine eval --tasks: answers, scores, pairs; and the look for tests in calibration texts.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/eval_run.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "base/json.h"
#include "compress/calibration_text.h"
#include "eval/provenance.h"
#include "hub/files.h"

namespace trine::app {

namespace {

constexpr std::size_t kShownLines = 5;

std::string sha256(std::string_view content) {
  hub::Sha256 hash;
  hash.update(content);
  return hash.finish();
}

bool knows(const eval::CalibrationOrigin& origin, const std::string& digest) {
  return std::any_of(origin.files.begin(), origin.files.end(),
                     [&](const auto& file) { return file.sha256 == digest; });
}

// A model that was calibrated on the test itself says nothing about anything.
Status check_not_calibrated_on(const CommandContext& context,
                               const eval::CalibrationOrigin& origin) {
  const options::Settings& settings = context.settings();
  for (const std::string_view option : {"text", "tasks"}) {
    if (!settings.has(option) || settings.flag("allow-leaks") || settings.text(option) == "-") {
      continue;
    }
    TRINE_TRY_ASSIGN(const std::string content, read_file(settings.text(option)));
    if (knows(origin, sha256(content))) {
      return fail(ErrorCode::kInvalidArgument,
                  "--{} {}: the model was calibrated on this file; judge on what it has not seen, "
                  "or give --allow-leaks",
                  option, settings.text(option));
    }
  }
  return {};
}

// What is compared with tests: a text, or the contents of a conversation.
std::string plain_text(const CalibrationText& item) {
  if (item.messages.empty()) {
    return item.text;
  }
  std::string out;
  if (const auto messages = parse_json(item.messages); messages.has_value()) {
    for (const auto& message : *messages) {
      if (message.is_object() && message.contains("content") && message["content"].is_string()) {
        out += message["content"].get<std::string>() + "\n";
      }
    }
  }
  return out;
}

Result<std::vector<bool>> find_leaks(const CommandContext& context,
                                     const std::vector<eval::Task>& tasks,
                                     const eval::LeakageIndex& leaks) {
  std::vector<bool> out;
  std::string lines;
  std::size_t count = 0;
  for (const eval::Task& task : tasks) {
    out.push_back(leaks.share(eval::asked_text(task)) >= eval::kLeakShare);
    if (out.back() && ++count <= kShownLines) {
      lines += fmt::format("{}{}", lines.empty() ? "" : ", ", task.line);
    }
  }
  if (count > 0 && !context.settings().flag("allow-leaks")) {
    return fail(ErrorCode::kInvalidArgument,
                "--tasks {}: {} of {} prompts are in the texts of --calib (lines {}{}); leave them "
                "out, or give --allow-leaks",
                context.settings().text("tasks"), count, tasks.size(), lines,
                count > kShownLines ? ", ..." : "");
  }
  return out;
}

Result<std::vector<eval::TaskAnswer>> answer(const CommandContext& context, const EvalSide& side,
                                             const std::vector<eval::Task>& tasks,
                                             const std::string& what) {
  const options::Settings& settings = context.settings();
  context.note(fmt::format("tasks: {} answers {} tasks", what, tasks.size()));
  TRINE_TRY_ASSIGN(const ModelBundle bundle, ModelBundle::load(side.path, side.load));
  eval::TaskRunOptions options;
  options.engine.num_threads = static_cast<int>(settings.integer("threads"));
  options.engine.kv_dtype = side.kv;
  options.engine.context_tokens = side.load.max_context;
  options.cancel = &interrupt_flag();
  options.progress =
      [progress = EvalProgress(context, what, "tasks", static_cast<std::int64_t>(tasks.size()))](
          std::int64_t done) mutable { progress(done); };
  return eval::run_tasks(tasks, settings.text("tasks"), bundle, options);
}

}  // namespace

EvalProgress::EvalProgress(const CommandContext& context, std::string what, std::string unit,
                           std::int64_t total)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      shown_(!context.quiet() && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

bool EvalProgress::operator()(std::int64_t done) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && (done == total_ || now - last_ > kPause)) {
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double left =
        done > 0 ? seconds * static_cast<double>(total_ - done) / static_cast<double>(done) : 0.0;
    const std::string line = fmt::format("\r{}: {} of {} {}, {:.0f} s left\x1b[K{}", what_, done,
                                         total_, unit_, left, done == total_ ? "\n" : "");
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }
  return !interrupted() && output_ok();
}

Result<std::unique_ptr<eval::LeakageIndex>> leakage_index(const CommandContext& context,
                                                          const EvalSides& sides) {
  TRINE_TRY_ASSIGN(const eval::CalibrationOrigin origin,
                   eval::calibration_origin(sides.model.path));
  TRINE_TRY(check_not_calibrated_on(context, origin));
  const std::vector<std::string> files = context.settings().list("calib");
  if (files.empty()) {
    return nullptr;
  }
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    TRINE_TRY_ASSIGN(const std::string content, read_file(file));
    if (!origin.files.empty() && !knows(origin, sha256(content))) {
      context.note(
          fmt::format("warning: --calib {} is none of the files that the model says it "
                      "was calibrated on",
                      file));
    }
    TRINE_TRY_ASSIGN(const auto items, parse_calibration(content, file));
    for (const CalibrationText& item : items) {
      texts.push_back(plain_text(item));
    }
  }
  for (const std::string& text : texts) {
    TRINE_TRY(check_text(text, "--calib"));
  }
  return std::make_unique<eval::LeakageIndex>(texts);
}

Result<TaskRun> run_eval_tasks(const CommandContext& context, const EvalSides& sides,
                               const eval::LeakageIndex* leaks) {
  const options::Settings& settings = context.settings();
  const std::string file = settings.text("tasks");
  TaskRun out;
  TRINE_TRY_ASSIGN(const std::string content, read_file(file));
  TRINE_TRY_ASSIGN(out.tasks, eval::parse_tasks(content, file));
  if (leaks != nullptr) {
    TRINE_TRY_ASSIGN(out.leaked, find_leaks(context, out.tasks, *leaks));
  }
  TRINE_TRY_ASSIGN(out.answers, answer(context, sides.model, out.tasks, "model"));
  if (sides.reference.has_value()) {
    TRINE_TRY_ASSIGN(out.reference, answer(context, *sides.reference, out.tasks, "reference"));
  }
  out.report = eval::report_tasks(out.tasks, out.answers, out.reference,
                                  settings.maybe_unsigned("seed").value_or(1));
  constexpr std::size_t kShownHash = 16;
  out.protocol =
      fmt::format("tasks={} file=sha256:{} decoding=greedy max_tokens={} unless stated | model: {}",
                  out.tasks.size(), sha256(content).substr(0, kShownHash), eval::kDefaultMaxTokens,
                  sides.model.settings());
  if (sides.reference.has_value()) {
    out.protocol += fmt::format(" | reference: {}", sides.reference->settings());
  }
  return out;
}

}  // namespace trine::app
