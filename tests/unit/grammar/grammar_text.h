// Helpers of the grammar tests: whether a text is in a language, byte by byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/compile.h"
#include "grammar/state_set.h"

namespace trine::grammar {

inline bool matches(const AutomatonPtr& automaton, std::string_view text) {
  Stepper stepper(automaton);
  std::vector<Config> set;
  std::vector<Config> next;
  if (!stepper.start(set).has_value()) {
    return false;
  }
  for (const char c : text) {
    next.clear();
    if (!stepper.step(set, static_cast<std::uint8_t>(c), next).has_value()) {
      return false;
    }
    set.swap(next);
  }
  return accepts(set);
}

inline std::string error_of(const Result<AutomatonPtr>& made) {
  return made.has_value() ? "no error" : made.error().message;
}

// A source with texts of its language and others.
struct LanguageCase {
  std::string source;
  std::vector<std::string> yes, no;
};

inline void expect_languages(Result<AutomatonPtr> (*compile_one)(std::string_view),
                             const std::vector<LanguageCase>& cases) {
  for (const LanguageCase& c : cases) {
    const auto made = compile_one(c.source);
    ASSERT_TRUE(made.has_value()) << c.source << ": " << error_of(made);
    for (const std::string& text : c.yes) {
      EXPECT_TRUE(matches(*made, text)) << c.source << " on " << text;
    }
    for (const std::string& text : c.no) {
      EXPECT_FALSE(matches(*made, text)) << c.source << " on " << text;
    }
  }
}

}  // namespace trine::grammar
