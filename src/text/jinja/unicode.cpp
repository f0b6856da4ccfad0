#include "text/jinja/unicode.h"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

#include "text/jinja/unicode_tables.h"

namespace trine::text::jinja {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

template <std::size_t N>
bool in_ranges(const CodeRange (&table)[N], char32_t c) {
  const auto* it = std::upper_bound(std::begin(table), std::end(table), c,
                                    [](char32_t x, const CodeRange& r) { return x < r.first; });
  return it != std::begin(table) && c <= std::prev(it)->last;
}

template <std::size_t N>
bool special(const SpecialCase (&table)[N], char32_t c, CaseMap& out) {
  const auto* it = std::lower_bound(std::begin(table), std::end(table), c,
                                    [](const SpecialCase& s, char32_t x) { return s.c < x; });
  if (it == std::end(table) || it->c != c) {
    return false;
  }
  out.n = 0;
  for (const char32_t m : it->mapped) {
    if (m != 0) {
      out.c[out.n++] = m;
    }
  }
  return true;
}

CaseMap one(utf8proc_int32_t c) {
  CaseMap m;
  m.c[0] = static_cast<char32_t>(c);
  return m;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& pos) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(pos);
  if (lead < 0x80) {
    ++pos;
    return lead;
  }
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  char32_t c = lead & (0xFFU >> (size + 1));
  if (lead < 0xC2 || lead > 0xF4 || pos + size > text.size()) {
    ++pos;
    return 0xFFFD;
  }
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(pos + i) & 0xC0U) != 0x80U) {
      ++pos;
      return 0xFFFD;
    }
    c = (c << 6) | (byte(pos + i) & 0x3FU);
  }
  pos += size;
  return c;
}

std::size_t encode_utf8(char32_t c, char* out) {
  utf8proc_uint8_t buffer[4];
  const auto n =
      static_cast<std::size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer));
  std::copy_n(buffer, n, out);
  return n;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t pos = 0; pos < text.size(); ++n) {
    next_code_point(text, pos);
  }
  return n;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const char32_t c = next_code_point(text, pos);
    const std::size_t size = pos - at;
    const std::size_t shortest = c < 0x80 ? 1U : c < 0x800 ? 2U : c < 0x10000 ? 3U : 4U;
    if (size != shortest || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) {
      return false;  // cut, overlong, a surrogate, or past the last character
    }
  }
  return true;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || in_ranges(kOtherDigits, c);
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || in_ranges(kOtherNumeric, c);
}

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLower, c);
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUpper, c);
}

bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_cased(char32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
}

bool is_case_ignorable(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
         c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

bool is_printable(char32_t c) {
  if (c == ' ') {
    return true;
  }
  const auto k = category(c);
  return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool is_identifier_start(char32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  const auto k = category(c);
  return is_identifier_start(c) || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
         k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
}

CaseMap to_upper(char32_t c) {
  CaseMap m;
  if (special(kSpecialUpper, c, m)) {
    return m;
  }
  return one(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

CaseMap to_lower(char32_t c) {
  if (c == 0x130) {  // the only letter whose lower case takes two code points
    CaseMap m;
    m.c[0] = 'i';
    m.c[1] = 0x307;
    m.n = 2;
    return m;
  }
  return one(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

CaseMap to_title(char32_t c) {
  CaseMap m;
  if (special(kSpecialTitle, c, m)) {
    return m;
  }
  return one(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace trine::text::jinja
