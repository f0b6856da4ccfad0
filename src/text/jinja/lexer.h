// Template text to tokens, with the settings Transformers uses: trim_blocks and lstrip_blocks on,
// newlines normalised, one trailing newline dropped. Errors: corrupt_data with line and column.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::text::jinja {

struct Pos {
  std::uint32_t line = 1;
  std::uint32_t column = 1;  // in bytes
};

enum class TokenType : std::uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  Pos pos;
  std::string text;  // data, name, unescaped string or operator spelling
  std::int64_t integer = 0;
  double number = 0;
};

Result<std::vector<Token>> tokenize(std::string_view source);

// Prefixes "line L, column C: " to an error's message.
Error located(Error error, Pos pos);

}  // namespace trine::text::jinja
