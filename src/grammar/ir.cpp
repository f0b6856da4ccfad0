#include "grammar/ir.h"

#include <algorithm>
#include <utility>

#include "grammar/limits.h"
#include "text/unicode.h"

namespace trine::grammar {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;
constexpr char32_t kFirstSurrogate = 0xd800;
constexpr char32_t kLastSurrogate = 0xdfff;
// A body of up to this many states is copied by a repetition; a larger one is called.
constexpr std::uint32_t kCopiedBody = 2;

std::uint32_t saturate(std::uint64_t size) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kMaxStates + 1));
}

}  // namespace

std::vector<CodeRange> normalize_ranges(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> whole;
  for (const CodeRange& r : ranges) {
    if (r.low < kFirstSurrogate) {
      whole.push_back({r.low, std::min<char32_t>(r.high, kFirstSurrogate - 1)});
    }
    if (r.high > kLastSurrogate) {
      whole.push_back(
          {std::max<char32_t>(r.low, kLastSurrogate + 1), std::min(r.high, kLastCodePoint)});
    }
  }
  std::erase_if(whole, [](const CodeRange& r) { return r.low > r.high; });
  std::sort(whole.begin(), whole.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.low < b.low; });
  std::vector<CodeRange> out;
  for (const CodeRange& r : whole) {
    if (!out.empty() && r.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, r.high);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> out;
  char32_t next = 0;
  for (const CodeRange& r : ranges) {
    if (r.low > next) {
      out.push_back({next, r.low - 1});
    }
    next = r.high + 1;
  }
  if (next <= kLastCodePoint) {
    out.push_back({next, kLastCodePoint});
  }
  return normalize_ranges(out);
}

Ir::Ir() {
  nodes_.push_back({.kind = Kind::kEmpty});
  nodes_.push_back({.kind = Kind::kNothing, .size = 1});
}

