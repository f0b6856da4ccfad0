// The expression tree that every notation is read into, and the one place that counts its budgets.
//
// A node's `size` is the number of automaton states it becomes; a repeated node that is not small
// becomes a rule of its own, so {m,n} costs two states a repetition and nested repetitions do not
// multiply. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::grammar {

using NodeId = std::uint32_t;
using RuleId = std::uint32_t;
inline constexpr std::uint32_t kUnbounded = 0xffffffffu;

// Inclusive range of code points.
struct CodeRange {
  char32_t low = 0;
  char32_t high = 0;
};

// Sorted, without overlaps or neighbours, surrogates taken out.
std::vector<CodeRange> normalize_ranges(const std::vector<CodeRange>& ranges);
// The code points (without surrogates) that are not in a normalized list.
std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);

class Ir {
 public:
  enum class Kind : std::uint8_t { kEmpty, kNothing, kBytes, kLiteral, kSeq, kAlt, kRepeat, kRef };

  struct Node {
    Kind kind = Kind::kEmpty;
    std::uint8_t low = 0, high = 0;  // kBytes
    std::uint16_t depth = 1;
    std::uint32_t first = 0,
                  count = 0;  // children / literal bytes; kRepeat: child and minimum; kRef: rule
    std::uint32_t max = 0;    // kRepeat
    std::uint32_t size = 0;   // states, saturating
  };

  struct Rule {
    std::string name;
    NodeId root = 0;
    bool defined = false;
  };

  Ir();

  NodeId empty() const { return 0; }

  // Matches no text at all.
  NodeId nothing() const { return 1; }

  NodeId byte_range(std::uint8_t low, std::uint8_t high);
  NodeId literal(std::string_view bytes);
  NodeId seq(std::span<const NodeId> parts);
  NodeId alt(std::span<const NodeId> parts);
  // max == kUnbounded: no upper end.
  NodeId repeat(NodeId body, std::uint32_t min, std::uint32_t max);
  NodeId ref(RuleId rule);
  // One code point of a normalized list, as UTF-8.
  NodeId code_points(const std::vector<CodeRange>& ranges);

  NodeId seq(std::initializer_list<NodeId> parts) {
    return seq(std::span(parts.begin(), parts.size()));
  }

  NodeId alt(std::initializer_list<NodeId> parts) {
    return alt(std::span(parts.begin(), parts.size()));
  }

  NodeId optional(NodeId body) { return repeat(body, 0, 1); }

  RuleId add_rule(std::string name);
  void define(RuleId rule, NodeId root);

  // Whether the budgets still hold; the error names `place`, value and limit. Once over, nodes
  // become empty and nothing grows, so a front end may ask at its own convenience.
  Status check(std::string_view place) const;

  const Node& node(NodeId id) const { return nodes_[id]; }

  std::span<const NodeId> children(const Node& n) const {
    return std::span(children_).subspan(n.first, n.count);
  }

  std::string_view literal_bytes(const Node& n) const {
    return std::string_view(bytes_).substr(n.first, n.count);
  }

  const std::vector<Rule>& rules() const { return rules_; }

  std::vector<Rule>& rules() { return rules_; }

 private:
  NodeId add(Node node);
  NodeId utf8_range(char32_t low, char32_t high);

  std::vector<Node> nodes_;
  std::vector<NodeId> children_;
  std::string bytes_;
  std::vector<Rule> rules_;
  std::uint64_t num_states_ = 0;
  bool too_many_nodes_ = false;
  bool too_deep_ = false;
};

}  // namespace trine::grammar
