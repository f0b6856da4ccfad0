// How right an answer is, and what went wrong with it beyond that.
//
// Quantized models often fail first by answers that are empty, run in circles, break JSON or change
// the language; these are counted whatever the score. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "eval/tasks.h"

namespace trine::eval {

struct Score {
  double value = 0.0;         // from 0 to 1
  bool invalid_json = false;  // kJson
  // What the answer was read as: the number, the label (empty: none of them).
  std::string read_as;
};

// Not for kChoice. Errors: exhausted for a pattern that wants too much work on this answer.
Result<Score> score_answer(const Task& task, std::string_view answer);

// NFKC, white space at the ends and in runs made one blank, then what `ignored` says.
std::string normalized(std::string_view text, const Ignored& ignored);

// The last number in a text: "1,234.5" is one, the minus of "3-4" is none.
std::optional<double> last_number(std::string_view text);

// F1 of the leaves of two JSON values, each leaf by its path and value; equal scalars are 1.
double json_f1(std::string_view expected, std::string_view got);

// The answer ends in the same one to 64 tokens again and again: at least four times and over 24
// tokens.
bool runs_in_circles(std::span<const std::int32_t> tokens);

// The script that at least half of a text's letters belong to, with eight letters or more:
// "Latin", "Han", ... ; empty: none.
std::string_view main_script(std::string_view text);
// Whether the answer's main script makes up less than a twentieth of the letters of what was asked
// and expected.
bool switches_language(std::string_view answer, std::string_view asked_and_expected);

}  // namespace trine::eval
