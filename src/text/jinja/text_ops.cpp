// Text operations that methods and filters share. All are linear in the text, whatever it holds.
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

constexpr std::size_t kNpos = std::string_view::npos;

// Whether the capital sigma at [at, next) ends a word, which gives it its other small form.
bool is_final_sigma(std::string_view text, std::size_t from, std::size_t at, std::size_t next) {
  bool before = false;
  for (std::size_t end = at; end > from;) {
    std::size_t start = end - 1;
    while (start > from && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) {
      --start;
    }
    std::size_t pos = start;
    const char32_t c = next_code_point(text, pos);
    if (!is_case_ignorable(c)) {
      before = is_cased(c);
      break;
    }
    end = start;
  }
  if (!before) {
    return false;
  }
  while (next < text.size()) {
    const char32_t c = next_code_point(text, next);
    if (!is_case_ignorable(c)) {
      return !is_cased(c);
    }
  }
  return true;
}

void add_mapped(StrBuilder& out, const CaseMap& m, bool user) {
  for (int i = 0; i < m.n; ++i) {
    out.add_code_point(m.c[i], user);
  }
}

}  // namespace

Status append_case(Heap& heap, StrBuilder& out, const Str& s, std::size_t from, std::size_t to,
                   Case how) {
  TRINE_TRY(heap.step(1 + static_cast<std::int64_t>((to - from) / 8)));
  const std::string_view text = std::string_view(s.text).substr(0, to);
  constexpr char32_t kCapitalSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  std::size_t run = 0;
  bool previous_cased = false;
  std::int64_t sigmas = 0;
  for (std::size_t pos = from; pos < to;) {
    const std::size_t at = pos;
    const char32_t c = next_code_point(text, pos);
    while (s.runs[run].end <= at) {
      ++run;
    }
    const bool user = s.runs[run].user;
    Case now = how;
    if (how == Case::kTitle) {
      now = previous_cased ? Case::kLower : Case::kTitle;
    } else if (how == Case::kCapitalize) {
      now = at == from ? Case::kTitle : Case::kLower;
    } else if (how == Case::kSwap) {
      now = is_upper(c) ? Case::kLower : Case::kUpper;
    }
    previous_cased = is_cased(c);
    if (now == Case::kUpper) {
      add_mapped(out, to_upper(c), user);
    } else if (now == Case::kTitle) {
      add_mapped(out, to_title(c), user);
    } else if (c == kCapitalSigma) {
      // The look-around is linear in a run of ignorable characters; many sigmas in one pay for it.
      TRINE_TRY(heap.step(++sigmas / 8));
      out.add_code_point(is_final_sigma(text, from, at, pos) ? kFinalSigma : 0x3C3, user);
    } else {
      add_mapped(out, to_lower(c), user);
    }
  }
  return out.check();
}

Result<Value> change_case(Heap& heap, const Str& s, Case how) {
  StrBuilder out(heap);
  out.set_markup(s.markup);
  TRINE_TRY(append_case(heap, out, s, 0, s.text.size(), how));
  return out.value();
}

Result<Value> strip_text(Heap& heap, const Str& s, const Str* chars, bool left, bool right) {
  std::vector<char32_t> set;
  for (std::size_t pos = 0; chars != nullptr && pos < chars->text.size();) {
    set.push_back(next_code_point(chars->text, pos));
  }
  std::sort(set.begin(), set.end());
  const auto drop = [&](char32_t c) {
    return chars == nullptr ? is_space(c) : std::binary_search(set.begin(), set.end(), c);
  };
  TRINE_TRY(heap.text_work(s.text.size() + set.size() * 8));
  std::size_t start = 0;
  while (left && start < s.text.size()) {
    std::size_t next = start;
    if (!drop(next_code_point(s.text, next))) {
      break;
    }
    start = next;
  }
  std::size_t end = s.text.size();
  while (right && end > start) {
    std::size_t at = end - 1;
    while (at > start && (static_cast<unsigned char>(s.text[at]) & 0xC0U) == 0x80U) {
      --at;
    }
    std::size_t pos = at;
    if (!drop(next_code_point(s.text, pos))) {
      break;
    }
    end = at;
  }
  return substring(heap, s, start, end);
}

Result<Value> replace_text(Heap& heap, const Str& s, const Str& old, const Str& with,
                           std::int64_t count) {
  TRINE_TRY(heap.text_work(s.text.size()));
  StrBuilder out(heap);
  out.set_markup(s.markup);
  const std::string_view text = s.text;
  std::int64_t left = count < 0 ? INT64_MAX : count;
  if (old.text.empty()) {
    // Python puts the new text before every character and at the end.
    std::size_t pos = 0;
    while (left > 0 && !out.overflow()) {
      out.add(with);
      --left;
      TRINE_TRY(heap.step());
      if (pos >= text.size()) {
        return out.value();
      }
      const std::size_t at = pos;
      next_code_point(text, pos);
      out.add(s, at, pos);
    }
    out.add(s, pos, text.size());
    return out.value();
  }
  std::size_t pos = 0;
  for (; left > 0 && !out.overflow(); --left) {
    const std::size_t hit = find_text(text, old.text, pos);
    if (hit == kNpos) {
      break;
    }
    TRINE_TRY(heap.step());
    out.add(s, pos, hit);
    out.add(with);
    pos = hit + old.text.size();
  }
  out.add(s, pos, text.size());
  return out.value();
}

