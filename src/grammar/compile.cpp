#include "grammar/compile.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/limits.h"
#include "grammar/regex.h"

namespace trine::grammar {

Result<AutomatonPtr> compile_gbnf(std::string_view text) {
  Ir ir;
  TRINE_TRY_ASSIGN(const RuleId root, read_gbnf(ir, text));
  return Automaton::build(ir, root);
}

Result<AutomatonPtr> compile_regex(std::string_view pattern) {
  Ir ir;
  const RuleId root = ir.add_rule("regex");
  TRINE_TRY_ASSIGN(const NodeId body, read_regex(ir, pattern, RegexUse::kWhole, "regex"));
  ir.define(root, body);
  return Automaton::build(ir, root);
}

Result<AutomatonPtr> compile_choice(std::span<const std::string> choices) {
  if (choices.empty()) {
    return fail(ErrorCode::kInvalidArgument, "choice: no alternative");
  }
  Ir ir;
  std::vector<NodeId> ways;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    bytes += choices[i].size();
    if (bytes > kMaxSourceBytes || i >= kMaxConfigs) {
      return fail(ErrorCode::kExhausted,
                  "choice {}: {} bytes so far, at most {} bytes and {} alternatives", i, bytes,
                  kMaxSourceBytes, kMaxConfigs);
    }
    ways.push_back(ir.literal(choices[i]));
  }
  const RuleId root = ir.add_rule("choice");
  ir.define(root, ir.alt(ways));
  return Automaton::build(ir, root);
}

Result<AutomatonPtr> compile_json_object() {
  Ir ir;
  const RuleId root = JsonRules(ir).object();
  return Automaton::build(ir, root);
}

Result<AutomatonPtr> compile_json_schema(std::string_view schema) {
  Ir ir;
  TRINE_TRY_ASSIGN(const RuleId root, read_json_schema(ir, schema));
  return Automaton::build(ir, root);
}

Result<AutomatonPtr> compile(Notation notation, std::string_view text) {
  switch (notation) {
    case Notation::kGbnf:
      return compile_gbnf(text);
    case Notation::kRegex:
      return compile_regex(text);
    case Notation::kJsonObject:
      return compile_json_object();
    case Notation::kJsonSchema:
      return compile_json_schema(text);
    case Notation::kChoice:
      break;
  }
  TRINE_TRY_ASSIGN(const auto list, parse_json(text, {.max_bytes = 2 * kMaxSourceBytes}));
  std::vector<std::string> choices;
  for (const auto& item : list.is_array() ? list : nlohmann::ordered_json::array()) {
    if (!item.is_string()) {
      return fail(ErrorCode::kInvalidArgument, "choice {}: not a string", choices.size());
    }
    choices.push_back(item.get<std::string>());
  }
  return compile_choice(choices);
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCache::get(Notation notation,
                                                                 std::string_view text) {
  std::string key(1, static_cast<char>(notation));
  key += notation == Notation::kJsonObject ? std::string_view() : text;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->grammar;
    }
  }
  // Compiled without the lock: one long compilation does not hold up the others.
  TRINE_TRY_ASSIGN(AutomatonPtr automaton, compile(notation, text));
  const std::size_t bytes = key.size() + automaton->num_bytes() + kMaskCacheBytes;
  auto grammar = CompiledGrammar::create(std::move(automaton), vocabulary_);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || by_key_.contains(key)) {
    return grammar;
  }
  while (bytes_ + bytes > max_bytes_) {
    by_key_.erase(entries_.back().key);
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
  entries_.push_front({std::move(key), grammar, bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  return grammar;
}

std::size_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace trine::grammar
