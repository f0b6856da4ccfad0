#include "text/unicode.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "base/check.h"

namespace trine::text {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct Lead {
  std::size_t size = 0;  // 0: not a first byte
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
};

// Table 3-7 of the Unicode standard: which first bytes exist and what their second byte may be.
Lead lead_of(unsigned char byte) {
  if (byte < 0x80) {
    return {1};
  }
  if (byte >= 0xc2 && byte <= 0xdf) {
    return {2};
  }
  if (byte >= 0xe0 && byte <= 0xef) {
    return {3, static_cast<unsigned char>(byte == 0xe0 ? 0xa0 : 0x80),
            static_cast<unsigned char>(byte == 0xed ? 0x9f : 0xbf)};
  }
  if (byte >= 0xf0 && byte <= 0xf4) {
    return {4, static_cast<unsigned char>(byte == 0xf0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xf4 ? 0x8f : 0xbf)};
  }
  return {};
}

unsigned char byte_at(std::string_view text, std::size_t pos) {
  return static_cast<unsigned char>(text[pos]);
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Symbols that carry Alphabetic through Other_Alphabetic; all others of that list are marks.
bool is_alphabetic_symbol(char32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

std::uint16_t compute_class(char32_t c) {
  unsigned bits = 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      bits = kLetter | kUpperLike | kWord;
      break;
    case UTF8PROC_CATEGORY_LL:
      bits = kLetter | kLowerLike | kWord;
      break;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      bits = kLetter | kUpperLike | kLowerLike | kWord;
      break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      bits = kMark | kUpperLike | kLowerLike | kWord;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      bits = kNumber | kWord;
      break;
    case UTF8PROC_CATEGORY_NO:
      bits = kNumber;
      break;
    case UTF8PROC_CATEGORY_PC:
      bits = kPunctuation | kWord;
      break;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      bits = kPunctuation;
      break;
    default:
      break;
  }
  if (is_white_space(c)) {
    bits |= kSpace;
  }
  if (c == U'\r' || c == U'\n') {
    bits |= kNewline;
  }
  if (c == 0x200c || c == 0x200d || is_alphabetic_symbol(c)) {
    bits |= kWord;
  }
  return static_cast<std::uint16_t>(bits);
}

// The Basic Multilingual Plane in one table, filled on first use.
const std::array<std::uint16_t, 0x10000>& class_table() {
  static const auto* table = [] {
    auto* out = new std::array<std::uint16_t, 0x10000>();
    for (std::size_t c = 0; c < out->size(); ++c) {
      (*out)[c] = compute_class(static_cast<char32_t>(c));
    }
    return out;
  }();
  return *table;
}

void decompose(std::string_view text, bool compatibility, std::vector<utf8proc_int32_t>& out) {
  const unsigned mode =
      compatibility ? unsigned{UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT} : unsigned{UTF8PROC_DECOMPOSE};
  std::array<utf8proc_int32_t, 64>
      buffer{};  // the longest decomposition is 18 code points (U+FDFA)
  for (std::size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text, pos);
    pos += c.size;
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), buffer.data(),
                                static_cast<utf8proc_ssize_t>(buffer.size()),
                                static_cast<utf8proc_option_t>(mode), &boundary);
    TRINE_CHECK(count >= 0 && static_cast<std::size_t>(count) <= buffer.size());
    out.insert(out.end(), buffer.begin(), buffer.begin() + count);
  }
}

// Canonical order by a stable sort per run of marks: utf8proc's own reordering is quadratic in the
// run.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto ccc = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (std::size_t begin = 0; begin < points.size();) {
    if (ccc(points[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < points.size() && ccc(points[end]) != 0) {
      ++end;
    }
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(begin),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return ccc(a) < ccc(b); });
    begin = end;
  }
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t pos = 0;
  while (pos < text.size()) {
    const Lead lead = lead_of(byte_at(text, pos));
    if (lead.size == 0 || lead.size > text.size() - pos) {
      return pos;
    }
    for (std::size_t i = 1; i < lead.size; ++i) {
      const unsigned char byte = byte_at(text, pos + i);
      if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xbf)) {
        return pos;
      }
    }
    pos += lead.size;
  }
  return std::nullopt;
}

