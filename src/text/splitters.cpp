#include "text/splitters.h"

#include <array>

#include "base/check.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::string_view regex;
  SplitPattern pattern;
};

// The first spelling of a pattern is its own; the others differ in form only: a greedy quantifier
// and its possessive form agree where what follows cannot match a given-back character, and
// \s*[\r\n] takes all newlines of a run already.
constexpr std::array<Entry, 6> kPatterns{{
    {kGpt2Regex, SplitPattern::kGpt2},
    {kLlama3Regex, SplitPattern::kLlama3},
    {kQwen2Regex, SplitPattern::kQwen2},
    {kO200kRegex, SplitPattern::kO200k},
    {kTekkenRegex, SplitPattern::kTekken},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     SplitPattern::kLlama3},
}};

// One character with its classes; size 0 past the end.
struct Char {
  char32_t value = 0;
  std::size_t size = 0;
  unsigned bits = 0;

  bool in(unsigned mask) const { return (bits & mask) != 0; }

  // Neither space, letter nor number (and not the end).
  bool other() const { return size > 0 && (bits & (kSpace | kLetter | kNumber)) == 0; }
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Char at(std::size_t pos) const {
    if (pos >= text_.size()) {
      return {};
    }
    const CodePoint c = code_point_at(text_, pos);
    return {c.value, c.size, char_class(c.value)};
  }

  std::size_t run(std::size_t pos, unsigned mask) const {
    for (Char c = at(pos); c.in(mask); c = at(pos)) {
      pos += c.size;
    }
    return pos;
  }

  std::size_t run_other(std::size_t pos) const {
    for (Char c = at(pos); c.other(); c = at(pos)) {
      pos += c.size;
    }
    return pos;
  }

  std::size_t run_newlines(std::size_t pos, bool slash) const {
    while (pos < text_.size() &&
           (text_[pos] == '\r' || text_[pos] == '\n' || (slash && text_[pos] == '/'))) {
      ++pos;
    }
    return pos;
  }

  // At most `limit` characters of \p{N}.
  std::size_t digits(std::size_t pos, int limit) const {
    for (Char c = at(pos); limit > 0 && c.in(kNumber); c = at(pos), --limit) {
      pos += c.size;
    }
    return pos;
  }

