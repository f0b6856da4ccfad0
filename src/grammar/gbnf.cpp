#include "grammar/gbnf.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/limits.h"
#include "grammar/scanner.h"
#include "text/unicode.h"

namespace trine::grammar {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Reader final : private Scanner {
 public:
  Reader(Ir& ir, std::string_view text) : Scanner(text), ir_(ir) {}

  Result<RuleId> run() {
    for (skip(true); pos_ < text_.size(); skip(true)) {
      TRINE_TRY(rule());
    }
    const auto root = ids_.find("root");
    if (root == ids_.end() || !ir_.rules()[root->second].defined) {
      return fail(ErrorCode::kInvalidArgument, "grammar: no rule \"root\"");
    }
    for (const auto& [id, pos] : used_) {
      if (!ir_.rules()[id].defined) {
        pos_ = pos;
        return wrong("rule \"{}\" is not defined", ir_.rules()[id].name);
      }
    }
    return root->second;
  }

 private:
  std::string where(std::size_t pos) const override {
    const std::string_view before = text_.substr(0, pos);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n');
    return fmt::format("grammar {}:{}", line,
                       start == std::string_view::npos ? pos + 1 : pos - start);
  }

  // Blanks and comments; line ends too where a rule goes on after them.
  void skip(bool lines) {
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '#') {
        const std::size_t end = text_.find('\n', pos_);
        pos_ = end == std::string_view::npos ? text_.size() : end;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    const std::size_t first = pos_;
    while (pos_ < text_.size() && is_name(text_[pos_])) {
      ++pos_;
    }
    return std::string(text_.substr(first, pos_ - first));
  }

  RuleId id_of(const std::string& name) {
    const auto [it, added] = ids_.emplace(name, 0);
    if (added) {
      it->second = ir_.add_rule(name);
    }
    return it->second;
  }

  Status rule() {
    const std::size_t start = pos_;
    const std::string rule_name = name();
    if (rule_name.empty()) {
      return wrong("a rule's name expected");
    }
    const RuleId id = id_of(rule_name);
    if (ir_.rules()[id].defined) {
      pos_ = start;
      return wrong("rule \"{}\" is defined twice", rule_name);
    }
    skip(false);
    if (!take("::=")) {
      return wrong("'::=' expected");
    }
    skip(true);
    TRINE_TRY_ASSIGN(const NodeId body, alternatives(0));
    if (pos_ < text_.size() && !at("\n") && !at("\r")) {
      return wrong("'{}' does not fit here", text_[pos_]);
    }
    ir_.define(id, body);
    return ir_.check(where(pos_));
  }

  // Depth of the recursion: kMaxNesting.
  Result<NodeId> alternatives(int depth) {
    std::vector<NodeId> ways;
    do {
      skip(true);
      TRINE_TRY_ASSIGN(const NodeId way, sequence(depth));
      ways.push_back(way);
    } while (take("|"));
    return ir_.alt(ways);
  }

  Result<NodeId> sequence(int depth) {
    std::vector<NodeId> parts;
    while (pos_ < text_.size() && !at("|") && !at(")") && !at("\n") && !at("\r")) {
      TRINE_TRY_ASSIGN(NodeId one, element(depth));
      for (skip(depth > 0); at("*") || at("+") || at("?") || at("{"); skip(depth > 0)) {
        TRINE_TRY_ASSIGN(one, repeated(one));
      }
      parts.push_back(one);
      TRINE_TRY(ir_.check(where(pos_)));
      // A next line that begins with '|' goes on with this rule, as llama.cpp's grammars are
      // written.
      if (depth == 0) {
        const std::size_t here = pos_;
        skip(true);
        if (!at("|")) {
          pos_ = here;
        }
      }
    }
    return ir_.seq(parts);
  }

