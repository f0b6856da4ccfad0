// Which keys of config.json are read, which are known to leave the result alone, and which change
// it in a way this engine does not compute. docs/models.md repeats the lists for readers. Thread
// rule: constants.
#pragma once

#include <string_view>

namespace trine::hf {

struct RefusedKey {
  std::string_view key;
  std::string_view what;        // "multi-head latent attention"; completes "... is not supported"
  bool one_is_neutral = false;  // 1 as well as null, false, 0 and empty mean "not used"
};

// Null when the key is not on the list.
const RefusedKey* find_refused(std::string_view key);
bool is_read(std::string_view key);
bool is_harmless(std::string_view key);
bool is_rope_key(std::string_view key);

}  // namespace trine::hf
