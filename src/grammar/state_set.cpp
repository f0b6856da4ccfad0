#include "grammar/state_set.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "grammar/limits.h"

namespace trine::grammar {
namespace {

using Op = Automaton::Op;
constexpr std::size_t kFirstTable = 256;

// The finisher of splitmix64 (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Fingerprint combine(const Fingerprint& a, std::uint32_t b) {
  return {mix(a[0] ^ mix(b)), mix(a[1] + mix(std::uint64_t{b} | (std::uint64_t{1} << 40)))};
}

std::uint64_t key_of(std::uint32_t a, std::uint32_t b) {
  return (std::uint64_t{a} << 32) | b;
}

}  // namespace

bool accepts(std::span<const Config> set) {
  return std::any_of(set.begin(), set.end(),
                     [](const Config& c) { return c.state == kAcceptState; });
}

Stepper::Stepper(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  visited_.resize(kFirstTable);
  clear();
}

void Stepper::clear() {
  cells_.assign(1, Cell{.hash = {1, 2}});
  cell_table_.assign(kFirstTable, 0);
}

void Stepper::grow_cells() {
  cell_table_.assign(cell_table_.size() * 2, 0);
  const std::size_t mask = cell_table_.size() - 1;
  for (std::uint32_t id = 1; id < cells_.size(); ++id) {
    std::size_t slot = mix(key_of(cells_[id].back, cells_[id].parent)) & mask;
    while (cell_table_[slot] != 0) {
      slot = (slot + 1) & mask;
    }
    cell_table_[slot] = id;
  }
}

std::uint32_t Stepper::push(std::uint32_t back, std::uint32_t parent) {
  const std::size_t mask = cell_table_.size() - 1;
  std::size_t slot = mix(key_of(back, parent)) & mask;
  while (cell_table_[slot] != 0) {
    const Cell& c = cells_[cell_table_[slot]];
    if (c.back == back && c.parent == parent) {
      return cell_table_[slot];
    }
    slot = (slot + 1) & mask;
  }
  if (cells_.size() >= kMaxStackNodes) {
    return 0;
  }
  const auto id = static_cast<std::uint32_t>(cells_.size());
  cells_.push_back({.back = back,
                    .parent = parent,
                    .depth = cells_[parent].depth + 1,
                    .hash = combine(cells_[parent].hash, back)});
  cell_table_[slot] = id;
  if (cells_.size() * 2 > cell_table_.size()) {
    grow_cells();
  }
  return id;
}

bool Stepper::visit(std::uint32_t state, std::uint32_t stack) {
  if ((num_visited_ + 1) * 2 > visited_.size()) {
    std::vector<Visited> old(visited_.size() * 2);
    old.swap(visited_);
    for (const Visited& v : old) {
      if (v.stamp == stamp_) {
        std::size_t slot = mix(v.key) & (visited_.size() - 1);
        while (visited_[slot].stamp == stamp_) {
          slot = (slot + 1) & (visited_.size() - 1);
        }
        visited_[slot] = v;
      }
    }
  }
  const std::uint64_t key = key_of(state, stack);
  std::size_t slot = mix(key) & (visited_.size() - 1);
  while (visited_[slot].stamp == stamp_) {
    if (visited_[slot].key == key) {
      return false;
    }
    slot = (slot + 1) & (visited_.size() - 1);
  }
  visited_[slot] = {key, stamp_};
  ++num_visited_;
  return true;
}

// A reading that could not be finished within the depth limit is not begun: its need is finite and
// fits.
void Stepper::enqueue(std::uint32_t state, std::uint32_t stack) {
  if (cells_[stack].depth + std::uint64_t{automaton_->state(state).need} <= kMaxStackDepth &&
      visit(state, stack)) {
    queue_.push_back({state, stack});
  }
}

