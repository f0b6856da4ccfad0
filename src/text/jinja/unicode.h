// Character classes and case mapping as Python's str has them (Unicode 14 through utf8proc, special
// casing included). Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace trine::text::jinja {

// Decodes the code point at `pos` and moves past it. Invalid bytes come back one at a time as
// U+FFFD.
char32_t next_code_point(std::string_view text, std::size_t& pos);
// Writes up to 4 bytes to `out`, returns how many.
std::size_t encode_utf8(char32_t c, char* out);
std::size_t count_code_points(std::string_view text);
bool is_valid_utf8(std::string_view text);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_case_ignorable(char32_t c);
bool is_printable(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);
bool is_line_break(char32_t c);  // where str.splitlines() cuts

// Full case mapping: up to three code points.
struct CaseMap {
  char32_t c[3] = {0, 0, 0};
  int n = 1;
};

CaseMap to_upper(char32_t c);
CaseMap to_lower(char32_t c);
CaseMap to_title(char32_t c);

}  // namespace trine::text::jinja
