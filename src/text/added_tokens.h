// Added tokens: spellings that are cut out of the text before the model sees it, leftmost and
// longest first.
//
// Thread rule: immutable after build(), any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/vocab.h"

namespace trine::text {

struct AddedToken {
  std::int32_t id = kNoToken;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalized text, in its own normalized form
  bool special = false;     // a control token
};

// A stretch of text, or (id set) an added token that stood there.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t id = kNoToken;
};

class AddedTokens {
 public:
  // Errors: corrupt_data for an empty or overlong content.
  Status build(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  bool has_normalized() const { return !normalized_.trie.empty(); }

  // Tiles `text`. With `skip_special`, control tokens are left in the text as they stand.
  std::vector<Segment> split_raw(std::string_view text, bool skip_special) const;
  std::vector<Segment> split_normalized(std::string_view text, bool skip_special) const;

  // The control tokens of the stretch [begin, end) of `text`, looked for without normalization.
  // What they strip may reach outside of the stretch, but not before `floor`.
  std::vector<Segment> special_in(std::string_view text, std::size_t begin, std::size_t end,
                                  std::size_t floor) const;

 private:
  struct Set {
    ByteTrie trie;
    std::vector<AddedToken> tokens;  // trie values are indices
  };

  static Status fill(Set& set, std::vector<std::pair<std::string, AddedToken>> entries);
  static std::vector<Segment> split(const Set& set, std::string_view text, bool skip_special);
  static bool place(const AddedToken& token, std::string_view text, std::size_t floor, Segment& at);

  Set raw_;
  Set normalized_;
  Set special_;  // all control tokens, as they are spelled
};

}  // namespace trine::text
