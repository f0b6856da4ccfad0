// UTF-8 and character properties for the tokenizers: validation, code points, general categories,
// normalization forms, and the replacement of broken bytes. Properties are those of utf8proc 2.8
// (Unicode 14; docs/tokenizers.md).
//
// Thread rule: pure functions; Utf8Lossy belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::text {

// Byte offset of the first ill-formed sequence (overlong forms, surrogates, values past U+10FFFF
// and cut sequences included), or nullopt for valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// invalid_argument with the byte offset when `text` is not UTF-8; `what` names it.
Status check_utf8(std::string_view text, std::string_view what);

// The character at `pos` of valid UTF-8; `pos` must be below the size and at a character's first
// byte.
struct CodePoint {
  char32_t value = 0;
  std::size_t size = 1;  // bytes
};

CodePoint code_point_at(std::string_view text, std::size_t pos);
// First byte of the character that ends at `end` > 0.
std::size_t previous_start(std::string_view text, std::size_t end);
void append_utf8(std::string& out, char32_t value);

// Sets of characters that the splitting patterns use, as bits.
enum CharClass : std::uint16_t {
  kLetter = 1,         // \p{L}
  kNumber = 2,         // \p{N}
  kSpace = 4,          // \s: the White_Space property
  kNewline = 8,        // [\r\n]
  kUpperLike = 16,     // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 32,     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kMark = 64,          // \p{M}
  kPunctuation = 128,  // \p{P}
  kWord = 256,         // \w of Rust's regex: Alphabetic, \p{M}, \p{Nd}, \p{Pc}, Join_Control
};

std::uint16_t char_class(char32_t value);

inline bool is_space(char32_t value) {
  return (char_class(value) & kSpace) != 0;
}

// Rust's char::to_lowercase, appended to `out`.
void append_lowercase(std::string& out, char32_t value);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// `text` must be valid UTF-8. Time is O(n log n) also for long runs of combining marks.
std::string normalize_utf8(std::string_view text, NormalForm form);

// End of the extended grapheme cluster that starts at `pos`.
std::size_t grapheme_end(std::string_view text, std::size_t pos);

// Bytes in, valid UTF-8 out: each maximal ill-formed part becomes one U+FFFD (Unicode's recommended
// practice). What could still become a character is held back until the next bytes, so the output
// does not depend on how the bytes were cut.
class Utf8Lossy {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  void push_byte(unsigned char byte, std::string& out);

  std::array<char, 4> held_{};
  std::size_t held_size_ = 0;
  std::size_t wanted_ = 0;    // length of the sequence begun
  unsigned char low_ = 0x80;  // range of the next byte
  unsigned char high_ = 0xbf;
};

}  // namespace trine::text