NodeId Ir::add(Node node) {
  if (node.depth > kMaxNodeDepth) {
    too_deep_ = true;
    return empty();
  }
  if (nodes_.size() >= kMaxNodes) {
    too_many_nodes_ = true;
    return empty();
  }
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Ir::byte_range(std::uint8_t low, std::uint8_t high) {
  return add({.kind = Kind::kBytes, .low = low, .high = high, .size = 1});
}

NodeId Ir::literal(std::string_view bytes) {
  if (bytes.empty()) {
    return empty();
  }
  const auto first = static_cast<std::uint32_t>(bytes_.size());
  if (bytes_.size() + bytes.size() > (std::size_t{1} << 24)) {
    too_many_nodes_ = true;
    return empty();
  }
  bytes_ += bytes;
  return add({.kind = Kind::kLiteral,
              .first = first,
              .count = static_cast<std::uint32_t>(bytes.size()),
              .size = saturate(bytes.size())});
}

NodeId Ir::seq(std::span<const NodeId> parts) {
  if (parts.size() == 1) {
    return parts[0];
  }
  Node n{.kind = Kind::kSeq, .first = static_cast<std::uint32_t>(children_.size())};
  std::uint64_t size = 0;
  for (const NodeId part : parts) {
    if (part == empty()) {
      continue;
    }
    children_.push_back(part);
    size += nodes_[part].size;
    n.depth = std::max(n.depth, static_cast<std::uint16_t>(nodes_[part].depth + 1));
    ++n.count;
  }
  if (n.count == 0) {
    return empty();
  }
  n.size = saturate(size);
  return add(n);
}

NodeId Ir::alt(std::span<const NodeId> parts) {
  if (parts.empty()) {
    return nothing();
  }
  if (parts.size() == 1) {
    return parts[0];
  }
  Node n{.kind = Kind::kAlt,
         .first = static_cast<std::uint32_t>(children_.size()),
         .count = static_cast<std::uint32_t>(parts.size())};
  std::uint64_t size = parts.size();
  for (const NodeId part : parts) {
    children_.push_back(part);
    size += nodes_[part].size;
    n.depth = std::max(n.depth, static_cast<std::uint16_t>(nodes_[part].depth + 1));
  }
  n.size = saturate(size);
  return add(n);
}

NodeId Ir::repeat(NodeId body, std::uint32_t min, std::uint32_t max) {
  if (max == 0 || body == empty()) {
    return empty();
  }
  if (min == 1 && max == 1) {
    return body;
  }
  const std::uint64_t copies = max == kUnbounded ? std::uint64_t{min} + 1 : max;
  if (copies > 1 && nodes_[body].size > kCopiedBody && nodes_[body].kind != Kind::kRef) {
    const RuleId rule = add_rule("");
    define(rule, body);
    body = ref(rule);
  }
  const std::uint64_t splits = max == kUnbounded ? 1 : max - min;
  return add({.kind = Kind::kRepeat,
              .depth = static_cast<std::uint16_t>(nodes_[body].depth + 1),
              .first = body,
              .count = min,
              .max = max,
              .size = saturate(copies * nodes_[body].size + splits)});
}

NodeId Ir::ref(RuleId rule) {
  return add({.kind = Kind::kRef, .first = rule, .size = 1});
}

// Splits [low, high] where the number of bytes or the set of continuation bytes changes (the usual
// construction of UTF-8 automata, e.g. Ken Thompson's grep and RE2).
NodeId Ir::utf8_range(char32_t low, char32_t high) {
  std::vector<NodeId> parts;
  std::vector<CodeRange> work{{low, high}};
  while (!work.empty()) {
    CodeRange r = work.back();
    work.pop_back();
    bool split = false;
    for (const char32_t last : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}}) {
      if (r.low <= last && r.high > last) {
        work.push_back({last + 1, r.high});
        r.high = last;
      }
    }
    if (r.high > 0x7f) {
      for (int i = 1; i < 4 && !split; ++i) {
        const char32_t mask = (char32_t{1} << (6 * i)) - 1;
        if ((r.low & ~mask) != (r.high & ~mask)) {
          if ((r.low & mask) != 0) {
            work.push_back({(r.low | mask) + 1, r.high});
            work.push_back({r.low, r.low | mask});
            split = true;
          } else if ((r.high & mask) != mask) {
            work.push_back({r.high & ~mask, r.high});
            work.push_back({r.low, (r.high & ~mask) - 1});
            split = true;
          }
        }
      }
    }
    if (split) {
      continue;
    }
    std::string from;
    std::string to;
    text::append_utf8(from, r.low);
    text::append_utf8(to, r.high);
    std::vector<NodeId> bytes;
    for (std::size_t i = 0; i < from.size(); ++i) {
      bytes.push_back(
          byte_range(static_cast<std::uint8_t>(from[i]), static_cast<std::uint8_t>(to[i])));
    }
    parts.push_back(seq(bytes));
  }
  return alt(parts);
}

NodeId Ir::code_points(const std::vector<CodeRange>& ranges) {
  std::vector<NodeId> parts;
  parts.reserve(ranges.size());
  for (const CodeRange& r : ranges) {
    parts.push_back(utf8_range(r.low, r.high));
  }
  return alt(parts);
}

RuleId Ir::add_rule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  num_states_ += 2;  // its first and its last
  return static_cast<RuleId>(rules_.size() - 1);
}

void Ir::define(RuleId rule, NodeId root) {
  rules_[rule].root = root;
  rules_[rule].defined = true;
  num_states_ += nodes_[root].size;
}

Status Ir::check(std::string_view place) const {
  if (too_deep_) {
    return fail(ErrorCode::kExhausted, "{}: expressions nested deeper than {}", place,
                kMaxNodeDepth);
  }
  if (too_many_nodes_) {
    return fail(ErrorCode::kExhausted, "{}: more than {} compile operations", place, kMaxNodes);
  }
  if (num_states_ > kMaxStates) {
    return fail(ErrorCode::kExhausted, "{}: {} automaton states, at most {}", place, num_states_,
                kMaxStates);
  }
  return {};
}

}  // namespace trine::grammar
