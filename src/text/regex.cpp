#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <cstdint>

#include <pcre2.h>

namespace trine::text {
namespace {

constexpr std::size_t kMaxPatternBytes = 16384;
// Steps of one attempt: enough for a possessive-free run over the whole text, little enough for
// small texts to fail fast.
constexpr std::size_t kMatchLimitMax = 10'000'000;
constexpr std::size_t kMatchLimitBase = 100'000;
constexpr std::size_t kMatchLimitPerByte = 8;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 65536;
constexpr std::size_t kJitStackMax = std::size_t{8} << 20;

// White_Space and its complement as class contents; PCRE2's own \s adds U+180E.
constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaceSet =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Oniguruma's \w: Alphabetic, marks, decimal digits, connector punctuation, and of the other
// numbers those of Latin-1.
constexpr std::string_view kWordSet =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

// Rewrites a pattern from Oniguruma's dialect to PCRE2's.
class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) {
      TRINE_TRY(in_class_ ? class_item() : item());
    }
    if (in_class_) {
      return refuse("an unclosed [");
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::kUnsupported, "regular expression {}: {} at byte {} is not supported",
                quoted(), what, pos_);
  }

  std::string quoted() const {
    return fmt::format("\"{}{}\"", in_.substr(0, 120), in_.size() > 120 ? "..." : "");
  }

  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0';
  }

  void copy(std::size_t count = 1) {
    out_ += in_.substr(pos_, count);
    pos_ += count;
  }

  Status item() {
    const char c = peek();
    switch (c) {
      case '\\':
        return escape(false);
      case '[':
        in_class_ = true;
        copy();
        if (peek() == '^') {
          copy();
        }
        if (peek() == ']') {
          return refuse("an empty character class");
        }
        return {};
      case '(':
        return group();
      case '^':  // line anchors: in Ruby's syntax they always see inner lines
      case '$':
        out_ += c == '^' ? "(?m:^)" : "(?m:$)";
        ++pos_;
        return {};
      case '{':
        return interval();
      default:
        copy();
        return {};
    }
  }

  Status group() {
    if (peek(1) == '*') {
      return refuse("(*");
    }
    if (peek(1) != '?') {
      copy();
      return {};
    }
    for (const std::string_view open :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (in_.substr(pos_).starts_with(open)) {
        copy(open.size());
        return {};
      }
    }
    return refuse("this kind of group");
  }

  // {n}, {n,}, {n,m} mean the same; {,m} and a possessive {n,m}+ do not.
  Status interval() {
    std::size_t i = 1;
    const auto digits = [&] {
      const std::size_t begin = i;
      while (peek(i) >= '0' && peek(i) <= '9') {
        ++i;
      }
      return i > begin;
    };
    if (!digits()) {
      return refuse("a { that opens no repeat count");
    }
    if (peek(i) == ',') {
      ++i;
      digits();
    }
    if (peek(i) != '}') {
      return refuse("a { that opens no repeat count");
    }
    ++i;
    if (peek(i) == '+') {
      return refuse("+ after a repeat count");
    }
    copy(i);
    return {};
  }

  Status class_item() {
    const char c = peek();
    if (c == ']') {
      in_class_ = false;
      copy();
      return {};
    }
    if (c == '[') {
      return refuse("[ inside a character class");
    }
    if (c == '&' && peek(1) == '&') {
      return refuse("&& inside a character class");
    }
    if (c == '\\') {
      return escape(true);
    }
    copy();
    return {};
  }

  void put_set(std::string_view set, bool negated, bool inside) {
    if (inside) {
      out_ += set;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += set;
      out_ += ']';
    }
    pos_ += 2;
  }

  void put(std::string_view text) {
    out_ += text;
    pos_ += 2;
  }

  Status escape(bool inside) {
    const char c = peek(1);
    switch (c) {
      case 's':
        put_set(kSpaceSet, false, inside);
        return {};
      case 'S':
        put_set(kNotSpaceSet, false, inside);
        return {};
      case 'w':
        put_set(kWordSet, false, inside);
        return {};
      case 'W':
        if (inside) {
          return refuse("\\W inside a character class");
        }
        put_set(kWordSet, true, inside);
        return {};
      case 'd':
        put("\\p{Nd}");
        return {};
      case 'D':
        put("\\P{Nd}");
        return {};
      case 'v':
        put("\\x0b");
        return {};
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        copy(2);
        return {};
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code(c);
      default:
        break;
    }
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '\0' || alphanumeric || static_cast<unsigned char>(c) >= 0x80) {
      return refuse(
          fmt::format("\\{}", c == '\0' || static_cast<unsigned char>(c) >= 0x80 ? ' ' : c));
    }
    copy(2);
    return {};
  }

  Status property() {
    const std::size_t close = in_.find('}', pos_);
    if (peek(2) != '{' || close == std::string_view::npos) {
      return refuse("a property without braces");
    }
    copy(close + 1 - pos_);
    return {};
  }

  // \xHH below 0x80, \x{H...}, \uHHHH.
  Status code(char kind) {
    std::size_t begin = pos_ + 2;
    std::size_t end = 0;
    std::size_t after = 0;
    if (kind == 'x' && peek(2) == '{') {
      ++begin;
      end = in_.find('}', begin);
      if (end == std::string_view::npos) {
        return refuse("an unclosed \\x{");
      }
      after = end + 1;
    } else {
      end = begin + (kind == 'x' ? 2U : 4U);
      after = end;
    }
    std::uint32_t value = 0;
    if (end > in_.size() || end == begin || end - begin > 6) {
      return refuse("a bad character code");
    }
    for (std::size_t i = begin; i < end; ++i) {
      const char c = in_[i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        return refuse("a bad character code");
      }
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    if (kind == 'x' && after == end && value >= 0x80) {
      return refuse("a \\xHH above 7f");
    }
    out_ += fmt::format("\\x{{{:x}}}", value);
    pos_ = after;
    return {};
  }

  std::string_view in_;
  std::string out_;
  std::size_t pos_ = 0;
  bool in_class_ = false;
};

