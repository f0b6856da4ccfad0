// A tokenizer whose token i stands for the bytes given for it; ids listed as control have no text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace trine::testing {

class FakeTokenizer : public text::Tokenizer {
 public:
  FakeTokenizer(std::vector<std::string> pieces, std::vector<std::int32_t> stop_ids)
      : pieces_(std::move(pieces)), stop_ids_(std::move(stop_ids)) {}

  // One token per byte that has a one-byte piece.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           const text::EncodeOptions&) const override {
    std::vector<std::int32_t> out;
    for (const char c : text) {
      const auto id = find(std::string_view(&c, 1));
      if (!id) {
        return fail(ErrorCode::kInvalidArgument, "fake: no token for byte {}", static_cast<int>(c));
      }
      out.push_back(*id);
    }
    return out;
  }

  Result<std::vector<std::int32_t>> encode_parts(std::span<const text::TextPart> parts,
                                                 bool) const override {
    std::string all;
    for (const text::TextPart& part : parts) {
      all += part.text;
    }
    return encode(all, {});
  }

  Result<std::string> decode(std::span<const std::int32_t> ids, bool) const override {
    std::string out;
    for (const std::int32_t id : ids) {
      out += token_bytes(id);
    }
    return out;
  }

  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(pieces_.size()); }

  text::TokenKind kind(std::int32_t id) const override {
    return is_stop(id) ? text::TokenKind::kControl : text::TokenKind::kNormal;
  }

  std::string_view piece(std::int32_t id) const override {
    return pieces_[static_cast<std::size_t>(id)];
  }

  std::string token_bytes(std::int32_t id) const override {
    return is_stop(id) ? std::string() : pieces_[static_cast<std::size_t>(id)];
  }

  std::optional<std::int32_t> find(std::string_view piece) const override {
    const auto at = std::find(pieces_.begin(), pieces_.end(), piece);
    return at == pieces_.end() ? std::nullopt
                               : std::optional(static_cast<std::int32_t>(at - pieces_.begin()));
  }

  std::optional<std::int32_t> bos() const override { return std::nullopt; }

  std::optional<std::int32_t> eos() const override {
    return stop_ids_.empty() ? std::nullopt : std::optional(stop_ids_.front());
  }

  std::span<const std::int32_t> stop_ids() const override { return stop_ids_; }

  std::string description() const override { return "fake"; }

 private:
  bool is_stop(std::int32_t id) const {
    return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
  }

  std::vector<std::string> pieces_;
  std::vector<std::int32_t> stop_ids_;
};

}  // namespace trine::testing
