// The result of `trine eval` as text, JSON and HTML. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/trine/eval_run.h"

namespace trine::app {

struct EvalReport {
  const EvalSides* sides = nullptr;
  std::optional<TextReport> text;
};

std::string eval_text(const EvalReport& report);
nlohmann::ordered_json eval_json(const EvalReport& report);

}  // namespace trine::app
