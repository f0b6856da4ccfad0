// A grammar bound to a vocabulary, and one answer's place in it.
//
// Use: compile once (grammar/compile.h), bind with CompiledGrammar::create, one Matcher per answer:
//   matcher.mask(words); ... sample among set bits ...; matcher.accept(token);
// Thread rule: CompiledGrammar may be used from any thread; a Matcher belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/state_set.h"
#include "grammar/token_trie.h"

namespace trine::grammar {

class CompiledGrammar {
 public:
  static std::shared_ptr<const CompiledGrammar> create(std::shared_ptr<const Automaton> automaton,
                                                       std::shared_ptr<const TokenTrie> vocabulary);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }

  const TokenTrie& vocabulary() const { return *vocabulary_; }

 private:
  friend class Matcher;
  class Masks;  // masks by state, behind a mutex
  CompiledGrammar(std::shared_ptr<const Automaton> automaton,
                  std::shared_ptr<const TokenTrie> vocabulary);

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const TokenTrie> vocabulary_;
  std::unique_ptr<Masks> masks_;
};

class Matcher {
 public:
  // Errors: exhausted when the grammar's first state breaks a step budget.
  static Result<Matcher> create(std::shared_ptr<const CompiledGrammar> grammar);

  // Takes one token. Errors: invalid_argument for a token that the mask does not allow (with the
  // byte that breaks it), exhausted for a step budget; the matcher is then as before.
  Status accept(std::int32_t token);
  // As accept(), for text that is no token.
  Status accept_bytes(std::string_view bytes);
  // Takes back the last `count` accepts. Errors: invalid_argument beyond what is kept
  // (kMaxRollback) or was accepted.
  Status rollback(std::size_t count);
  // Sets bit i of out (vocabulary().mask_words() words) for each token i that accept() would take.
  // No bit is set once the answer has ended. Errors: exhausted for a work budget.
  Status mask(std::span<std::uint64_t> out) const;

  // The text so far is a whole answer: a stop token is allowed.
  bool is_accepting() const { return accepts(current()); }

  // A whole answer that nothing can follow but a stop token.
  bool is_complete() const {
    return current().size() == 1 && current().front().state == kAcceptState;
  }

  // A stop token was accepted.
  bool is_finished() const { return current().empty(); }

  // Appends the bytes that must come next, as long as there is no choice, at most `max_bytes`.
  // Errors: exhausted.
  Status forced_bytes(std::size_t max_bytes, std::string& out);
  // The longest tokens along the forced bytes, from the left: drafts that cannot be refused by the
  // grammar.
  Status forced_tokens(std::size_t max_tokens, std::vector<std::int32_t>& out);

  const CompiledGrammar& grammar() const { return *grammar_; }

 private:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);

  std::span<const Config> current() const {
    return std::span(configs_).subspan(offsets_.back(), configs_.size() - offsets_.back());
  }

  // Runs the bytes from the current set into from_; how many of them fit.
  Result<std::size_t> run(std::string_view bytes);
  void push_set(std::span<const Config> set);

  std::shared_ptr<const CompiledGrammar> grammar_;
  Stepper stepper_;
  std::vector<Config> configs_;         // sets of the kept history, the newest last
  std::vector<std::uint32_t> offsets_;  // where each begins
  std::vector<Config> from_, to_;       // of a step
};

}  // namespace trine::grammar
