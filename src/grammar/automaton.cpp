#include "grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "grammar/limits.h"

namespace trine::grammar {
namespace {

using State = Automaton::State;
using Op = Automaton::Op;
constexpr std::uint32_t kNever = 0xffffffffu;

// Makes the states of each rule from its end to its start, so every part knows what follows it.
class Lowering {
 public:
  Lowering(const Ir& ir, std::vector<State>& states) : ir_(ir), states_(states) {}

  void run(std::vector<std::uint32_t>& starts) {
    for (const Ir::Rule& rule : ir_.rules()) {
      // Each rule's first state is its own, so that it tells the rule.
      const std::uint32_t body = lower(rule.root, add({.op = Op::kReturn}));
      starts.push_back(add({.op = Op::kSplit, .next = body, .other = body}));
    }
    for (State& s : states_) {
      if (s.op == Op::kCall) {
        s.other = starts[s.other];
      }
    }
  }

 private:
  std::uint32_t add(State s) {
    states_.push_back(s);
    return static_cast<std::uint32_t>(states_.size() - 1);
  }

  // Depth of the recursion: at most kMaxNodeDepth, which Ir holds.
  std::uint32_t lower(NodeId id, std::uint32_t next) {
    const Ir::Node& n = ir_.node(id);
    switch (n.kind) {
      case Ir::Kind::kEmpty:
        return next;
      case Ir::Kind::kNothing:
        return add({.op = Op::kDead});
      case Ir::Kind::kBytes:
        return add({.op = Op::kBytes, .low = n.low, .high = n.high, .next = next});
      case Ir::Kind::kLiteral: {
        const std::string_view bytes = ir_.literal_bytes(n);
        for (std::size_t i = bytes.size(); i-- > 0;) {
          const auto byte = static_cast<std::uint8_t>(bytes[i]);
          next = add({.op = Op::kBytes, .low = byte, .high = byte, .next = next});
        }
        return next;
      }
      case Ir::Kind::kSeq: {
        const auto parts = ir_.children(n);
        for (std::size_t i = parts.size(); i-- > 0;) {
          next = lower(parts[i], next);
        }
        return next;
      }
      case Ir::Kind::kAlt: {
        const auto parts = ir_.children(n);
        std::uint32_t way = lower(parts.back(), next);
        for (std::size_t i = parts.size() - 1; i-- > 0;) {
          const std::uint32_t first = lower(parts[i], next);
          way = add({.op = Op::kSplit, .next = first, .other = way});
        }
        return way;
      }
      case Ir::Kind::kRepeat:
        return lower_repeat(n, next);
      case Ir::Kind::kRef:
        return add({.op = Op::kCall, .next = next, .other = n.first});
    }
    return next;
  }

  std::uint32_t lower_repeat(const Ir::Node& n, std::uint32_t next) {
    if (n.max == kUnbounded) {
      const std::uint32_t loop = add({.op = Op::kSplit, .other = next});
      const std::uint32_t body = lower(n.first, loop);
      states_[loop].next = body;
      next = loop;
    } else {
      const std::uint32_t exit = next;
      for (std::uint32_t i = n.count; i < n.max; ++i) {
        const std::uint32_t body = lower(n.first, next);
        next = add({.op = Op::kSplit, .next = body, .other = exit});
      }
    }
    for (std::uint32_t i = 0; i < n.count; ++i) {
      next = lower(n.first, next);
    }
    return next;
  }

  const Ir& ir_;
  std::vector<State>& states_;
};

// Who has an edge to whom, backwards, in one array.
struct Reverse {
  explicit Reverse(const std::vector<State>& states) : first(states.size() + 1, 0) {
    each(states, [&](std::uint32_t /*from*/, std::uint32_t to) { ++first[to + 1]; });
    for (std::size_t i = 1; i < first.size(); ++i) {
      first[i] += first[i - 1];
    }
    from.resize(first.back());
    std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
    each(states, [&](std::uint32_t source, std::uint32_t to) { from[at[to]++] = source; });
  }

