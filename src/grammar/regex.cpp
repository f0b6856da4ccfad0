#include "grammar/regex.h"

#include <optional>
#include <string>
#include <vector>

#include "grammar/json_text.h"
#include "grammar/limits.h"
#include "grammar/scanner.h"
#include "text/unicode.h"

namespace trine::grammar {
namespace {

using Ranges = std::vector<CodeRange>;

class Reader final : private Scanner {
 public:
  Reader(Ir& ir, std::string_view text, RegexUse use, std::string_view place)
      : Scanner(text), ir_(ir), use_(use), place_(place) {}

  Result<NodeId> run() {
    TRINE_TRY_ASSIGN(const NodeId all, alternatives(0));
    if (pos_ < text_.size()) {
      return wrong("')' without '('");
    }
    TRINE_TRY(ir_.check(where(text_.size())));
    return all;
  }

 private:
  std::string where(std::size_t pos) const override {
    return fmt::format("{} offset {}", place_, pos);
  }

  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::kUnsupported, "{}: {} not supported", where(pos_), what);
  }

  NodeId chars(const Ranges& ranges) {
    return use_ == RegexUse::kJsonSearch ? json_chars(ir_, ranges) : ir_.code_points(ranges);
  }

  NodeId anything() { return ir_.repeat(chars(complement({})), 0, kUnbounded); }

  // Depth of the recursion: kMaxNesting.
  Result<NodeId> alternatives(int depth) {
    std::vector<NodeId> ways;
    do {
      TRINE_TRY_ASSIGN(const NodeId way, sequence(depth));
      ways.push_back(way);
    } while (take("|"));
    return ir_.alt(ways);
  }

  Result<NodeId> sequence(int depth) {
    std::vector<NodeId> parts;
    const bool from_start = depth == 0 && take("^");
    if (depth == 0 && !from_start && use_ == RegexUse::kJsonSearch) {
      parts.push_back(anything());
    }
    bool to_end = false;
    while (pos_ < text_.size() && !at("|") && !at(")")) {
      if (at("$")) {
        if (depth > 0 || (pos_ + 1 < text_.size() && text_[pos_ + 1] != '|')) {
          return refuse(
              "an anchor that is not at the end of the whole pattern or of a top-level alternative "
              "is");
        }
        ++pos_;
        to_end = true;
        break;
      }
      TRINE_TRY_ASSIGN(const NodeId one, atom(depth));
      TRINE_TRY_ASSIGN(const NodeId many, quantified(one));
      parts.push_back(many);
      TRINE_TRY(ir_.check(where(pos_)));
    }
    if (depth == 0 && !to_end && use_ == RegexUse::kJsonSearch) {
      parts.push_back(anything());
    }
    return ir_.seq(parts);
  }