std::string pcre_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* p) const { Free(p); }
};

using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code, pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Deleter<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context, pcre2_match_context_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data, pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack, pcre2_jit_stack_free>>;

// Finds all matches with work that is linear in the text.
//
// A pattern may make each attempt look at the whole rest of the text, or backtrack up to its limit,
// at every position anew: quadratic and worse, although no attempt alone passes a limit. So the
// search runs in a window with few steps per attempt, which bounds the work per byte. Where an
// attempt wants more (it reaches the window's end, or its steps are used up), that one attempt gets
// twice as much until it ends, and all that it was given is charged to a budget for the whole text.
class Search {
 public:
  Search(const pcre2_code* free, const pcre2_code* anchored, std::string_view text)
      : free_(free),
        anchored_(anchored),
        text_(text),
        budget_(kBudgetBase + kBudgetPerByte * std::uint64_t{text.size()}),
        data_(pcre2_match_data_create_from_pattern(free, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {}

  bool prepare(bool jit) {
    stack_.reset(jit ? pcre2_jit_stack_create(32768, kJitStackMax, nullptr) : nullptr);
    if (!data_ || !context_ || (jit && !stack_)) {
      return false;
    }
    pcre2_set_depth_limit(context_.get(), kDepthLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    if (jit) {
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    }
    return true;
  }

  // The first match from `pos` on goes to `match`; false when there is none.
  Result<bool> next(std::size_t pos, Match& match) {
    while (true) {
      const std::size_t end = window_end(pos, kWindow);
      const int rc = run(free_, pos, end, kCheapSteps);
      if (rc == PCRE2_ERROR_NOMATCH) {
        if (end == text_.size()) {
          return false;
        }
        pos = end;
        continue;
      }
      std::size_t start = pos;
      if (rc >= 0 || rc == PCRE2_ERROR_PARTIAL) {
        match = found();
        if (rc >= 0 && (match.end < end || end == text_.size())) {
          return true;
        }
        start = match.begin;  // it would look beyond the window
      } else if (rc == PCRE2_ERROR_MATCHLIMIT) {
        start = first_costly(pos, end);
      } else {
        return gave_up(pos, rc);
      }
      TRINE_TRY_ASSIGN(const bool matches, one_attempt(start, match));
      if (matches || start >= text_.size()) {
        return matches;
      }
      pos = after(start);
    }
  }

 private:
  static constexpr std::size_t kWindow = 512;
  static constexpr std::uint32_t kCheapSteps = 256;
  // A run of one kind of character (spaces, letters) is one match over all of it: some looks per
  // byte, each charged up to four times by the doubling.
  static constexpr std::uint64_t kBudgetPerByte = 128;
  static constexpr std::uint64_t kBudgetBase = std::uint64_t{1} << 20;

  // Behind the character at `pos`.
  std::size_t after(std::size_t pos) const {
    for (++pos; pos < text_.size() && (static_cast<unsigned char>(text_[pos]) & 0xc0U) == 0x80U;) {
      ++pos;
    }
    return pos;
  }

  std::size_t window_end(std::size_t pos, std::size_t size) const {
    return text_.size() - pos <= size ? text_.size() : after(pos + size - 1);
  }

  int run(const pcre2_code* code, std::size_t pos, std::size_t end, std::uint32_t steps) {
    pcre2_set_match_limit(context_.get(), steps);
    // Before the text's end, what would look further says so instead of taking the window's end for
    // the text's.
    const std::uint32_t options =
        PCRE2_NO_UTF_CHECK | (end < text_.size() ? PCRE2_PARTIAL_HARD : 0U);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, pos, options,
                       data_.get(), context_.get());
  }

  Match found() const {
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data_.get());
    return {range[0], range[1]};
  }

  // The first position whose attempt does not simply fail within the cheap limits.
  std::size_t first_costly(std::size_t pos, std::size_t end) {
    while (pos < end && run(anchored_, pos, end, kCheapSteps) == PCRE2_ERROR_NOMATCH) {
      pos = after(pos);
    }
    return pos;
  }

  // The attempt at `pos` alone, with as much window and as many steps as it needs.
  Result<bool> one_attempt(std::size_t pos, Match& match) {
    const std::uint64_t most_steps =
        std::min(kMatchLimitMax, kMatchLimitBase + kMatchLimitPerByte * text_.size());
    std::uint64_t steps = kCheapSteps;
    std::size_t window = kWindow;
    while (true) {
      const std::size_t end = window_end(pos, window);
      const std::uint64_t cost = steps + (end - pos);
      if (cost > budget_) {
        return fail(ErrorCode::kExhausted,
                    "the pattern gave up at byte {} of the text: more work than {} "
                    "steps and {} for each of its {} bytes",
                    pos, kBudgetBase, kBudgetPerByte, text_.size());
      }
      budget_ -= cost;
      const int rc = run(anchored_, pos, end, static_cast<std::uint32_t>(steps));
      if (rc == PCRE2_ERROR_NOMATCH) {
        return false;
      }
      if (rc == PCRE2_ERROR_MATCHLIMIT && steps < most_steps) {
        steps = std::min(2 * steps, most_steps);
      } else if (rc == PCRE2_ERROR_PARTIAL ||
                 (rc >= 0 && end < text_.size() && found().end >= end)) {
        window *= 2;
      } else if (rc >= 0) {
        match = found();
        return true;
      } else {
        return gave_up(pos, rc);
      }
    }
  }

  static tl::unexpected<Error> gave_up(std::size_t pos, int rc) {
    return fail(ErrorCode::kExhausted, "the pattern gave up at byte {} of the text: {}", pos,
                pcre_message(rc));
  }

  const pcre2_code* free_;
  const pcre2_code* anchored_;
  const std::string_view text_;
  std::uint64_t budget_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

class PcreRegex final : public Regex {
 public:
  PcreRegex(Code free, Code anchored, bool jit)
      : free_(std::move(free)), anchored_(std::move(anchored)), jit_(jit) {}

  Result<std::vector<Match>> find_all(std::string_view text) const override {
    std::vector<Match> out;
    Search search(free_.get(), anchored_.get(), text);
    if (!search.prepare(jit_)) {
      return fail(ErrorCode::kExhausted, "out of memory for a regular expression");
    }
    std::size_t pos = 0;
    while (pos <= text.size()) {
      Match match;
      TRINE_TRY_ASSIGN(const bool matches, search.next(pos, match));
      if (!matches) {
        break;
      }
      if (match.end < match.begin || match.begin < pos) {
        return fail(ErrorCode::kUnsupported, "the pattern moves the start of its match");
      }
      out.push_back(match);
      pos = match.end;
      if (match.begin == match.end) {  // an empty match: go on behind the next character
        ++pos;
        while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xc0U) == 0x80U) {
          ++pos;
        }
      }
    }
    return out;
  }

