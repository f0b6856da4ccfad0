// The one Tokenizer: a pipeline of added tokens, normalizer, pre-tokenizer, model, template and
// decoder. The two readers (tokenizer_json.cpp, tokenizer_gguf.cpp) fill its parts.
//
// Thread rule: immutable after finish(), any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/models.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace trine::text {

// What a reader collects. `vocab` sits behind a pointer because the model refers to it.
struct TokenizerParts {
  std::unique_ptr<Vocab> vocab = std::make_unique<Vocab>();
  std::vector<bool> added;    // by id: an added token, spelled as it is
  std::vector<bool> special;  // by id: left out by skip_special
  AddedTokens added_tokens;
  NormalizerPtr normalizer;      // null: none
  PreTokenizerPtr pretokenizer;  // null: none
  std::unique_ptr<const Model> model;
  std::vector<std::int32_t> prefix;  // what add_special puts around the text
  std::vector<std::int32_t> suffix;
  Decoder decoder;
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::vector<std::int32_t> more_stops;  // from metadata
  std::string description;
};

class TokenizerImpl final : public Tokenizer {
 public:
  explicit TokenizerImpl(TokenizerParts parts);

  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           const EncodeOptions& options) const override;
  Result<std::vector<std::int32_t>> encode_parts(std::span<const TextPart> parts,
                                                 bool add_special) const override;
  Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special) const override;
  void append_bytes(DecodeState& state, std::int32_t id, bool skip_special,
                    std::string& bytes) const override;

  std::int32_t vocab_size() const override { return parts_.vocab->size(); }

  TokenKind kind(std::int32_t id) const override;
  std::string_view piece(std::int32_t id) const override;
  std::string token_bytes(std::int32_t id) const override;
  std::optional<std::int32_t> find(std::string_view piece) const override;

  std::optional<std::int32_t> bos() const override { return parts_.bos; }

  std::optional<std::int32_t> eos() const override { return parts_.eos; }

  std::span<const std::int32_t> stop_ids() const override { return stop_ids_; }

  std::string description() const override { return parts_.description; }

 private:
  Status encode_segment(std::string_view text, bool at_origin, bool skip_special,
                        std::vector<std::int32_t>& out) const;
  Status encode_plain(std::string text, bool at_origin, std::vector<std::int32_t>& out) const;
  // Text between two control tokens, `offset` bytes into the whole.
  Status encode_between(std::string_view text, std::size_t offset, bool skip_special,
                        std::vector<std::int32_t>& out) const;

  const TokenizerParts parts_;
  std::vector<std::int32_t> stop_ids_;
};

}  // namespace trine::text
