// Helpers of the grammar tests: whether a text is in a language, byte by byte.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace trine::grammar
