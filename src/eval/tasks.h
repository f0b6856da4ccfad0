// Business tasks: a prompt, and how to tell whether its answer is right. One JSON object a line;
// docs/eval.md lists the fields. Thread rule: values; immutable once read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/regex.h"

namespace trine::eval {

enum class TaskKind : std::uint8_t {
  kExact,
  kContains,
  kRegex,
  kNumeric,
  kJson,
  kChoice,  // by log-likelihood, nothing is generated
  kLabel,
};

std::string_view task_kind_name(TaskKind kind);

// What a comparison of texts looks past, besides white space at the ends and Unicode's compatible
// forms (NFKC).
struct Ignored {
  bool letter_case = false;
  bool space = false;  // all white space, not only runs of it
  bool punctuation = false;
};

struct Task {
  std::string id;         // "line 7" when it has none
  std::int64_t line = 0;  // of the file
  std::string prompt;     // sent as it is; empty: messages count
  std::string messages;   // a JSON array in the OpenAI shape, through the chat template
  TaskKind kind = TaskKind::kExact;
  std::vector<std::string> tags;
  double weight = 1.0;
  std::optional<std::int32_t> max_tokens;
  std::vector<std::string> stop;

  std::vector<std::string> answers;  // kExact, kContains, kRegex (patterns), kLabel (one)
  Ignored ignored;                   // kExact, kContains, kLabel
  enum class Match : std::uint8_t { kAny, kAll, kNone } match = Match::kAny;  // kContains, kRegex
  std::vector<std::shared_ptr<const text::Regex>> patterns;                   // kRegex
  std::vector<double> numbers;                                                // kNumeric
  double tolerance = 0.0;  // kNumeric: absolute, and as a share of the expected number
  double relative_tolerance = 0.0;
  std::string json;                  // kJson: the value; empty: any JSON is right
  std::vector<std::string> labels;   // kLabel
  std::vector<std::string> choices;  // kChoice
  std::size_t right_choice = 0;
  // kChoice: what the log-likelihood of a choice is divided by, or what is taken from it.
  enum class Normalize : std::uint8_t {
    kNone,
    kChars,
    kTokens,
    kUnconditional
  } normalize = Normalize::kNone;
};

// `name` is named in errors. Errors: invalid_argument naming file, line and field, also for unknown
// fields, fields of another kind and ids that occur twice.
Result<std::vector<Task>> parse_tasks(std::string_view content, const std::string& name);

// Everything that an item asks the model, as one text: for looking it up elsewhere.
std::string asked_text(const Task& task);

}  // namespace trine::eval