  template <typename Visit>
  static void each(const std::vector<State>& states, Visit visit) {
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      const State& s = states[i];
      if (s.op == Op::kBytes || s.op == Op::kSplit || s.op == Op::kCall) {
        visit(i, s.next);
      }
      if (s.op == Op::kSplit || s.op == Op::kCall) {
        visit(i, s.other);
      }
    }
  }

  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> from;
};

// need of every state: levels in rising order, so each state is settled once (Knuth's
// generalisation of Dijkstra's algorithm to grammars).
void compute_need(std::vector<State>& states, const Reverse& reverse) {
  std::vector<std::vector<std::uint32_t>> buckets(1);
  for (std::uint32_t i = 0; i < states.size(); ++i) {
    states[i].need = kNever;
    if (states[i].op == Op::kReturn) {
      buckets[0].push_back(i);
    }
  }
  const auto cost = [&](const State& s) -> std::uint32_t {
    const std::uint32_t a = states[s.next].need;
    switch (s.op) {
      case Op::kReturn:
        return 0;
      case Op::kBytes:
        return a;
      case Op::kSplit:
        return std::min(a, states[s.other].need);
      case Op::kCall: {
        const std::uint32_t b = states[s.other].need;
        return a == kNever || b == kNever ? kNever : std::max(a, b + 1);
      }
      case Op::kDead:
        break;
    }
    return kNever;
  };
  for (std::size_t level = 0; level < buckets.size(); ++level) {
    for (std::size_t i = 0; i < buckets[level].size(); ++i) {
      const std::uint32_t id = buckets[level][i];
      if (states[id].need != kNever) {
        continue;
      }
      states[id].need = static_cast<std::uint32_t>(level);
      for (std::uint32_t k = reverse.first[id]; k < reverse.first[id + 1]; ++k) {
        const std::uint32_t from = reverse.from[k];
        const std::uint32_t c = states[from].need == kNever ? cost(states[from]) : kNever;
        if (c != kNever) {
          if (buckets.size() <= c) {
            buckets.resize(c + 1);
          }
          buckets[c].push_back(from);
        }
      }
    }
  }
}

// Which states can reach the end of their rule without a byte.
std::vector<bool> compute_nullable(const std::vector<State>& states, const Reverse& reverse) {
  std::vector<bool> nullable(states.size(), false);
  std::vector<std::uint32_t> work;
  for (std::uint32_t i = 0; i < states.size(); ++i) {
    if (states[i].op == Op::kReturn) {
      nullable[i] = true;
      work.push_back(i);
    }
  }
  while (!work.empty()) {
    const std::uint32_t id = work.back();
    work.pop_back();
    for (std::uint32_t k = reverse.first[id]; k < reverse.first[id + 1]; ++k) {
      const std::uint32_t from = reverse.from[k];
      const State& s = states[from];
      const bool holds =
          s.op == Op::kSplit || (s.op == Op::kCall && nullable[s.next] && nullable[s.other]);
      if (holds && !nullable[from]) {
        nullable[from] = true;
        work.push_back(from);
      }
    }
  }
  return nullable;
}

// The calls that `start` can make before its first byte.
std::vector<std::uint32_t> left_calls(const std::vector<State>& states,
                                      const std::vector<bool>& nullable, std::uint32_t start,
                                      std::vector<std::uint32_t>& seen, std::uint32_t stamp) {
  std::vector<std::uint32_t> calls;
  std::vector<std::uint32_t> work{start};
  while (!work.empty()) {
    const std::uint32_t id = work.back();
    work.pop_back();
    if (seen[id] == stamp) {
      continue;
    }
    seen[id] = stamp;
    const State& s = states[id];
    if (s.op == Op::kSplit) {
      work.push_back(s.next);
      work.push_back(s.other);
    } else if (s.op == Op::kCall) {
      calls.push_back(s.other);
      if (nullable[s.other]) {
        work.push_back(s.next);
      }
    }
  }
  return calls;
}

// A rule that can call itself before a byte would open rules without end.
Status refuse_left_recursion(const Ir& ir, const std::vector<State>& states,
                             const std::vector<bool>& nullable,
                             const std::vector<std::uint32_t>& starts) {
  std::vector<std::uint32_t> rule_of(states.size(), 0);
  for (std::uint32_t r = 0; r < starts.size(); ++r) {
    rule_of[starts[r]] = r;
  }
  std::vector<std::uint32_t> seen(states.size(), kNever);
  std::vector<std::vector<std::uint32_t>> calls(starts.size());
  for (std::uint32_t r = 0; r < starts.size(); ++r) {
    calls[r] = left_calls(states, nullable, starts[r], seen, r);
  }
  std::vector<std::uint8_t> color(starts.size(), 0);  // 1: on the path, 2: done
  std::vector<std::pair<std::uint32_t, std::size_t>> path;
  for (std::uint32_t r = 0; r < starts.size(); ++r) {
    if (color[r] != 0) {
      continue;
    }
    path.emplace_back(r, 0);
    color[r] = 1;
    while (!path.empty()) {
      const std::uint32_t at = path.back().first;
      if (path.back().second == calls[at].size()) {
        color[at] = 2;
        path.pop_back();
        continue;
      }
      const std::uint32_t to = rule_of[calls[at][path.back().second++]];
      if (color[to] == 0) {
        color[to] = 1;
        path.emplace_back(to, 0);
      } else if (color[to] == 1) {
        std::uint32_t named = to;
        for (std::size_t i = path.size(); i-- > 0 && ir.rules()[named].name.empty();) {
          named = path[i].first;
        }
        return fail(ErrorCode::kInvalidArgument,
                    "rule \"{}\" is left-recursive: it can call itself before any byte; write it "
                    "as a repetition",
                    ir.rules()[named].name);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Automaton>> Automaton::build(const Ir& ir, RuleId root) {
  for (const Ir::Rule& rule : ir.rules()) {
    if (!rule.defined) {
      return fail(ErrorCode::kInvalidArgument, "rule \"{}\" is used and not defined", rule.name);
    }
  }
  TRINE_TRY(ir.check("grammar"));
  auto made = std::make_shared<Automaton>();
  std::vector<std::uint32_t> starts;
  Lowering(ir, made->states_).run(starts);
  const Reverse reverse(made->states_);
  compute_need(made->states_, reverse);
  made->start_ = starts[root];
  if (made->states_[made->start_].need == kNever) {
    return fail(ErrorCode::kInvalidArgument, "rule \"{}\" matches no finite text",
                ir.rules()[root].name);
  }
  if (made->states_[made->start_].need > kMaxStackDepth) {
    return fail(ErrorCode::kExhausted, "rule \"{}\" needs {} rules open at once, at most {}",
                ir.rules()[root].name, made->states_[made->start_].need, kMaxStackDepth);
  }
  TRINE_TRY(
      refuse_left_recursion(ir, made->states_, compute_nullable(made->states_, reverse), starts));
  return std::shared_ptr<const Automaton>(std::move(made));
}

}  // namespace trine::grammar