  Result<NodeId> atom(int depth) {
    const char c = text_[pos_];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return bracket();
      case '.':
        ++pos_;
        return chars(complement({{U'\n', U'\n'}}));
      case '^':
        return refuse(
            "an anchor that is not at the start of the whole pattern or of a top-level alternative "
            "is");
      case '*':
      case '+':
      case '?':
        return wrong("nothing to repeat before '{}'", c);
      case '{':
        return wrong("'{{' is a repetition; write \\{{ for the character");
      case '\\': {
        TRINE_TRY_ASSIGN(const Ranges set, escape());
        return chars(set);
      }
      default: {
        const auto cp = text::code_point_at(text_, pos_);
        pos_ += cp.size;
        return chars({{cp.value, cp.value}});
      }
    }
  }

  Result<NodeId> group(int depth) {
    if (depth >= kMaxNesting) {
      return fail(ErrorCode::kExhausted, "{}: groups nested deeper than {}", where(pos_),
                  kMaxNesting);
    }
    if (at("(?=") || at("(?!") || at("(?<=") || at("(?<!")) {
      return refuse("look-around is");
    }
    const std::size_t open = pos_;
    if (!take("(?:")) {
      if (take("(?P<") || take("(?<")) {
        const std::size_t end = text_.find('>', pos_);
        if (end == std::string_view::npos) {
          return wrong("a group's name without '>'");
        }
        pos_ = end + 1;
      } else if (at("(?P=")) {
        return refuse("a backreference is");
      } else if (at("(?") || at("(*")) {
        return refuse("an inline flag, conditional or verb is");
      } else {
        ++pos_;
      }
    }
    TRINE_TRY_ASSIGN(const NodeId inner, alternatives(depth + 1));
    if (!take(")")) {
      pos_ = open;
      return wrong("'(' without ')'");
    }
    return inner;
  }

  Result<NodeId> quantified(NodeId one) {
    std::uint32_t min = 0;
    std::uint32_t max = kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      TRINE_TRY_ASSIGN(min, number());
      max = min;
      if (take(",")) {
        max = kUnbounded;
        if (!at("}")) {
          TRINE_TRY_ASSIGN(max, number());
        }
      }
      if (!take("}")) {
        return wrong("'{{' without '}}'");
      }
      if (min > max) {
        return wrong("{{{},{}}} is empty", min, max);
      }
    } else {
      return one;
    }
    // Lazy or not is about which match is found, not about which texts match.
    if (!take("?") && at("+")) {
      return refuse("a possessive quantifier is");
    }
    if (at("*") || at("+") || at("?") || at("{")) {
      return wrong("a quantifier after a quantifier");
    }
    return ir_.repeat(one, min, max);
  }

  static Ranges class_of(char letter) {
    switch (letter) {
      case 'd':
        return {{U'0', U'9'}};
      case 'w':
        return {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
      default:
        return {{U'\t', U'\r'}, {U' ', U' '}};
    }
  }

  Result<Ranges> escape() {
    if (pos_ + 1 >= text_.size()) {
      return wrong("'\\' at the end");
    }
    const char c = text_[pos_ + 1];
    const auto one = [&](char32_t value) {
      pos_ += 2;
      return Ranges{{value, value}};
    };
    switch (c) {
      case 'd':
      case 'w':
      case 's':
        pos_ += 2;
        return class_of(c);
      case 'D':
      case 'W':
      case 'S':
        pos_ += 2;
        return complement(class_of(static_cast<char>(c - 'A' + 'a')));
      case 'n':
        return one(U'\n');
      case 'r':
        return one(U'\r');
      case 't':
        return one(U'\t');
      case 'f':
        return one(U'\f');
      case 'v':
        return one(U'\v');
      case '0':
        return one(0);
      case 'x':
      case 'u':
      case 'U': {
        pos_ += 2;
        TRINE_TRY_ASSIGN(const char32_t value, hex(c == 'x' ? 2 : c == 'u' ? 4 : 8));
        return Ranges{{value, value}};
      }
      case 'b':
      case 'B':
        return refuse("a word boundary (\\b, \\B) is");
      case 'k':
        return refuse("a backreference is");
      case 'p':
      case 'P':
        return refuse("a Unicode property (\\p) is");
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      return refuse("a backreference is");
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80) {
      return refuse("this escape is");
    }
    return one(static_cast<char32_t>(c));
  }

  // One member of a bracket: a character, or a class (then it cannot be an end of a range).
  Result<Ranges> member() {
    if (at("\\b")) {
      pos_ += 2;
      return Ranges{{U'\b', U'\b'}};
    }
    if (at("\\")) {
      return escape();
    }
    if (at("[:")) {
      return refuse("a POSIX class is");
    }
    const auto cp = text::code_point_at(text_, pos_);
    pos_ += cp.size;
    return Ranges{{cp.value, cp.value}};
  }

  Result<NodeId> bracket() {
    const std::size_t open = pos_++;
    const bool negated = take("^");
    Ranges set;
    if (at("]")) {
      return wrong("an empty class; write \\] for the character");
    }
    while (pos_ < text_.size() && !at("]")) {
      TRINE_TRY_ASSIGN(Ranges low, member());
      if (at("-") && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        TRINE_TRY_ASSIGN(const Ranges high, member());
        const auto single = [](const Ranges& r) { return r.size() == 1 && r[0].low == r[0].high; };
        if (!single(low) || !single(high) || low[0].low > high[0].low) {
          return wrong("a range that is empty or has a class as an end");
        }
        low[0].high = high[0].low;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    if (!take("]")) {
      pos_ = open;
      return wrong("'[' without ']'");
    }
    set = normalize_ranges(set);
    return chars(negated ? complement(set) : set);
  }

  Ir& ir_;
  RegexUse use_;
  std::string_view place_;
};

}  // namespace

Result<NodeId> read_regex(Ir& ir, std::string_view pattern, RegexUse use, std::string_view place) {
  if (pattern.size() > kMaxSourceBytes) {
    return fail(ErrorCode::kExhausted, "{}: {} bytes, at most {}", place, pattern.size(),
                kMaxSourceBytes);
  }
  TRINE_TRY(text::check_utf8(pattern, place));
  return Reader(ir, pattern, use, place).run();
}

}  // namespace trine::grammar