Status Stepper::close(std::vector<Config>& out) {
  const std::size_t first = out.size();
  const std::uint64_t limit = work_ + kMaxStepWork;
  const auto over = [&](std::string_view what, std::uint64_t most) {
    out.resize(first);
    queue_.clear();
    return fail(ErrorCode::kExhausted,
                "grammar step: more than {} {}: the grammar is too ambiguous here", most, what);
  };
  while (!queue_.empty()) {
    const Config c = queue_.back();
    queue_.pop_back();
    if (++work_ > limit) {
      return over("closure operations", kMaxStepWork);
    }
    const Automaton::State& s = automaton_->state(c.state);
    switch (s.op) {
      case Op::kBytes:
        out.push_back(c);
        break;
      case Op::kSplit:
        enqueue(s.next, c.stack);
        if (s.other != s.next) {
          enqueue(s.other, c.stack);
        }
        break;
      case Op::kCall:
        // A call in last place leaves nothing to come back to: lists by right recursion stay flat.
        if (automaton_->state(s.next).op == Op::kReturn) {
          enqueue(s.other, c.stack);
        } else if (cells_[c.stack].depth < kMaxStackDepth) {
          const std::uint32_t stack = push(s.next, c.stack);
          if (stack == 0) {
            return over("stack cells", kMaxStackNodes);
          }
          enqueue(s.other, stack);
        }
        break;
      case Op::kReturn:
        if (c.stack == 0) {
          out.push_back({kAcceptState, 0});
        } else {
          enqueue(cells_[c.stack].back, cells_[c.stack].parent);
        }
        break;
      case Op::kDead:
        break;
    }
    if (out.size() - first > kMaxConfigs) {
      return over("parallel readings", kMaxConfigs);
    }
  }
  // Several rules' ends with an empty stack are one end.
  bool seen = false;
  const auto repeated = [&](const Config& c) {
    return c.state == kAcceptState && std::exchange(seen, true);
  };
  out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), repeated),
            out.end());
  return {};
}

Status Stepper::start(std::vector<Config>& out) {
  ++stamp_;
  num_visited_ = 0;
  enqueue(automaton_->start(), 0);
  return close(out);
}

Status Stepper::step(std::span<const Config> from, std::uint8_t byte, std::vector<Config>& out) {
  ++stamp_;
  num_visited_ = 0;
  work_ += from.size();
  for (const Config& c : from) {
    if (c.state == kAcceptState) {
      continue;
    }
    const Automaton::State& s = automaton_->state(c.state);
    if (s.low <= byte && byte <= s.high) {
      enqueue(s.next, c.stack);
    }
  }
  return close(out);
}

Status Stepper::import(const Stepper& other, std::span<const Config> set,
                       std::vector<Config>& out) {
  std::array<std::uint32_t, kMaxStackDepth + 1> backs{};
  const std::size_t first = out.size();
  for (const Config& c : set) {
    std::size_t depth = 0;
    for (std::uint32_t cell = c.stack; cell != 0; cell = other.cells_[cell].parent) {
      TRINE_DCHECK(depth < backs.size());
      backs[depth++] = other.cells_[cell].back;
    }
    std::uint32_t stack = 0;
    while (depth > 0) {
      stack = push(backs[--depth], stack);
      if (stack == 0) {
        out.resize(first);
        return fail(ErrorCode::kExhausted, "grammar mask: more than {} stack cells",
                    kMaxStackNodes);
      }
    }
    out.push_back({c.state, stack});
  }
  return {};
}

// A sum, so the order of the readings does not matter.
Fingerprint Stepper::fingerprint(std::span<const Config> set) const {
  Fingerprint sum{};
  for (const Config& c : set) {
    const Fingerprint one = combine(cells_[c.stack].hash, c.state);
    sum[0] += one[0];
    sum[1] += one[1];
  }
  return sum;
}

int Stepper::only_byte(std::span<const Config> set) const {
  int byte = -1;
  for (const Config& c : set) {
    if (c.state == kAcceptState) {
      return -1;
    }
    const Automaton::State& s = automaton_->state(c.state);
    if (s.low != s.high || (byte >= 0 && byte != s.low)) {
      return -1;
    }
    byte = s.low;
  }
  return byte;
}

}  // namespace trine::grammar
