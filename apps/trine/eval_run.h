// What `trine eval` does with its options: which models are compared, and the parts of the work.
// Thread rule: main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/trine/command.h"
#include "engine/bundle.h"
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
};

// Scores --text.
Result<TextReport> run_eval_text(const CommandContext& context, const EvalSides& sides);

// The ids of a cache type and of activations, as options spell them.
std::string_view kv_name(DType type);

}  // namespace trine::app
