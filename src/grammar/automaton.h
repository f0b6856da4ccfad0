// The one automaton behind every notation: rules over bytes, each a nondeterministic automaton
// whose edges are byte ranges and calls of rules (a recursive transition network).
//
// Thread rule: immutable after build(), any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/ir.h"

namespace trine::grammar {

class Automaton {
 public:
  enum class Op : std::uint8_t { kBytes, kSplit, kCall, kReturn, kDead };

  struct State {
    Op op = Op::kDead;
    std::uint8_t low = 0, high = 0;  // kBytes
    std::uint32_t next = 0;          // kBytes, kSplit: where to; kCall: where to come back
    std::uint32_t other = 0;         // kSplit: the other way; kCall: first state of the rule
    // How many more rules must be open at once to finish this rule from here, at the least; a path
    // is followed only when they fit kMaxStackDepth, so the depth limit never leads into a dead
    // end.
    std::uint32_t need = 0;
  };

  // Rule `root` is the language. Errors: invalid_argument for a rule that is not defined, for left
  // recursion (both name the rules) and for a language without any text; exhausted for a budget.
  static Result<std::shared_ptr<const Automaton>> build(const Ir& ir, RuleId root);

  const State& state(std::uint32_t id) const { return states_[id]; }

  std::uint32_t start() const { return start_; }

  std::size_t num_states() const { return states_.size(); }

  std::size_t num_bytes() const { return states_.size() * sizeof(State); }

 private:
  std::vector<State> states_;
  std::uint32_t start_ = 0;
};

}  // namespace trine::grammar