 private:
  Code free_;
  Code anchored_;  // the same, for attempts at one position
  bool jit_;
};

}  // namespace

Result<std::string> Regex::translate(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kExhausted, "regular expression of {} bytes, at most {}", pattern.size(),
                kMaxPatternBytes);
  }
  return Translator(pattern).run();
}

Result<std::shared_ptr<const Regex>> Regex::compile(std::string_view pattern) {
  TRINE_TRY_ASSIGN(const std::string translated, translate(pattern));
  return compile_as_pcre2(translated);
}

Result<std::shared_ptr<const Regex>> Regex::compile_as_pcre2(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kExhausted, "regular expression of {} bytes, at most {}", pattern.size(),
                kMaxPatternBytes);
  }
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) {
    return fail(ErrorCode::kExhausted, "out of memory for a regular expression");
  }
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 50);
  Code codes[2];
  bool jit = true;
  for (const bool anchored : {false, true}) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    Code& compiled = codes[anchored ? 1 : 0];
    compiled.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (anchored ? PCRE2_ANCHORED : 0U), &code,
        &offset, context.get()));
    if (!compiled) {
      return fail(ErrorCode::kUnsupported, "regular expression \"{}\": {}", pattern.substr(0, 120),
                  pcre_message(code));
    }
    // Without the JIT (not on every platform) the interpreter gives the same matches.
    jit =
        pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0 && jit;
  }
  return std::make_shared<const PcreRegex>(std::move(codes[0]), std::move(codes[1]), jit);
}

}  // namespace trine::text
