// A vocabulary as bytes, in the order that a walk of all tokens wants. Built once per tokenizer.
//
// Control, unknown and unused tokens and those without bytes are not in it: no grammar ever allows
// them. The ids that end an answer are kept apart. Thread rule: immutable, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace trine::grammar {

class TokenTrie {
 public:
  // Nodes in depth-first order: the children of node i follow it, up to `end`.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t first_token = 0;  // into token_ids()
    std::uint16_t num_tokens = 0;
    std::uint8_t byte = 0;
    std::uint32_t depth = 0;  // bytes before this one
  };

  static std::shared_ptr<const TokenTrie> build(const text::Tokenizer& tokenizer);
  // tokens[i] are the bytes of id i; empty: never allowed.
  static std::shared_ptr<const TokenTrie> build(std::vector<std::string> tokens,
                                                std::span<const std::int32_t> stop_ids);

  std::span<const Node> nodes() const { return nodes_; }

  std::span<const std::int32_t> token_ids() const { return ids_; }

  std::span<const std::int32_t> stop_ids() const { return stop_ids_; }

  bool is_stop(std::int32_t id) const;
  // Empty for tokens that no grammar allows and for ids outside the vocabulary.
  std::string_view bytes(std::int32_t id) const;

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(tokens_.size()); }

  // 64-bit words of a mask.
  std::size_t mask_words() const { return (tokens_.size() + 63) / 64; }

  std::uint32_t max_depth() const { return max_depth_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> stop_ids_;
  std::uint32_t max_depth_ = 0;
};

}  // namespace trine::grammar
