// From ids back to text: what one token contributes (tokenizer.json "decoder", and GGUF's
// counterparts).
//
// Thread rule: immutable after building, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "text/pattern.h"

namespace trine::text {

class Decoder {
 public:
  // A null `json` joins the tokens with spaces, as the Hugging Face library does. Errors:
  // unsupported for a type or a combination that cannot be decoded token by token.
  static Result<Decoder> from_json(const nlohmann::ordered_json& json);
  static Decoder byte_level();
  // U+2581 is a space, <0xNN> a byte; with `strip_first`, one space at the start of the text goes.
  static Decoder sentencepiece(bool strip_first);

  // The bytes of one token: `first` when no token came before it; `added` for added tokens, which
  // are spelled as they are.
  std::string bytes(std::string_view piece, bool first, bool added) const;

  // How many characters `strip_char()` to take away at the start of the whole text.
  int strip_start() const { return strip_start_; }

  char strip_char() const { return strip_char_; }

 private:
  enum class Kind : std::uint8_t { kByteLevel, kByteFallback, kReplace, kMetaspace, kStrip };

  struct Step {
    Kind kind = Kind::kByteLevel;
    Pattern pattern;  // kReplace
    std::string
        content;  // kReplace: the new text; kMetaspace: the escaped space; kStrip: the character
    std::int64_t start = 0;
    std::int64_t stop = 0;
    bool drop_first = false;  // kMetaspace
  };

  Status add(const nlohmann::ordered_json& json, int depth, bool& fused);
  Status add_replace(const nlohmann::ordered_json& json, bool fused);
  Status add_strip(const nlohmann::ordered_json& json, bool fused);

  std::vector<Step> steps_;
  bool join_with_space_ = false;
  int strip_start_ = 0;
  char strip_char_ = ' ';
};

}  // namespace trine::text
