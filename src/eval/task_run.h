// A model's answers to tasks, scored. Greedy, in batches; what a task answers does not depend on
// the others. Thread rule: as the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/bundle.h"
#include "engine/engine.h"
#include "eval/scoring.h"
#include "eval/tasks.h"

namespace trine::eval {

inline constexpr std::int32_t kDefaultMaxTokens = 256;

struct TaskAnswer {
  std::string text;    // generated, or the choice
  double score = 0.0;  // from 0 to 1
  std::string read_as;
  std::int32_t tokens = 0;
  // What went wrong; none of it for choices.
  bool empty = false;
  bool circles = false;
  bool invalid_json = false;
  bool switched_language = false;
  bool cut = false;             // max_tokens came before the answer's end
  std::vector<double> choices;  // kChoice: the normalized log-likelihood of each
};

struct TaskRunOptions {
  EngineOptions engine;
  std::uint64_t seed = 0;
  const std::atomic<bool>* cancel = nullptr;
  // Gets the tasks done so far.
  std::function<void(std::int64_t tasks)> progress = [](std::int64_t) {};
};

// One answer for each task. `name` is the file's. Errors: invalid_argument naming line and field
// for a task that the model cannot be asked (no template, prompt and max_tokens past the context);
// those of the engine; cancelled.
Result<std::vector<TaskAnswer>> run_tasks(const std::vector<Task>& tasks, const std::string& name,
                                          const ModelBundle& bundle, const TaskRunOptions& options);

}  // namespace trine::eval
