// The precompiled character map of SentencePiece models: a double-array trie (Aoe 1989, in the
// layout of darts-clone) from byte strings to offsets in a block of zero-terminated replacements.
//
// Thread rule: immutable, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::text {

class CharsMap {
 public:
  // u32 little-endian size of the trie in bytes, the trie, the replacements. Errors: corrupt_data.
  static Result<CharsMap> parse(std::string_view bytes);

  struct Hit {
    std::size_t size = 0;  // bytes of the text it covers
    std::string_view replacement;
  };

  // The shortest or the longest entry that is a prefix of `text`.
  std::optional<Hit> shortest(std::string_view text) const { return find(text, true); }

  std::optional<Hit> longest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Hit> find(std::string_view text, bool first) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace trine::text
