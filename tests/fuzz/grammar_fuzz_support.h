// A walk through a compiled grammar: from every set some byte goes on or the text may end, so no
// limit leads into a dead end; a step gives a set or an error.
#pragma once

#include <utility>
#include <vector>

#include "fuzz_support.h"
#include "grammar/compile.h"
#include "grammar/state_set.h"

namespace trine::grammar {

inline void walk(const Result<AutomatonPtr>& made) {
  if (!made.has_value()) {
    require_printable(made.error());
    return;
  }
  Stepper stepper(*made);
  std::vector<Config> set;
  std::vector<Config> next;
  constexpr int kSteps = 48;
  if (!stepper.start(set).has_value()) {
    return;
  }
  for (int i = 0; i < kSteps; ++i) {
    require(!set.empty());
    // A byte of one of the readings, another one each time.
    const Config c = set[static_cast<std::size_t>(i) * 7 % set.size()];
    if (c.state == kAcceptState) {
      return;
    }
    next.clear();
    const auto low = (*made)->state(c.state).low;
    if (!stepper.step(set, low, next).has_value()) {
      return;
    }
    set.swap(next);
  }
}

}  // namespace trine::grammar
