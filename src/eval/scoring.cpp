#include "eval/scoring.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "eval/scripts.h"
#include "text/unicode.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// What a minus behind it is subtracted from or joined to: "3-4", "(a)-4", "part-4".
bool ends_operand(char c) {
  return is_digit(c) || c == ')' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// One past the digits from `at` on.
std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) {
    ++at;
  }
  return at;
}

// One past the number that begins with the digit at `begin`; its digits are appended to `plain`
// without the commas of thousands.
std::size_t read_number(std::string_view text, std::size_t begin, std::string& plain) {
  constexpr std::size_t kGroup = 3;
  std::size_t end = digits_end(text, begin);
  plain += text.substr(begin, end - begin);
  if (end - begin <= kGroup) {
    while (end < text.size() && text[end] == ',' && digits_end(text, end + 1) == end + 1 + kGroup) {
      plain += text.substr(end + 1, kGroup);
      end += 1 + kGroup;
    }
  }
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    const std::size_t stop = digits_end(text, end + 1);
    plain += text.substr(end, stop - end);
    end = stop;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) {
      ++exponent;
    }
    if (const std::size_t stop = digits_end(text, exponent); stop > exponent) {
      plain += 'e';
      plain += text.substr(end + 1, stop - end - 1);
      end = stop;
    }
  }
  return end;
}

// A whole answer in a code fence is what stands in it.
std::string_view without_fence(std::string_view text) {
  constexpr std::string_view kFence = "```";
  const auto trim = [](std::string_view s) {
    const std::size_t begin = s.find_first_not_of(" \t\r\n");
    const std::size_t end = s.find_last_not_of(" \t\r\n");
    return begin == std::string_view::npos ? std::string_view() : s.substr(begin, end - begin + 1);
  };
  text = trim(text);
  if (text.size() < 2 * kFence.size() || !text.starts_with(kFence) || !text.ends_with(kFence)) {
    return text;
  }
  const std::size_t line_end = text.find('\n');
  if (line_end == std::string_view::npos || line_end > text.size() - kFence.size()) {
    return text;
  }
  return trim(text.substr(line_end, text.size() - kFence.size() - line_end));
}

void add_leaves(const Json& value, const std::string& path, std::map<std::string, int>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      add_leaves(inner, fmt::format("{}/{}", path, key), out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      add_leaves(value[i], fmt::format("{}/{}", path, i), out);
    }
  } else {
    // 1 and 1.0 are one number.
    const Json leaf = value.is_number() ? Json(value.get<double>()) : value;
    ++out[fmt::format("{}={}", path, leaf.dump())];
  }
}

bool matches(Task::Match match, std::size_t found, std::size_t of) {
  return match == Task::Match::kAny   ? found > 0
         : match == Task::Match::kAll ? found == of
                                      : found == 0;
}

Result<Score> score_regex(const Task& task, std::string_view answer) {
  std::size_t found = 0;
  for (const auto& pattern : task.patterns) {
    TRINE_TRY_ASSIGN(const std::vector<text::Match> hits, pattern->find_all(answer));
    found += hits.empty() ? 0U : 1U;
  }
  return Score{.value = matches(task.match, found, task.patterns.size()) ? 1.0 : 0.0,
               .read_as = {}};
}

Score score_numeric(const Task& task, std::string_view answer) {
  constexpr std::string_view kMinus = "\xe2\x88\x92";  // U+2212, which NFKC keeps
  std::string plain;
  const std::string form = normalized(answer, {});
  for (std::size_t at = 0; at < form.size();) {
    const bool minus = form.compare(at, kMinus.size(), kMinus) == 0;
    plain += minus ? '-' : form[at];
    at += minus ? kMinus.size() : 1;
  }
  const std::optional<double> number = last_number(plain);
  if (!number.has_value()) {
    return {.read_as = {}};
  }
  const bool right = std::any_of(task.numbers.begin(), task.numbers.end(), [&](double expected) {
    return std::abs(*number - expected) <=
           std::max(task.tolerance, task.relative_tolerance * std::abs(expected));
  });
  return {.value = right ? 1.0 : 0.0, .read_as = fmt::format("{}", *number)};
}

Score score_json(const Task& task, std::string_view answer) {
  const std::string_view inner = without_fence(answer);
  if (!parse_json(inner).has_value()) {
    return {.invalid_json = true, .read_as = {}};
  }
  return {.value = task.json.empty() ? 1.0 : json_f1(task.json, inner), .read_as = {}};
}

bool is_word_at(std::string_view text, std::size_t at) {
  const char32_t c = text::code_point_at(text, at).value;
  return (text::char_class(c) & (text::kWord | text::kNumber)) != 0 && !writes_without_blanks(c);
}

// Whether `word` stands in `text` and is not a part of a longer word.
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins =
        at == 0 || !is_word_at(text, text::previous_start(text, at)) || !is_word_at(text, at);
    const bool ends = end == text.size() || !is_word_at(text, end) ||
                      !is_word_at(text, text::previous_start(text, end));
    if (begins && ends) {
      return true;
    }
  }
  return false;
}

// The label that the answer is, else the only one that it names.
Score score_label(const Task& task, std::string_view answer) {
  const Ignored ignored{
      .letter_case = true, .space = task.ignored.space, .punctuation = task.ignored.punctuation};
  const std::string text = normalized(answer, ignored);
  std::string named;
  std::string named_form;
  int count = 0;
  for (const std::string& label : task.labels) {
    const std::string form = normalized(label, ignored);
    if (form == text) {
      named = label;
      count = 1;
      break;
    }
    if (form.empty() || !has_word(text, form)) {
      continue;
    }
    // "not good" is named once, though "good" stands in it.
    if (count == 0 || has_word(form, named_form)) {
      named = label;
      named_form = form;
      count = 1;
    } else if (!has_word(named_form, form)) {
      ++count;
    }
  }
  if (count != 1) {
    return {.read_as = {}};
  }
  return {.value = named == task.answers.front() ? 1.0 : 0.0, .read_as = named};
}

}  // namespace