Result<std::vector<Value>> split_lines(Heap& heap, const Str& s, bool keep_ends) {
  TRINE_TRY(heap.text_work(s.text.size()));
  std::vector<Value> lines;
  std::size_t start = 0;
  for (std::size_t pos = 0; pos < s.text.size();) {
    const std::size_t at = pos;
    const char32_t c = next_code_point(s.text, pos);
    if (!is_line_break(c)) {
      continue;
    }
    if (c == '\r' && pos < s.text.size() && s.text[pos] == '\n') {
      ++pos;
    }
    TRINE_TRY_ASSIGN(Value line, substring(heap, s, start, keep_ends ? pos : at));
    lines.push_back(line);
    start = pos;
  }
  if (start < s.text.size()) {
    TRINE_TRY_ASSIGN(Value line, substring(heap, s, start, s.text.size()));
    lines.push_back(line);
  }
  return lines;
}

namespace {

struct Piece {
  std::size_t from = 0;
  std::size_t to = 0;
};

// Pieces between separators, left to right; cut at most `max` times.
void cut_left(std::string_view text, std::string_view sep, std::size_t max,
              std::vector<Piece>& out) {
  std::size_t pos = 0;
  for (std::size_t n = 0; n < max; ++n) {
    const std::size_t hit = find_text(text, sep, pos);
    if (hit == kNpos) {
      break;
    }
    out.push_back({pos, hit});
    pos = hit + sep.size();
  }
  out.push_back({pos, text.size()});
}

// All matches of a right-to-left scan in one linear pass: search the reversed text left to right.
void cut_right(std::string_view text, std::string_view sep, std::size_t max,
               std::vector<Piece>& out) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_sep(sep.rbegin(), sep.rend());
  cut_left(reversed_text, reversed_sep, max, out);
  std::reverse(out.begin(), out.end());
  for (Piece& p : out) {
    p = {text.size() - p.to, text.size() - p.from};
  }
}

// Words between whitespace; after `max` cuts the rest stays one piece.
void cut_space(std::string_view text, std::size_t max, bool from_right, std::vector<Piece>& out) {
  std::vector<Piece> words;
  bool inside = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    if (is_space(next_code_point(text, pos))) {
      inside = false;
    } else if (inside) {
      words.back().to = pos;
    } else {
      words.push_back({at, pos});
      inside = true;
    }
  }
  if (words.size() <= max) {
    out = std::move(words);
    return;
  }
  if (from_right) {
    const std::size_t first = words.size() - max;
    out.push_back({0, words[first - 1].to});
    out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
  } else {
    out.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(max));
    out.push_back({words[max].from, text.size()});
  }
}

}  // namespace

Result<std::vector<Value>> split_text(Heap& heap, const Str& s, const Str* separator,
                                      std::int64_t max_split, bool from_right) {
  TRINE_TRY(heap.text_work(s.text.size()));
  const std::size_t max = max_split < 0 ? kNpos - 1 : static_cast<std::size_t>(max_split);
  std::vector<Piece> pieces;
  if (separator == nullptr) {
    cut_space(s.text, max, from_right, pieces);
  } else if (separator->text.empty()) {
    return type_error("the separator of split() is empty");
  } else if (from_right) {
    cut_right(s.text, separator->text, max, pieces);
  } else {
    cut_left(s.text, separator->text, max, pieces);
  }
  TRINE_TRY(heap.charge(pieces.size() * (sizeof(Value) + sizeof(Str))));
  std::vector<Value> out;
  for (const Piece& p : pieces) {
    TRINE_TRY_ASSIGN(Value piece, substring(heap, s, p.from, p.to));
    out.push_back(piece);
  }
  return out;
}

Result<Value> pad_text(Heap& heap, const Str& s, std::int64_t width, const Str* fill, char align) {
  if (fill != nullptr && fill->num_chars != 1) {
    return type_error("the fill character must be one character");
  }
  const std::string_view filler = fill != nullptr ? std::string_view(fill->text) : " ";
  const bool user = fill != nullptr && fill->any_user();
  const auto size = static_cast<std::int64_t>(s.num_chars);
  const std::size_t pad = width > size ? static_cast<std::size_t>(width - size) : 0;
  // Python's center() gives the odd blank to the left for odd widths.
  const std::size_t left = align == '>'   ? pad
                           : align == '<' ? 0
                                          : pad / 2 + (pad & static_cast<std::size_t>(width) & 1U);
  StrBuilder out(heap);
  out.set_markup(s.markup);
  out.repeat(filler, left, user);
  TRINE_TRY(out.check());
  out.add(s);
  out.repeat(filler, pad - left, user);
  return out.value();
}

}  // namespace trine::text::jinja
