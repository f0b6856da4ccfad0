// What `trine eval` does with its options: which models are compared, and the parts of the work.
// Thread rule: main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/trine/command.h"
#include "engine/bundle.h"
#include "eval/leakage.h"
#include "eval/task_report.h"
#include "eval/text_eval.h"

namespace trine::app {

// One side of the comparison.
struct EvalSide {
  std::string name;  // as given
  std::string path;
  DType kv = DType::kF16;
  Model::LoadOptions load;
  std::shared_ptr<const ModelText> text;

  // "kv=f16 activations=int8"
  std::string settings() const;
};

struct EvalSides {
  EvalSide model;
  std::optional<EvalSide> reference;
  std::optional<EvalSide> prefill;

  // What differs: "weights", "kv", "activations", "prefill" joined by "+"; "none".
  std::string mode() const;
};

// Errors: those of finding and reading the models; invalid_argument for options that need a
// reference where there is none, and for models of different vocabularies.
Result<EvalSides> eval_sides(const CommandContext& context);

struct TextReport {
  eval::TextResult result;
  std::string protocol;  // with how the models were run
  std::string greedy_protocol;
  double leaked = 0.0;  // share of the text's n-grams that are in the texts of --calib
};

struct TaskRun {
  std::vector<eval::Task> tasks;
  std::vector<eval::TaskAnswer> answers;
  std::vector<eval::TaskAnswer> reference;  // empty without one
  eval::TaskReport report;
  std::vector<bool> leaked;  // of each task; empty without --calib
  std::string protocol;
};

// The texts of --calib, to look for tests in them; null without the option. What the model says it
// was calibrated on is compared with the files given, in a note. Errors: those of the files;
// invalid_argument when --text or --tasks itself is a file that the model was calibrated on.
Result<std::unique_ptr<eval::LeakageIndex>> leakage_index(const CommandContext& context,
                                                          const EvalSides& sides);

// Scores --text. `leaks` may be null.
Result<TextReport> run_eval_text(const CommandContext& context, const EvalSides& sides,
                                 const eval::LeakageIndex* leaks);

// Answers --tasks. `leaks` may be null.
Result<TaskRun> run_eval_tasks(const CommandContext& context, const EvalSides& sides,
                               const eval::LeakageIndex* leaks);

// A line on a terminal that is written over; nothing elsewhere, where a line a second would only
// fill a log.
class EvalProgress {
 public:
  // `unit`: "tokens"
  EvalProgress(const CommandContext& context, std::string what, std::string unit,
               std::int64_t total);

  // False when the user wants the work to end.
  bool operator()(std::int64_t done);

 private:
  std::string what_;
  std::string unit_;
  std::int64_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point start_, last_;
};

// The ids of a cache type and of activations, as options spell them.
std::string_view kv_name(DType type);

}  // namespace trine::app
