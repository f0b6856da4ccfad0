#include "grammar/token_trie.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trine::grammar {

std::shared_ptr<const TokenTrie> TokenTrie::build(const text::Tokenizer& tokenizer) {
  std::vector<std::string> tokens(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const text::TokenKind kind = tokenizer.kind(id);
    if (kind == text::TokenKind::kNormal || kind == text::TokenKind::kUserDefined ||
        kind == text::TokenKind::kByte) {
      tokens[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
    }
  }
  return build(std::move(tokens), tokenizer.stop_ids());
}

std::shared_ptr<const TokenTrie> TokenTrie::build(std::vector<std::string> tokens,
                                                  std::span<const std::int32_t> stop_ids) {
  auto made = std::make_shared<TokenTrie>();
  made->stop_ids_.assign(stop_ids.begin(), stop_ids.end());
  for (const std::int32_t id : stop_ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < tokens.size()) {
      tokens[static_cast<std::size_t>(id)].clear();
    }
  }
  made->tokens_ = std::move(tokens);
  auto& ids = made->ids_;
  for (std::size_t i = 0; i < made->tokens_.size(); ++i) {
    if (!made->tokens_[i].empty()) {
      ids.push_back(static_cast<std::int32_t>(i));
    }
  }
  const auto bytes = [&](std::int32_t id) -> const std::string& {
    return made->tokens_[static_cast<std::size_t>(id)];
  };
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<std::uint32_t> path;  // the nodes of the token before, outermost first
  const auto close_to = [&](std::size_t depth) {
    while (path.size() > depth) {
      made->nodes_[path.back()].end = static_cast<std::uint32_t>(made->nodes_.size());
      path.pop_back();
    }
  };
  std::string_view last;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string_view token = bytes(ids[i]);
    const auto differs = std::mismatch(last.begin(), last.end(), token.begin(), token.end());
    close_to(static_cast<std::size_t>(differs.first - last.begin()));
    while (path.size() < token.size()) {
      const auto depth = static_cast<std::uint32_t>(path.size());
      path.push_back(static_cast<std::uint32_t>(made->nodes_.size()));
      made->nodes_.push_back({.byte = static_cast<std::uint8_t>(token[depth]), .depth = depth});
      made->max_depth_ = std::max(made->max_depth_, depth + 1);
    }
    Node& node = made->nodes_[path.back()];
    if (node.num_tokens == 0) {
      node.first_token = static_cast<std::uint32_t>(i);
    }
    // Only a hostile file spells one text in so many ways; the ids past the count are simply never
    // allowed.
    if (node.num_tokens < std::numeric_limits<std::uint16_t>::max()) {
      ++node.num_tokens;
    }
    last = token;
  }
  close_to(0);
  return made;
}

bool TokenTrie::is_stop(std::int32_t id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

std::string_view TokenTrie::bytes(std::int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view()
                                      : std::string_view(tokens_[static_cast<std::size_t>(id)]);
}

}  // namespace trine::grammar
