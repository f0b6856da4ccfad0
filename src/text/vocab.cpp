#include "text/vocab.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trine::text {

Status Vocab::add(std::int32_t id, std::string piece, TokenKind kind) {
  if (id < 0 || static_cast<std::size_t>(id) >= kMaxVocab) {
    return fail(ErrorCode::kCorruptData, "token \"{}\": id {} is outside [0, {})",
                piece.substr(0, 80), id, kMaxVocab);
  }
  if (piece.size() > kMaxPieceBytes) {
    return fail(ErrorCode::kCorruptData, "token {}: {} bytes, at most {}", id, piece.size(),
                kMaxPieceBytes);
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= pieces_.size()) {
    pieces_.resize(index + 1);
    kinds_.resize(index + 1, TokenKind::kUnused);
    present_.resize(index + 1, false);
  }
  if (present_[index]) {
    return fail(ErrorCode::kCorruptData, "id {} belongs to both \"{}\" and \"{}\"", id,
                pieces_[index].substr(0, 80), piece.substr(0, 80));
  }
  pieces_[index] = std::move(piece);
  kinds_[index] = kind;
  present_[index] = true;
  return {};
}

Status Vocab::finish() {
  ids_.reserve(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!present_[i]) {
      continue;
    }
    const auto id = static_cast<std::int32_t>(i);
    max_piece_bytes_ = std::max(max_piece_bytes_, pieces_[i].size());
    if (const auto [it, inserted] = ids_.emplace(pieces_[i], id); !inserted) {
      return fail(ErrorCode::kCorruptData, "tokens {} and {} are both \"{}\"", it->second, id,
                  pieces_[i].substr(0, 80));
    }
    if (kinds_[i] == TokenKind::kByte) {
      const auto byte = parse_byte_token(pieces_[i]);
      if (!byte) {
        return fail(ErrorCode::kCorruptData, "byte token {} is spelled \"{}\", not <0xNN>", id,
                    pieces_[i].substr(0, 80));
      }
      byte_tokens_[*byte] = id;
    }
  }
  return {};
}

std::int32_t Vocab::find(std::string_view piece) const {
  const auto it = ids_.find(piece);
  return it == ids_.end() ? kNoToken : it->second;
}

std::int32_t Vocab::find_text(std::string_view piece) const {
  const std::int32_t id = find(piece);
  if (id == kNoToken || kind(id) == TokenKind::kControl || kind(id) == TokenKind::kUnused ||
      kind(id) == TokenKind::kByte) {
    return kNoToken;
  }
  return id;
}

std::optional<unsigned char> parse_byte_token(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
    return std::nullopt;
  }
  unsigned value = 0;
  for (const char c : piece.substr(3, 2)) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<unsigned>(c - 'A' + 10);
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<unsigned>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<unsigned char>(value);
}

void ByteTrie::build(std::vector<std::pair<std::string, std::int32_t>> entries) {
  std::sort(entries.begin(), entries.end());
  nodes_.assign(1, Node{});

  // Breadth first over ranges of the sorted entries, so that the children of a node are neighbours.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t depth = 0;
    std::uint32_t node = 0;
  };

  std::vector<Range> queue{{0, entries.size(), 0, 0}};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const Range range = queue[head];
    std::size_t i = range.begin;
    if (i < range.end && entries[i].first.size() == range.depth) {
      nodes_[range.node].value = entries[i].second;
      ++i;
    }
    nodes_[range.node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (i < range.end) {
      const char byte = entries[i].first[range.depth];
      const std::size_t begin = i;
      while (i < range.end && entries[i].first[range.depth] == byte) {
        ++i;
      }
      queue.push_back({begin, i, range.depth + 1, static_cast<std::uint32_t>(nodes_.size())});
      nodes_.push_back(Node{0, kNoToken, 0, static_cast<unsigned char>(byte)});
      ++nodes_[range.node].num_children;
    }
  }
  root_children_.assign(256, 0);
  for (std::uint32_t i = 0; i < nodes_[0].num_children; ++i) {
    const std::uint32_t node = nodes_[0].first_child + i;
    root_children_[nodes_[node].byte] = node;
  }
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) {
    return root_children_[byte];
  }
  const Node& parent = nodes_[node];
  std::uint32_t low = parent.first_child;
  std::uint32_t high = low + parent.num_children;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (nodes_[middle].byte < byte) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < parent.first_child + parent.num_children && nodes_[low].byte == byte ? low : 0;
}

ByteTrie::Hit ByteTrie::longest(std::string_view text, std::size_t pos) const {
  Hit hit;
  each(text, pos, [&](std::size_t size, std::int32_t value) { hit = {size, value}; });
  return hit;
}

}  // namespace trine::text