  Result<NodeId> element(int depth) {
    const char c = text_[pos_];
    if (c == '"') {
      return quoted();
    }
    if (c == '[') {
      return bracket();
    }
    if (c == '.') {
      ++pos_;
      return ir_.code_points(complement({}));
    }
    if (c == '(') {
      if (depth >= kMaxNesting) {
        return fail(ErrorCode::kExhausted, "{}: groups nested deeper than {}", where(pos_),
                    kMaxNesting);
      }
      const std::size_t open = pos_++;
      TRINE_TRY_ASSIGN(const NodeId inner, alternatives(depth + 1));
      skip(true);
      if (!take(")")) {
        pos_ = open;
        return wrong("'(' without ')'");
      }
      return inner;
    }
    const std::size_t start = pos_;
    const std::string rule_name = name();
    if (rule_name.empty()) {
      return wrong("'{}' does not fit here", c);
    }
    const RuleId id = id_of(rule_name);
    used_.emplace_back(id, start);
    return ir_.ref(id);
  }

  Result<NodeId> repeated(NodeId one) {
    if (take("*")) {
      return ir_.repeat(one, 0, kUnbounded);
    }
    if (take("+")) {
      return ir_.repeat(one, 1, kUnbounded);
    }
    if (take("?")) {
      return ir_.optional(one);
    }
    ++pos_;
    skip(false);
    std::uint32_t min = 0;
    if (!at(",")) {
      TRINE_TRY_ASSIGN(min, number());
    }
    skip(false);
    std::uint32_t max = min;
    if (take(",")) {
      skip(false);
      max = kUnbounded;
      if (!at("}")) {
        TRINE_TRY_ASSIGN(max, number());
      }
    }
    skip(false);
    if (!take("}")) {
      return wrong("'{{' without '}}'");
    }
    if (min > max) {
      return wrong("{{{},{}}} is empty", min, max);
    }
    return ir_.repeat(one, min, max);
  }

  Result<char32_t> character() {
    if (!take("\\")) {
      const auto cp = text::code_point_at(text_, pos_);
      pos_ += cp.size;
      return cp.value;
    }
    const char c = pos_ < text_.size() ? text_[pos_++] : ' ';
    switch (c) {
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case 'n':
        return U'\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '^':
      case '-':
      case '/':
        return static_cast<char32_t>(c);
      default:
        --pos_;
        return wrong("unknown escape '\\{}'", c);
    }
  }

  Result<NodeId> quoted() {
    const std::size_t open = pos_++;
    std::string bytes;
    while (pos_ < text_.size() && !at("\"") && !at("\n")) {
      TRINE_TRY_ASSIGN(const char32_t c, character());
      text::append_utf8(bytes, c);
    }
    if (!take("\"")) {
      pos_ = open;
      return wrong("'\"' without an end on its line");
    }
    return ir_.literal(bytes);
  }

  Result<NodeId> bracket() {
    const std::size_t open = pos_++;
    const bool negated = take("^");
    std::vector<CodeRange> set;
    while (pos_ < text_.size() && !at("]")) {
      TRINE_TRY_ASSIGN(const char32_t low, character());
      char32_t high = low;
      if (at("-") && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        TRINE_TRY_ASSIGN(high, character());
        if (high < low) {
          return wrong("a range that is empty");
        }
      }
      set.push_back({low, high});
    }
    if (!take("]")) {
      pos_ = open;
      return wrong("'[' without ']'");
    }
    set = normalize_ranges(set);
    return ir_.code_points(negated ? complement(set) : set);
  }

  Ir& ir_;
  std::unordered_map<std::string, RuleId> ids_;
  std::vector<std::pair<RuleId, std::size_t>> used_;
};

}  // namespace

Result<RuleId> read_gbnf(Ir& ir, std::string_view text) {
  if (text.size() > kMaxSourceBytes) {
    return fail(ErrorCode::kExhausted, "grammar: {} bytes, at most {}", text.size(),
                kMaxSourceBytes);
  }
  TRINE_TRY(text::check_utf8(text, "grammar"));
  return Reader(ir, text).run();
}

}  // namespace trine::grammar
