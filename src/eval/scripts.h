// Which script a letter belongs to, by Unicode's blocks: enough to see that an answer changed the
// language. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trine::eval {

inline constexpr std::size_t kNumScripts = 13;

struct ScriptCounts {
  std::array<std::int64_t, kNumScripts> of{};
  std::int64_t letters = 0;
};

// "Latin", "Greek", ..., the last of them "other".
std::string_view script_name(std::size_t script);
ScriptCounts count_scripts(std::string_view text);

// Characters of scripts that put no blanks between words.
bool writes_without_blanks(char32_t c);

}  // namespace trine::eval
