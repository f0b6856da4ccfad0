// From a notation to an automaton, and a cache of the results.
//
// Errors of all: invalid_argument for what is wrong in the notation, unsupported for what this
// version refuses by name, exhausted for a budget (grammar/limits.h); each names its place. Thread
// rule: pure functions; the cache may be used from any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/matcher.h"

namespace trine::grammar {

enum class Notation : std::uint8_t {
  kGbnf,
  kRegex,
  kChoice,      // a JSON array of strings
  kJsonObject,  // the text is not looked at
  kJsonSchema,
};

using AutomatonPtr = std::shared_ptr<const Automaton>;

Result<AutomatonPtr> compile_gbnf(std::string_view text);
Result<AutomatonPtr> compile_regex(std::string_view pattern);
Result<AutomatonPtr> compile_choice(std::span<const std::string> choices);
Result<AutomatonPtr> compile_json_object();
Result<AutomatonPtr> compile_json_schema(std::string_view schema);
Result<AutomatonPtr> compile(Notation notation, std::string_view text);

// Grammars bound to one vocabulary, found again by their text; the longest unused ones go when the
// bytes of texts, automata and full mask caches would pass the cap.
class GrammarCache {
 public:
  GrammarCache(std::shared_ptr<const TokenTrie> vocabulary, std::size_t max_bytes)
      : vocabulary_(std::move(vocabulary)), max_bytes_(max_bytes) {}

  Result<std::shared_ptr<const CompiledGrammar>> get(Notation notation, std::string_view text);
  std::size_t num_bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
    std::size_t bytes = 0;
  };

  std::shared_ptr<const TokenTrie> vocabulary_;
  std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace trine::grammar
