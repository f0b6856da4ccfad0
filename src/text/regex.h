// Regular expressions from model files and users, run by PCRE2 under limits. Model files mean the
// dialect that the Hugging Face library uses (Oniguruma, Ruby syntax); what PCRE2 reads differently
// is rewritten or refused by name.
//
// Thread rule: immutable, any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::text {

// [begin, end) of one match, in bytes.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Regex {
 public:
  // Errors: unsupported for a construct that PCRE2 reads differently or does not know, exhausted
  // for a pattern over 16 KiB.
  static Result<std::shared_ptr<const Regex>> compile(std::string_view pattern);

  // A pattern that somebody wrote in PCRE2's own dialect. Errors: as compile().
  static Result<std::shared_ptr<const Regex>> compile_as_pcre2(std::string_view pattern);

  // The same pattern in PCRE2's dialect, or why there is none. For tests.
  static Result<std::string> translate(std::string_view pattern);

  virtual ~Regex() = default;
  // All matches from left to right, not overlapping; `text` must be valid UTF-8. The work is
  // linear in the text. Errors: exhausted when the pattern wants more for this text, in one attempt
  // or in all together.
  virtual Result<std::vector<Match>> find_all(std::string_view text) const = 0;
};

}  // namespace trine::text
