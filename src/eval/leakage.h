// Whether a test was already in the calibration data, by n-grams of words.
//
// A quantizer that saw the test looks better than it is. Words are runs of letters and digits after
// NFKC and lower case; a character of a script without blanks is a word of its own. Thread rule:
// immutable once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace trine::eval {

// Words that have to follow each other in both: as in the contamination checks of GPT-3 (Brown et
// al. 2020, appendix C).
inline constexpr std::size_t kLeakWords = 13;
// A text leaks when at least this share of its n-grams occurs in the calibration data.
inline constexpr double kLeakShare = 0.5;

class LeakageIndex {
 public:
  // The n-grams of each text, and each text as a whole.
  explicit LeakageIndex(const std::vector<std::string>& calibration_texts);

  // The share of the text's n-grams that occur; of a text with fewer words 1 or 0, whether a
  // calibration text is the same.
  double share(std::string_view text) const;

 private:
  std::unordered_set<std::uint64_t> grams_;
  std::unordered_set<std::uint64_t> wholes_;
};

}  // namespace trine::eval
