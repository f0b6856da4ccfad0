// The vocabulary: pieces, kinds, and the two look-ups on text that the models share.
//
// Thread rule: immutable after building, any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace trine::text {

inline constexpr std::int32_t kNoToken = -1;
// Limits that no real vocabulary comes near; they bound what a hostile file can make us spend.
inline constexpr std::size_t kMaxVocab = std::size_t{1} << 24;
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 16;
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

class Vocab {
 public:
  Vocab() = default;
  ~Vocab() = default;
  Vocab(const Vocab&) = delete;
  Vocab& operator=(const Vocab&) = delete;

  // Sets piece `id`; ids may come in any order and leave holes (kind kUnused, empty piece). Errors:
  // corrupt_data for an id that is taken, a piece that exists, and what passes the limits.
  Status add(std::int32_t id, std::string piece, TokenKind kind);
  // To be called once, after the last add(): makes the look-up tables.
  Status finish();

  std::int32_t size() const { return static_cast<std::int32_t>(pieces_.size()); }

  const std::string& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }

  TokenKind kind(std::int32_t id) const { return kinds_[static_cast<std::size_t>(id)]; }

  void set_kind(std::int32_t id, TokenKind kind) { kinds_[static_cast<std::size_t>(id)] = kind; }

  bool contains(std::int32_t id) const { return id >= 0 && id < size(); }

  // Any piece with this spelling, or kNoToken.
  std::int32_t find(std::string_view piece) const;
  // As find(), for the models: never a control, unused or byte token. Text cannot become those by
  // its letters, whatever merges a file lists.
  std::int32_t find_text(std::string_view piece) const;

  // The token <0xNN> for `byte`, or kNoToken.
  std::int32_t byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

  std::size_t max_piece_bytes() const { return max_piece_bytes_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenKind> kinds_;
  std::vector<bool> present_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views into pieces_, made by finish()
  std::vector<std::int32_t> byte_tokens_ = std::vector<std::int32_t>(256, kNoToken);
  std::size_t max_piece_bytes_ = 0;
};

// The value of "<0x0A>" and its like: exactly two hexadecimal digits, or nullopt.
std::optional<unsigned char> parse_byte_token(std::string_view piece);

// A set of byte strings with values, walked byte by byte from the left.
class ByteTrie {
 public:
  // `entries` must be without duplicates and without empty strings.
  void build(std::vector<std::pair<std::string, std::int32_t>> entries);

  bool empty() const { return nodes_.size() <= 1; }

  struct Hit {
    std::size_t size = 0;  // 0: none
    std::int32_t value = kNoToken;
  };

  // The longest entry that starts at `pos`.
  Hit longest(std::string_view text, std::size_t pos) const;

  // Calls visit(size, value) for each entry that starts at `pos`, shortest first.
  template <typename Visit>
  void each(std::string_view text, std::size_t pos, Visit visit) const {
    if (nodes_.empty()) {
      return;
    }
    std::uint32_t node = 0;
    for (std::size_t i = pos; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) {
        return;
      }
      if (nodes_[node].value != kNoToken) {
        visit(i + 1 - pos, nodes_[node].value);
      }
    }
  }

 private:
  struct Node {
    std::uint32_t first_child = 0;  // children are neighbours, in the order of their bytes
    std::int32_t value = kNoToken;
    std::uint16_t num_children = 0;
    unsigned char byte = 0;
  };

  // The child of `node` under `byte`, or 0 (the root is nobody's child).
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> root_children_;  // by byte
};

}  // namespace trine::text
