#include "text/pattern.h"

#include <algorithm>

#include "text/unicode.h"

namespace trine::text {

Pattern Pattern::known(SplitPattern pattern) {
  Pattern out;
  out.known_ = pattern;
  return out;
}

Result<Pattern> Pattern::regex(std::string_view expression) {
  Pattern out;
  out.known_ = known_pattern(expression);
  if (!out.known_) {
    TRINE_TRY_ASSIGN(out.regex_, Regex::compile(expression));
  }
  return out;
}

Pattern Pattern::literal(std::string text) {
  Pattern out;
  out.literal_ = std::move(text);
  return out;
}

Pattern Pattern::characters(bool (*test)(char32_t)) {
  Pattern out;
  out.test_ = test;
  return out;
}

Result<std::vector<Stretch>> Pattern::find(std::string_view text) const {
  std::vector<Stretch> out;
  std::size_t done = 0;
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin > done) {
      out.push_back({done, begin, false});
    }
    out.push_back({begin, end, true});
    done = end;
  };
  if (known_) {
    while (done < text.size()) {
      add(done, next_piece(*known_, text, done));
    }
  } else if (regex_) {
    TRINE_TRY_ASSIGN(const auto matches, regex_->find_all(text));
    for (const Match& match : matches) {
      add(match.begin, match.end);
    }
  } else if (test_ != nullptr) {
    for (std::size_t pos = 0; pos < text.size();) {
      const CodePoint c = code_point_at(text, pos);
      if (test_(c.value)) {
        add(pos, pos + c.size);
      }
      pos += c.size;
    }
  } else if (!literal_.empty()) {
    for (std::size_t pos = text.find(literal_); pos != std::string_view::npos;
         pos = text.find(literal_, done)) {
      add(pos, pos + literal_.size());
    }
  }
  if (done < text.size()) {
    out.push_back({done, text.size(), false});
  }
  return out;
}

void append_pieces(const std::vector<Stretch>& stretches, SplitBehavior behavior,
                   std::size_t offset, std::vector<Piece>& out) {
  const std::size_t start = out.size();
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      for (const Stretch& s : stretches) {
        if (!s.match || behavior == SplitBehavior::kIsolated) {
          out.push_back({s.begin, s.end});
        }
      }
      break;
    case SplitBehavior::kContiguous:
      for (const Stretch& s : stretches) {
        if (out.size() > start && s.match == previous_match) {
          out.back().end = s.end;
        } else {
          out.push_back({s.begin, s.end});
        }
        previous_match = s.match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Stretch& s : stretches) {
        if (out.size() > start && s.match && !previous_match) {
          out.back().end = s.end;
        } else {
          out.push_back({s.begin, s.end});
        }
        previous_match = s.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto it = stretches.rbegin(); it != stretches.rend(); ++it) {
        if (out.size() > start && it->match && !previous_match) {
          out.back().begin = it->begin;
        } else {
          out.push_back({it->begin, it->end});
        }
        previous_match = it->match;
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(start), out.end());
      break;
  }
  std::size_t kept = start;
  for (std::size_t i = start; i < out.size(); ++i) {
    if (out[i].end > out[i].begin) {
      out[kept++] = {out[i].begin + offset, out[i].end + offset};
    }
  }
  out.resize(kept);
}

}  // namespace trine::text