std::string normalized(std::string_view text, const Ignored& ignored) {
  const std::string form = text::normalize_utf8(text, text::NormalForm::kNfkc);
  std::string out;
  bool blank = false;
  for (std::size_t at = 0; at < form.size();) {
    const text::CodePoint c = text::code_point_at(form, at);
    const std::string_view bytes = std::string_view(form).substr(at, c.size);
    at += c.size;
    if (text::is_space(c.value)) {
      blank = true;
      continue;
    }
    if (ignored.punctuation && (text::char_class(c.value) & text::kPunctuation) != 0) {
      continue;
    }
    if (blank && !ignored.space && !out.empty()) {
      out += ' ';
    }
    blank = false;
    if (ignored.letter_case) {
      text::append_lowercase(out, c.value);
    } else {
      out += bytes;
    }
  }
  return out;
}

std::optional<double> last_number(std::string_view text) {
  std::optional<double> out;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    std::string plain;
    std::size_t sign = at;
    // ".5" is a number, the point of "a.5" too; the minus counts where nothing is subtracted.
    if (sign > 0 && text[sign - 1] == '.' && (sign < 2 || !is_digit(text[sign - 2]))) {
      --sign;
    }
    const bool negative =
        sign > 0 && text[sign - 1] == '-' && (sign < 2 || !ends_operand(text[sign - 2]));
    if (negative) {
      plain += '-';
    }
    if (sign < at) {
      plain += "0.";
    }
    const std::size_t end = read_number(text, at, plain);
    double value = 0.0;
    const auto parsed = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (parsed.ec == std::errc()) {
      out = value;
    }
    at = end;
  }
  return out;
}

double json_f1(std::string_view expected, std::string_view got) {
  const auto a = parse_json(expected);
  const auto b = parse_json(got);
  if (!a.has_value() || !b.has_value()) {
    return 0.0;
  }
  std::map<std::string, int> wanted;
  std::map<std::string, int> found;
  add_leaves(*a, "", wanted);
  add_leaves(*b, "", found);
  double hits = 0.0;
  double total = 0.0;
  for (const auto& [leaf, count] : wanted) {
    const auto at = found.find(leaf);
    hits += at == found.end() ? 0.0 : std::min(count, at->second);
    total += count;
  }
  for (const auto& [leaf, count] : found) {
    total += count;
  }
  return 2.0 * hits / total;
}

bool runs_in_circles(std::span<const std::int32_t> tokens) {
  constexpr std::size_t kLongest = 64;
  constexpr std::size_t kTimes = 4;
  constexpr std::size_t kFewest = 24;
  for (std::size_t period = 1; period <= kLongest && period * kTimes <= tokens.size(); ++period) {
    const std::size_t wanted = std::max(period * kTimes, kFewest);
    std::size_t same = period;  // tokens at the end that repeat with this period
    while (same < tokens.size() &&
           tokens[tokens.size() - 1 - same] == tokens[tokens.size() - 1 - same + period]) {
      ++same;
    }
    if (same >= wanted) {
      return true;
    }
  }
  return false;
}

Result<Score> score_answer(const Task& task, std::string_view answer) {
  switch (task.kind) {
    case TaskKind::kExact: {
      const std::string text = normalized(answer, task.ignored);
      const bool right = std::any_of(
          task.answers.begin(), task.answers.end(),
          [&](const std::string& expected) { return normalized(expected, task.ignored) == text; });
      return Score{.value = right ? 1.0 : 0.0, .read_as = {}};
    }
    case TaskKind::kContains: {
      const std::string text = normalized(answer, task.ignored);
      const auto found =
          std::count_if(task.answers.begin(), task.answers.end(), [&](const std::string& expected) {
            return text.find(normalized(expected, task.ignored)) != std::string::npos;
          });
      return Score{
          .value =
              matches(task.match, static_cast<std::size_t>(found), task.answers.size()) ? 1.0 : 0.0,
          .read_as = {}};
    }
    case TaskKind::kRegex:
      return score_regex(task, answer);
    case TaskKind::kNumeric:
      return score_numeric(task, answer);
    case TaskKind::kJson:
      return score_json(task, answer);
    case TaskKind::kLabel:
      return score_label(task, answer);
    case TaskKind::kChoice:
      break;
  }
  return fail(ErrorCode::kInternal, "choices have no answer to score");
}

std::string_view main_script(std::string_view text) {
  constexpr std::int64_t kFewestLetters = 8;
  const ScriptCounts counts = count_scripts(text);
  const auto most = std::max_element(counts.of.begin(), counts.of.end());
  if (counts.letters < kFewestLetters || 2 * *most < counts.letters) {
    return {};
  }
  return script_name(static_cast<std::size_t>(most - counts.of.begin()));
}

bool switches_language(std::string_view answer, std::string_view asked_and_expected) {
  constexpr std::int64_t kPart = 20;
  const std::string_view script = main_script(answer);
  const ScriptCounts asked = count_scripts(asked_and_expected);
  if (script.empty() || asked.letters == 0) {
    return false;
  }
  for (std::size_t i = 0; i < kNumScripts; ++i) {
    if (script_name(i) == script) {
      return asked.of[i] * kPart < asked.letters;
    }
  }
  return false;
}

}  // namespace trine::eval
