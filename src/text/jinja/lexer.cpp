#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/unicode.h"

namespace trine::text::jinja {

Error located(Error error, Pos pos) {
  error.message = fmt::format("line {}, column {}: {}", pos.line, pos.column, error.message);
  return error;
}

namespace {

constexpr std::size_t kNone = std::string_view::npos;

std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1U : 0U;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

bool ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (ascii_digit(c)) {
    return c - '0';
  }
  const int lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), text_(source_) {}

  Result<std::vector<Token>> run() {
    while (pos_ < text_.size()) {
      TRINE_TRY(root());
    }
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Keeps line and column in step with pos_.
  void advance_to(std::size_t to) {
    for (; pos_ < to; ++pos_) {
      if (text_[pos_] == '\n') {
        ++at_.line;
        at_.column = 1;
      } else {
        ++at_.column;
      }
    }
  }

  void push(TokenType type, std::string text) {
    tokens_.push_back({type, at_, std::move(text), 0, 0});
  }

  tl::unexpected<Error> error(std::string_view message) const {
    return tl::unexpected<Error>(located(Error{ErrorCode::kCorruptData, message}, at_));
  }

  bool looking_at(std::size_t p, std::string_view what) const {
    return text_.substr(p, what.size()) == what;
  }

  std::size_t skip_space(std::size_t p) const {
    while (p < text_.size()) {
      std::size_t next = p;
      if (!is_space(next_code_point(text_, next))) {
        break;
      }
      p = next;
    }
    return p;
  }

  std::size_t rstrip(std::size_t from, std::size_t to) const {
    std::size_t end = from;
    for (std::size_t p = from; p < to;) {
      if (!is_space(next_code_point(text_, p))) {
        end = p;
      }
    }
    return end;
  }

  // Text [from, to) before a tag whose opening sign is `sign`, with what whitespace control removes
  // taken off.
  std::string_view before_tag(std::size_t from, std::size_t to, char sign, bool variable) const {
    if (sign == '-') {
      return text_.substr(from, rstrip(from, to) - from);
    }
    if (sign != '+' && !variable) {
      const std::string_view data = text_.substr(from, to - from);
      const std::size_t newline = data.rfind('\n');
      const std::size_t line = newline == kNone ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && skip_space(from + line) >= to) {
        return data.substr(0, line);
      }
    }
    return text_.substr(from, to - from);
  }

  void push_data(std::string_view data) {
    if (!data.empty()) {
      push(TokenType::kData, std::string(data));
    }
  }

  char sign_at(std::size_t p) const {
    return p < text_.size() && (text_[p] == '-' || text_[p] == '+') ? text_[p] : '\0';
  }

  // Where the closing of a tag at `p` ends, or npos when none starts there. trim_blocks eats one
  // newline.
  std::size_t close_at(std::size_t p, std::string_view close, bool block) const {
    if (block && p < text_.size() && text_[p] == '+' && looking_at(p + 1, close)) {
      return p + 1 + close.size();
    }
    if (p < text_.size() && text_[p] == '-' && looking_at(p + 1, close)) {
      return skip_space(p + 1 + close.size());
    }
    if (looking_at(p, close)) {
      p += close.size();
      return p + (block && p < text_.size() && text_[p] == '\n' ? 1U : 0U);
    }
    return kNone;
  }

  void finish_tag(std::size_t end) {
    line_starting_ = end > 0 && text_[end - 1] == '\n';
    advance_to(end);
  }

