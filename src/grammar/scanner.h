// What the readers of notations share: a place in a text, and errors that name it.
// Thread rule: belongs to one reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "grammar/limits.h"

namespace trine::grammar {

class Scanner {
 protected:
  explicit Scanner(std::string_view text) : text_(text) {}

  ~Scanner() = default;

  // How errors name byte `pos`.
  virtual std::string where(std::size_t pos) const = 0;

  template <typename... Args>
  tl::unexpected<Error> wrong(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", where(pos_),
                fmt::format(text, std::forward<Args>(args)...));
  }

  bool at(std::string_view token) const { return text_.substr(pos_).starts_with(token); }

  bool take(std::string_view token) {
    if (!at(token)) {
      return false;
    }
    pos_ += token.size();
    return true;
  }

  // A count of {m,n}. Errors: invalid_argument without a digit, exhausted above kMaxRepeat.
  Result<std::uint32_t> number() {
    const std::size_t first = pos_;
    std::uint32_t value = 0;
    for (; pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9'; ++pos_) {
      value = value * 10 + static_cast<std::uint32_t>(text_[pos_] - '0');
      if (value > kMaxRepeat) {
        return fail(ErrorCode::kExhausted, "{}: {} repetitions or more, at most {}", where(first),
                    value, kMaxRepeat);
      }
    }
    if (pos_ == first) {
      return wrong("a number is missing in {{m,n}}");
    }
    return value;
  }

  // The character that so many hexadecimal digits name. Errors: invalid_argument.
  Result<char32_t> hex(std::size_t num_digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < num_digits; ++i, ++pos_) {
      const char c = pos_ < text_.size() ? text_[pos_] : ' ';
      const std::size_t digit = std::string_view("0123456789abcdef")
                                    .find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (digit == std::string_view::npos) {
        return wrong("{} hexadecimal digits expected", num_digits);
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      return wrong("U+{:04X} is not a character", static_cast<unsigned>(value));
    }
    return value;
  }

  std::string_view text_;
  std::size_t pos_ = 0;
};

}  // namespace trine::grammar