Status check_utf8(std::string_view text, std::string_view what) {
  if (const auto pos = find_invalid_utf8(text)) {
    return fail(ErrorCode::kInvalidArgument,
                "{} is not UTF-8: invalid sequence at byte {} (0x{:02x})", what, *pos,
                byte_at(text, *pos));
  }
  return {};
}

CodePoint code_point_at(std::string_view text, std::size_t pos) {
  TRINE_DCHECK(pos < text.size());
  const auto cont = [&](std::size_t i) -> char32_t { return byte_at(text, pos + i) & 0x3fU; };
  const char32_t b = byte_at(text, pos);
  if (b < 0x80) {
    return {b, 1};
  }
  if (b < 0xe0) {
    return {(b & 0x1fU) << 6 | cont(1), 2};
  }
  if (b < 0xf0) {
    return {(b & 0x0fU) << 12 | cont(1) << 6 | cont(2), 3};
  }
  return {(b & 0x07U) << 18 | cont(1) << 12 | cont(2) << 6 | cont(3), 4};
}

std::size_t previous_start(std::string_view text, std::size_t end) {
  TRINE_DCHECK(end > 0 && end <= text.size());
  --end;
  while (end > 0 && (byte_at(text, end) & 0xc0U) == 0x80U) {
    --end;
  }
  return end;
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xc0 | value >> 6);
    put(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    put(0xe0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  } else {
    put(0xf0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3f));
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  }
}

std::uint16_t char_class(char32_t value) {
  static const auto& table = class_table();
  return value < table.size() ? table[value] : compute_class(value);
}

void append_lowercase(std::string& out, char32_t value) {
  if (value == 0x130) {  // the one character whose lower case is two
    out += "i\xcc\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
}

std::string normalize_utf8(std::string_view text, NormalForm form) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) {
    return std::string(text);
  }
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd, points);
  order_marks(points);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    const auto count = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TRINE_CHECK(count >= 0);
    points.resize(static_cast<std::size_t>(count));
  }
  std::string out;
  out.reserve(text.size());
  for (const auto c : points) {
    append_utf8(out, static_cast<char32_t>(c));
  }
  return out;
}

std::size_t grapheme_end(std::string_view text, std::size_t pos) {
  CodePoint c = code_point_at(text, pos);
  utf8proc_int32_t state = 0;
  std::size_t end = pos + c.size;
  while (end < text.size()) {
    const CodePoint next = code_point_at(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    c = next;
    end += c.size;
  }
  return end;
}

void Utf8Lossy::push_byte(unsigned char byte, std::string& out) {
  if (held_size_ > 0) {
    if (byte >= low_ && byte <= high_) {
      held_[held_size_++] = static_cast<char>(byte);
      low_ = 0x80;
      high_ = 0xbf;
      if (held_size_ == wanted_) {
        out.append(held_.data(), held_size_);
        held_size_ = 0;
      }
      return;
    }
    out += kReplacement;
    held_size_ = 0;
  }
  const Lead lead = lead_of(byte);
  if (lead.size == 0) {
    out += kReplacement;
  } else if (lead.size == 1) {
    out.push_back(static_cast<char>(byte));
  } else {
    held_[0] = static_cast<char>(byte);
    held_size_ = 1;
    wanted_ = lead.size;
    low_ = lead.low;
    high_ = lead.high;
  }
}

void Utf8Lossy::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    push_byte(static_cast<unsigned char>(c), out);
  }
}

void Utf8Lossy::finish(std::string& out) {
  if (held_size_ > 0) {
    out += kReplacement;
    held_size_ = 0;
  }
}

}  // namespace trine::text