  Status root() {
    std::size_t tag = pos_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == kNone || tag + 1 >= text_.size()) {
        push_data(text_.substr(pos_));
        advance_to(text_.size());
        return {};
      }
      const char c = text_[tag + 1];
      if (c == '%' || c == '{' || c == '#') {
        break;
      }
    }
    const char kind = text_[tag + 1];
    const char sign = sign_at(tag + 2);
    push_data(before_tag(pos_, tag, sign, kind == '{'));
    advance_to(tag);
    const std::size_t inside = tag + 2 + (sign != '\0' ? 1U : 0U);
    if (kind == '#') {
      return comment(inside);
    }
    if (kind == '%') {
      if (const std::size_t body = raw_begin(inside); body != kNone) {
        return raw(body);
      }
    }
    push(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    advance_to(inside);
    return tag_tokens(kind == '%');
  }

  Status comment(std::size_t inside) {
    for (std::size_t p = inside;; ++p) {
      p = text_.find("#}", p);
      if (p == kNone) {
        return error("the comment that starts here has no end");
      }
      const std::size_t start =
          p > inside && (text_[p - 1] == '-' || text_[p - 1] == '+') ? p - 1 : p;
      finish_tag(close_at(start, "#}", true));
      return {};
    }
  }

  // Where the body of a raw block starts when its opening tag continues at `p`.
  std::size_t raw_begin(std::size_t p) const {
    p = skip_space(p);
    if (!looking_at(p, "raw")) {
      return kNone;
    }
    p = skip_space(p + 3);
    if (looking_at(p, "-%}")) {
      return skip_space(p + 3);
    }
    return looking_at(p, "%}") ? p + 2 : kNone;
  }

  Status raw(std::size_t body) {
    for (std::size_t p = body;; p += 2) {
      p = text_.find("{%", p);
      if (p == kNone) {
        return error("the raw block that starts here has no endraw");
      }
      const char sign = sign_at(p + 2);
      std::size_t q = skip_space(p + 2 + (sign != '\0' ? 1U : 0U));
      if (!looking_at(q, "endraw")) {
        continue;
      }
      q = close_at(skip_space(q + 6), "%}", true);
      if (q == kNone) {
        continue;
      }
      line_starting_ = text_[body - 1] == '\n';
      advance_to(body);
      push_data(before_tag(body, p, sign, false));
      finish_tag(q);
      return {};
    }
  }

  Status tag_tokens(bool block) {
    std::string open;  // brackets not closed yet
    const std::string_view close = block ? "%}" : "}}";
    while (true) {
      if (open.empty()) {
        if (const std::size_t end = close_at(pos_, close, block); end != kNone) {
          push(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          finish_tag(end);
          return {};
        }
      }
      if (pos_ >= text_.size()) {
        return error(fmt::format("the template ends inside a tag, '{}' is missing", close));
      }
      const std::size_t after_space = skip_space(pos_);
      if (after_space != pos_) {
        advance_to(after_space);
        continue;
      }
      TRINE_TRY(one_token(open));
    }
  }

  Status one_token(std::string& open) {
    const char c = text_[pos_];
    if (ascii_digit(c)) {
      return number();
    }
    if (c == '\'' || c == '"') {
      return string();
    }
    std::size_t end = pos_;
    if (is_identifier_start(next_code_point(text_, end))) {
      std::size_t next = end;
      while (next < text_.size() && is_identifier_part(next_code_point(text_, next))) {
        end = next;
      }
      push(TokenType::kName, std::string(text_.substr(pos_, end - pos_)));
      advance_to(end);
      return {};
    }
    return op(open);
  }

  Status op(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view o : kOperators) {
      if (!looking_at(pos_, o)) {
        continue;
      }
      if (o == "{" || o == "(" || o == "[") {
        open += o == "{" ? '}' : o == "(" ? ')' : ']';
      } else if (o == "}" || o == ")" || o == "]") {
        if (open.empty() || open.back() != o[0]) {
          return error(fmt::format("unexpected '{}'", o));
        }
        open.pop_back();
      }
      push(TokenType::kOperator, std::string(o));
      advance_to(pos_ + o.size());
      return {};
    }
    std::size_t end = pos_;
    next_code_point(text_, end);
    return error(fmt::format("unexpected character '{}'", text_.substr(pos_, end - pos_)));
  }

  // Digits with single underscores between them, from `p`.
  template <typename IsDigit>
  std::size_t digits(std::size_t p, bool leading_underscore, IsDigit is_digit_char) const {
    const std::size_t start = p;
    while (p < text_.size()) {
      if (is_digit_char(text_[p])) {
        ++p;
      } else if (text_[p] == '_' && (p > start || leading_underscore) && p + 1 < text_.size() &&
                 is_digit_char(text_[p + 1])) {
        p += 2;
      } else {
        break;
      }
    }
    return p;
  }

  // End of a float literal at pos_, or npos.
  std::size_t float_end() const {
    if (pos_ > 0 && text_[pos_ - 1] == '.') {
      return kNone;
    }
    std::size_t p = digits(pos_, false, ascii_digit);
    bool is_float = false;
    if (p + 1 < text_.size() && text_[p] == '.' && ascii_digit(text_[p + 1])) {
      p = digits(p + 1, false, ascii_digit);
      is_float = true;
    }
    if (p < text_.size() && (text_[p] | 0x20) == 'e') {
      std::size_t q = p + 1;
      q += q < text_.size() && (text_[q] == '+' || text_[q] == '-') ? 1U : 0U;
      if (q < text_.size() && ascii_digit(text_[q])) {
        return digits(q, false, ascii_digit);
      }
    }
    return is_float ? p : kNone;
  }

  Status number() {
    std::size_t end = float_end();
    const bool is_float = end != kNone;
    int base = 10;
    std::size_t start = pos_;
    if (!is_float) {
      const int mark = text_[pos_] == '0' && pos_ + 1 < text_.size() ? text_[pos_ + 1] | 0x20 : 0;
      const int prefixed = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      const auto in_base = [&](char c) {
        const int v = hex_value(c);
        return v >= 0 && v < (prefixed != 0 ? prefixed : 10);
      };
      if (prefixed != 0 && digits(pos_ + 2, true, in_base) > pos_ + 2) {
        base = prefixed;
        start = pos_ + 2;
        end = digits(start, true, in_base);
      } else if (text_[pos_] == '0') {
        end = digits(pos_, false, [](char c) { return c == '0'; });
      } else {
        end = digits(pos_, false, ascii_digit);
      }
    }
    std::string clean(text_.substr(start, end - start));
    clean.erase(std::remove(clean.begin(), clean.end(), '_'), clean.end());
    Token token{is_float ? TokenType::kFloat : TokenType::kInteger, at_, clean, 0, 0};
    const char* last = clean.data() + clean.size();
    if (is_float) {
      const auto r = std::from_chars(clean.data(), last, token.number);
      if (r.ec == std::errc::result_out_of_range) {
        token.number = std::strtod(clean.c_str(), nullptr);
      }
    } else if (std::from_chars(clean.data(), last, token.integer, base).ec != std::errc()) {
      return error(fmt::format("integer {} does not fit 64 bits", clean));
    }
    tokens_.push_back(std::move(token));
    advance_to(end);
    return {};
  }

  Status string() {
    const char quote = text_[pos_];
    std::size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) {
      end += text_[end] == '\\' ? 2U : 1U;
    }
    if (end >= text_.size()) {
      return error("the text literal that starts here has no end");
    }
    const auto body = text_.substr(pos_ + 1, end - pos_ - 1);
    std::string out;
    for (std::size_t i = 0; i < body.size();) {
      if (body[i] != '\\') {
        out += body[i++];
      } else {
        TRINE_TRY(escape(body, i, out));
      }
    }
    push(TokenType::kString, std::move(out));
    advance_to(end + 1);
    return {};
  }

  // One backslash escape of body at `i`.
  Status escape(std::string_view body, std::size_t& i, std::string& out) const {
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = body[i + 1];  // the literal's end was found past it
    if (const std::size_t name = kNames.find(c); name != kNone) {
      out += kValues[name];
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      unsigned value = 0;
      std::size_t n = 1;
      for (; n <= 3 && i + n < body.size() && body[i + n] >= '0' && body[i + n] <= '7'; ++n) {
        value = value * 8 + static_cast<unsigned>(body[i + n] - '0');
      }
      append(value, out);
      i += n;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      std::uint32_t value = 0;
      for (std::size_t k = 0; k < want; ++k) {
        const int h = i + 2 + k < body.size() ? hex_value(body[i + 2 + k]) : -1;
        if (h < 0) {
          return error(fmt::format("escape \\{} needs {} hexadecimal digits", c, want));
        }
        value = value * 16 + static_cast<std::uint32_t>(h);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
        return error(fmt::format("escape \\{} names {:#x}, which is no character", c, value));
      }
      append(value, out);
      i += 2 + want;
    } else if (c == 'N') {
      return error("character names (\\N{...}) in text literals are not supported");
    } else {
      out += '\\';  // Python keeps what it does not know
      ++i;
    }
    return {};
  }

  static void append(std::uint32_t value, std::string& out) {
    char buffer[4];
    out.append(buffer, encode_utf8(value, buffer));
  }

  std::string source_;
  std::string_view text_;
  std::size_t pos_ = 0;
  Pos at_;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace trine::text::jinja
