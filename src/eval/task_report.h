// Answers to tasks beside those of a reference: who won what, and how sure that is.
//
// Everything is paired: both models answered the same tasks. A score is weighted by its task's
// weight; wins, losses and ties count tasks. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/task_run.h"
#include "eval/tasks.h"
#include "eval/text_eval.h"

namespace trine::eval {

enum class Outcome : std::uint8_t { kTie, kWin, kLoss };  // of the model

std::string_view outcome_name(Outcome outcome);

// Shares of the tasks that an answer was generated for.
struct FailureRates {
  double empty = 0.0;
  double circles = 0.0;
  double invalid_json = 0.0;  // of the tasks that ask for JSON
  double switched_language = 0.0;
  double cut = 0.0;
};

struct PairedTasks {
  Figure accuracy;    // of the reference
  Figure difference;  // the model's minus the reference's
  std::int64_t wins = 0;
  std::int64_t losses = 0;
  std::int64_t ties = 0;
  double mcnemar = 1.0;     // chance of a split at least as uneven if both were equally good
  double detectable = 1.0;  // minimum_detectable_difference
  FailureRates failures;
  std::vector<std::size_t> flips;  // tasks that were won or lost, in order
};

// Of all tasks, or of those with one tag or of one kind.
struct TaskGroup {
  std::string name;
  std::int64_t tasks = 0;
  Figure accuracy;
  std::optional<PairedTasks> paired;
  FailureRates failures;
};

// Of the tasks with one list of labels.
struct Confusion {
  std::vector<std::string> labels;
  // [expected][answered]; the last column is "no label".
  std::vector<std::vector<std::int64_t>> model;
  std::vector<std::vector<std::int64_t>> reference;  // empty without a reference
  double model_f1 = 0.0;
  double reference_f1 = 0.0;
};

struct TaskReport {
  TaskGroup all;
  std::vector<TaskGroup> kinds;
  std::vector<TaskGroup> tags;  // in order of first use
  std::vector<Confusion> confusions;
  std::vector<Outcome> outcomes;  // of each task; empty without a reference
};

// `reference` is empty or has an answer for each task.
TaskReport report_tasks(const std::vector<Task>& tasks, const std::vector<TaskAnswer>& model,
                        const std::vector<TaskAnswer>& reference, std::uint64_t seed);

// Warns where perplexity says that nothing changed and the tasks say otherwise; empty: no warning.
// Perplexity barely moved when it changed by less than 1 %. The tasks moved when the interval of
// the difference of accuracy leaves zero out, or when one task in 20 or more flipped.
std::string hidden_change_warning(double ppl_change, const TaskGroup& tasks);

}  // namespace trine::eval