  // Length of 's 't 're 've 'm 'll 'd at `pos`, or 0. Without case, 's also matches the long s
  // (U+017F), which folds to s.
  std::size_t contraction(std::size_t pos, bool ignore_case) const {
    if (pos + 1 >= text_.size() || text_[pos] != '\'') {
      return 0;
    }
    const auto letter = [&](std::size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char a = letter(pos + 1);
    const char b = letter(pos + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
      return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
      return 3;
    }
    if (ignore_case && text_.substr(pos + 1, 2) == "\xc5\xbf") {
      return 3;
    }
    return 0;
  }

  // \s+(?!\S)|\s+ on the run that starts at `pos`: all of it at the end of the text, else all but
  // its last character, which may belong to the next word.
  std::size_t spaces(std::size_t pos) const {
    const std::size_t end = run(pos, kSpace);
    if (end == text_.size()) {
      return end;
    }
    const std::size_t last = previous_start(text_, end);
    return last > pos ? last : end;
  }

  // \s*[\r\n]+: through the last newline of the run of spaces, or `pos` when it has none.
  std::size_t through_last_newline(std::size_t pos) const {
    std::size_t end = run(pos, kSpace);
    while (end > pos && text_[end - 1] != '\r' && text_[end - 1] != '\n') {
      --end;
    }
    return end;
  }

 private:
  std::string_view text_;
};

std::size_t next_gpt2(const Scanner& scan, std::size_t pos) {
  if (const std::size_t n = scan.contraction(pos, false)) {
    return pos + n;
  }
  const Char first = scan.at(pos);
  const std::size_t start = first.value == U' ' ? pos + 1 : pos;
  const Char c = scan.at(start);
  if (c.in(kLetter)) {
    return scan.run(start, kLetter);
  }
  if (c.in(kNumber)) {
    return scan.run(start, kNumber);
  }
  if (c.other()) {
    return scan.run_other(start);
  }
  return scan.spaces(pos);
}

// The alternatives that Llama 3 and o200k share, after the words.
std::size_t next_non_word(const Scanner& scan, std::size_t pos, int max_digits, bool slash) {
  const Char first = scan.at(pos);
  if (first.in(kNumber)) {
    return scan.digits(pos, max_digits);
  }
  const std::size_t start = first.value == U' ' ? pos + 1 : pos;
  if (scan.at(start).other()) {
    return scan.run_newlines(scan.run_other(start), slash);
  }
  if (const std::size_t end = scan.through_last_newline(pos); end > pos) {
    return end;
  }
  return scan.spaces(pos);
}

std::size_t next_llama3(const Scanner& scan, std::size_t pos, int max_digits) {
  if (const std::size_t n = scan.contraction(pos, true)) {
    return pos + n;
  }
  const Char first = scan.at(pos);
  if (first.in(kLetter)) {
    return scan.run(pos, kLetter);
  }
  if (!first.in(kNumber | kNewline) && scan.at(pos + first.size).in(kLetter)) {
    return scan.run(pos + first.size, kLetter);
  }
  return next_non_word(scan, pos, max_digits, false);
}

// U*L+ from `pos` (U: upper-like, L: lower-like), as a backtracking matcher finds it; `pos` when
// there is no match.
std::size_t upper_then_lower(const Scanner& scan, std::size_t pos) {
  std::size_t end = pos;
  std::size_t last_both = pos;  // end of the last character of the run that is in both classes
  for (Char c = scan.at(end); c.in(kUpperLike); c = scan.at(end)) {
    end += c.size;
    if (c.in(kLowerLike)) {
      last_both = end;
    }
  }
  const std::size_t lower_end = scan.run(end, kLowerLike);
  return lower_end > end ? lower_end : last_both;
}

// U+L* from `pos`, or `pos`.
std::size_t upper_and_lower(const Scanner& scan, std::size_t pos) {
  const std::size_t end = scan.run(pos, kUpperLike);
  return end > pos ? scan.run(end, kLowerLike) : pos;
}

std::size_t next_o200k(const Scanner& scan, std::size_t pos, int max_digits, bool contractions) {
  const Char first = scan.at(pos);
  const bool prefix = !first.in(kNewline | kLetter | kNumber);
  std::size_t end = pos;
  for (const auto match : {upper_then_lower, upper_and_lower}) {
    if (prefix) {
      const std::size_t start = pos + first.size;
      if (const std::size_t e = match(scan, start); e > start) {
        end = e;
        break;
      }
    }
    if (const std::size_t e = match(scan, pos); e > pos) {
      end = e;
      break;
    }
  }
  if (end > pos) {
    return contractions ? end + scan.contraction(end, true) : end;
  }
  return next_non_word(scan, pos, max_digits, true);
}

}  // namespace

std::optional<SplitPattern> known_pattern(std::string_view regex) {
  for (const Entry& entry : kPatterns) {
    if (entry.regex == regex) {
      return entry.pattern;
    }
  }
  return std::nullopt;
}

std::string_view pattern_regex(SplitPattern pattern) {
  for (const Entry& entry : kPatterns) {
    if (entry.pattern == pattern) {
      return entry.regex;
    }
  }
  TRINE_CHECK(false);
  return {};
}

std::size_t next_piece(SplitPattern pattern, std::string_view text, std::size_t pos) {
  const Scanner scan(text);
  switch (pattern) {
    case SplitPattern::kGpt2:
      return next_gpt2(scan, pos);
    case SplitPattern::kLlama3:
      return next_llama3(scan, pos, 3);
    case SplitPattern::kQwen2:
      return next_llama3(scan, pos, 1);
    case SplitPattern::kO200k:
      return next_o200k(scan, pos, 3, true);
    case SplitPattern::kTekken:
      return next_o200k(scan, pos, 1, false);
  }
  TRINE_CHECK(false);
  return text.size();
}

}  // namespace trine::text
