#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace trine::text {
namespace {

bool word_before(std::string_view text, std::size_t pos) {
  return pos > 0 && (char_class(code_point_at(text, previous_start(text, pos)).value) & kWord) != 0;
}

bool word_after(std::string_view text, std::size_t pos) {
  return pos < text.size() && (char_class(code_point_at(text, pos).value) & kWord) != 0;
}

std::size_t skip_spaces_left(std::string_view text, std::size_t pos, std::size_t floor) {
  while (pos > floor) {
    const std::size_t start = previous_start(text, pos);
    if (!is_space(code_point_at(text, start).value)) {
      break;
    }
    pos = start;
  }
  return pos;
}

std::size_t skip_spaces_right(std::string_view text, std::size_t pos) {
  while (pos < text.size()) {
    const CodePoint c = code_point_at(text, pos);
    if (!is_space(c.value)) {
      break;
    }
    pos += c.size;
  }
  return pos;
}

}  // namespace

Status AddedTokens::fill(Set& set, std::vector<std::pair<std::string, AddedToken>> entries) {
  // Two tokens may normalize to one spelling; the first one keeps it.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<std::string, std::int32_t>> spellings;
  for (auto& [text, token] : entries) {
    if (text.empty() || text.size() > kMaxAddedTokenBytes) {
      return fail(ErrorCode::kCorruptData, "added token {}: {} bytes, outside [1, {}]", token.id,
                  text.size(), kMaxAddedTokenBytes);
    }
    if (!spellings.empty() && spellings.back().first == text) {
      continue;
    }
    spellings.emplace_back(text, static_cast<std::int32_t>(set.tokens.size()));
    set.tokens.push_back(std::move(token));
  }
  set.trie.build(std::move(spellings));
  return {};
}

Status AddedTokens::build(std::vector<AddedToken> tokens, const Normalizer* normalizer) {
  std::vector<std::pair<std::string, AddedToken>> raw;
  std::vector<std::pair<std::string, AddedToken>> normalized;
  std::vector<std::pair<std::string, AddedToken>> special;
  // Control tokens first: they win when two tokens normalize to one spelling.
  std::stable_partition(tokens.begin(), tokens.end(),
                        [](const AddedToken& t) { return t.special; });
  for (const AddedToken& token : tokens) {
    if (token.special) {
      special.emplace_back(token.content, token);
    }
    if (!token.normalized || normalizer == nullptr) {
      raw.emplace_back(token.content, token);
      continue;
    }
    std::string text = token.content;
    TRINE_TRY(normalizer->apply(text));
    if (!text.empty()) {  // normalized away: it can never be found
      normalized.emplace_back(std::move(text), token);
    }
  }
  TRINE_TRY(fill(raw_, std::move(raw)));
  TRINE_TRY(fill(normalized_, std::move(normalized)));
  return fill(special_, std::move(special));
}

// Applies the token's flags to a match; false when the token does not count here.
bool AddedTokens::place(const AddedToken& token, std::string_view text, std::size_t floor,
                        Segment& at) {
  if (token.single_word && (word_before(text, at.begin) || word_after(text, at.end))) {
    return false;
  }
  if (token.lstrip) {
    at.begin = skip_spaces_left(text, at.begin, std::min(floor, at.begin));
  }
  if (token.rstrip) {
    at.end = skip_spaces_right(text, at.end);
  }
  at.id = token.id;
  return true;
}

std::vector<Segment> AddedTokens::split(const Set& set, std::string_view text, bool skip_special) {
  std::vector<Segment> out;
  std::size_t done = 0;
  for (std::size_t pos = 0; !set.trie.empty() && pos < text.size();) {
    const ByteTrie::Hit hit = set.trie.longest(text, pos);
    if (hit.size == 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = set.tokens[static_cast<std::size_t>(hit.value)];
    Segment segment{pos, pos + hit.size, kNoToken};
    pos = segment.end;
    if ((skip_special && token.special) || !place(token, text, done, segment)) {
      continue;
    }
    if (done < segment.begin) {
      out.push_back({done, segment.begin, kNoToken});
    }
    out.push_back(segment);
    done = segment.end;
  }
  if (done < text.size()) {
    out.push_back({done, text.size(), kNoToken});
  }
  return out;
}

std::vector<Segment> AddedTokens::split_raw(std::string_view text, bool skip_special) const {
  return split(raw_, text, skip_special);
}

std::vector<Segment> AddedTokens::split_normalized(std::string_view text, bool skip_special) const {
  return split(normalized_, text, skip_special);
}

std::vector<Segment> AddedTokens::special_in(std::string_view text, std::size_t begin,
                                             std::size_t end, std::size_t floor) const {
  std::vector<Segment> out;
  const std::string_view visible = text.substr(0, end);
  for (std::size_t pos = begin; !special_.trie.empty() && pos < end;) {
    const ByteTrie::Hit hit = special_.trie.longest(visible, pos);
    if (hit.size == 0) {
      ++pos;
      continue;
    }
    Segment segment{pos, pos + hit.size, kNoToken};
    pos = segment.end;
    if (place(special_.tokens[static_cast<std::size_t>(hit.value)], text, floor, segment)) {
      out.push_back(segment);
      floor = segment.end;
    }
  }
  return out;
}

}  // namespace trine::text
