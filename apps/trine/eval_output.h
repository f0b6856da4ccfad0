// The result of `trine eval` as text, JSON and HTML. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/trine/eval_run.h"

namespace trine::app {

// A bound that the user set.
struct EvalFloor {
  std::string option;  // "max-kl"
  double limit = 0.0;
  double value = 0.0;
  bool met = true;
};

struct EvalReport {
  const EvalSides* sides = nullptr;
  std::optional<TextReport> text;
  std::optional<TaskRun> tasks;
  std::vector<EvalFloor> floors;
  std::vector<std::string> warnings;
};

std::string eval_text(const EvalReport& report);
nlohmann::ordered_json eval_json(const EvalReport& report);
std::string eval_html(const EvalReport& report);

// "71.43 %  [68.1, 74.5]": a share with its interval.
std::string share_text(const eval::Figure& figure);
// The failure rates that are not 0, and those of the reference: "empty 2.0 % (0.0 %)".
std::string failures_text(const eval::TaskGroup& group);
// One sentence: which differences so few tasks can show.
std::string detectable_text(const eval::TaskGroup& group);
// "--max-kl 0.01: 0.0123, not met"
std::string floor_text(const EvalFloor& floor);

}  // namespace trine::app
