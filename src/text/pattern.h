// A pattern of a tokenizer.json component, and what splitting at its matches does with them.
//
// Thread rule: immutable, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/regex.h"
#include "text/splitters.h"

namespace trine::text {

// A stretch of a text that matched, or that lies between matches.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

class Pattern {
 public:
  static Pattern known(SplitPattern pattern);
  // The hand-written splitter where the expression has one, else PCRE2.
  static Result<Pattern> regex(std::string_view expression);
  static Pattern literal(std::string text);
  // Every character for which `test` holds is one match.
  static Pattern characters(bool (*test)(char32_t));

  // Tiles `text`. Errors: as Regex::find_all.
  Result<std::vector<Stretch>> find(std::string_view text) const;

 private:
  std::optional<SplitPattern> known_;
  std::shared_ptr<const Regex> regex_;
  std::string literal_;
  bool (*test_)(char32_t) = nullptr;
};

enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// [begin, end) in bytes of one piece.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Appends the pieces that `behavior` makes of the stretches, moved by `offset`; empty ones are left
// out.
void append_pieces(const std::vector<Stretch>& stretches, SplitBehavior behavior,
                   std::size_t offset, std::vector<Piece>& out);

}  // namespace trine::text
