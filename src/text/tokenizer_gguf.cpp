// Builds a tokenizer from the arrays of a GGUF file (tokenizer.ggml.*), with llama.cpp's meaning of
// them.
#include <cmath>
#include <limits>
#include <utility>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

Status check_id(const std::optional<std::int32_t>& id, std::size_t size, std::string_view key) {
  if (id && (*id < 0 || static_cast<std::size_t>(*id) >= size)) {
    return fail(ErrorCode::kCorruptData, "tokenizer.ggml.{} is {}, outside the vocabulary [0, {})",
                key, *id, size);
  }
  return {};
}

Status check(const GgufTokenizerData& data) {
  const std::size_t size = data.tokens.size();
  if (size == 0 || size > kMaxVocab) {
    return fail(ErrorCode::kCorruptData, "tokenizer.ggml.tokens has {} entries, outside [1, {}]",
                size, kMaxVocab);
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (const auto pos = find_invalid_utf8(data.tokens[i])) {
      return fail(ErrorCode::kCorruptData, "tokenizer.ggml.tokens[{}] is not UTF-8 at byte {}", i,
                  *pos);
    }
  }
  if (!data.scores.empty() && data.scores.size() != size) {
    return fail(ErrorCode::kCorruptData, "tokenizer.ggml.scores has {} entries for {} tokens",
                data.scores.size(), size);
  }
  for (std::size_t i = 0; i < data.scores.size(); ++i) {
    if (!std::isfinite(data.scores[i])) {
      return fail(ErrorCode::kCorruptData, "tokenizer.ggml.scores[{}] is not finite", i);
    }
  }
  if (!data.kinds.empty() && data.kinds.size() != size) {
    return fail(ErrorCode::kCorruptData, "tokenizer.ggml.token_type has {} entries for {} tokens",
                data.kinds.size(), size);
  }
  for (std::size_t i = 0; i < data.kinds.size(); ++i) {
    if (data.kinds[i] < 0 || data.kinds[i] > 6) {
      return fail(ErrorCode::kCorruptData, "tokenizer.ggml.token_type[{}] is {}, outside [0, 6]", i,
                  data.kinds[i]);
    }
  }
  TRINE_TRY(check_id(data.bos, size, "bos_token_id"));
  TRINE_TRY(check_id(data.eos, size, "eos_token_id"));
  TRINE_TRY(check_id(data.eot, size, "eot_token_id"));
  TRINE_TRY(check_id(data.eom, size, "eom_token_id"));
  TRINE_TRY(check_id(data.unk, size, "unknown_token_id"));
  return check_id(data.pad, size, "padding_token_id");
}

// Vocabulary, kinds and added tokens; the same for every model.
Status build_vocab(const GgufTokenizerData& data, TokenizerParts& parts,
                   std::vector<AddedToken>& added) {
  const std::size_t size = data.tokens.size();
  parts.added.assign(size, false);
  parts.special.assign(size, false);
  for (std::size_t i = 0; i < size; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    // 0 (undefined) stands in files that leave the kind open.
    TokenKind kind = data.kinds.empty() || data.kinds[i] == 0
                         ? TokenKind::kNormal
                         : static_cast<TokenKind>(data.kinds[i]);
    if (data.kinds.empty() && data.model != "gpt2" && parse_byte_token(data.tokens[i])) {
      kind = TokenKind::kByte;
    }
    if (data.tokens[i].empty()) {
      continue;  // a hole; it can be neither found nor printed
    }
    TRINE_TRY(parts.vocab->add(id, data.tokens[i], kind));
    const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (special || kind == TokenKind::kUserDefined) {
      parts.added[i] = true;
      parts.special[i] = special;
      AddedToken token;
      token.id = id;
      token.content = data.tokens[i];
      token.special = special;
      added.push_back(std::move(token));
    }
  }
  const std::int32_t last = static_cast<std::int32_t>(size) - 1;
  if (!parts.vocab->contains(last)) {  // trailing holes still count as ids
    TRINE_TRY(parts.vocab->add(last, "", TokenKind::kUnused));
  }
  return parts.vocab->finish();
}

Status build_gpt2(const GgufTokenizerData& data, TokenizerParts& parts, bool& add_bos) {
  TRINE_TRY_ASSIGN(GgufPre pre,
                   gguf_pretokenizer(data.pre.empty() ? "default" : std::string_view(data.pre)));
  std::vector<MergePair> merges;
  merges.reserve(data.merges.size());
  for (std::size_t i = 0; i < data.merges.size(); ++i) {
    const std::string& merge = data.merges[i];
    const std::size_t space =
        merge.find(' ', 1);  // a part may be a space itself only in damaged files
    if (merge.empty() || space == std::string::npos || space + 1 == merge.size()) {
      return fail(ErrorCode::kCorruptData,
                  "tokenizer.ggml.merges[{}] \"{}\" is not two parts with a space between", i,
                  merge.substr(0, 80));
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  if (merges.empty() && data.tokens.size() > 512) {
    return fail(ErrorCode::kCorruptData, "tokenizer.ggml.merges is missing or empty");
  }
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  TRINE_TRY_ASSIGN(parts.model, make_bpe(*parts.vocab, merges, options, "tokenizer.ggml.merges"));
  parts.pretokenizer = pre.pretokenizer;
  parts.decoder = Decoder::byte_level();
  parts.description = fmt::format("byte-level BPE ({})", pre.family);
  add_bos = pre.add_bos;
  return {};
}

Status build_spm(const GgufTokenizerData& data, TokenizerParts& parts) {
  if (data.scores.empty()) {
    return fail(ErrorCode::kCorruptData,
                "tokenizer.ggml.scores is missing (tokenizer.ggml.model \"llama\" needs it)");
  }
  const bool prefix = data.add_space_prefix.value_or(true);
  std::vector<NormalizerPtr> steps;
  if (prefix) {
    steps.push_back(make_prepend(" "));
  }
  steps.push_back(make_replace_literal(" ", "\xe2\x96\x81"));
  parts.normalizer = make_normalizer_sequence(std::move(steps));
  parts.model = make_spm_bpe(*parts.vocab, data.scores, data.unk.value_or(kNoToken));
  parts.decoder = Decoder::sentencepiece(prefix);
  parts.description = "SentencePiece BPE";
  return {};
}

Status build_unigram(GgufTokenizerData& data, TokenizerParts& parts) {
  if (data.scores.empty()) {
    return fail(ErrorCode::kCorruptData,
                "tokenizer.ggml.scores is missing (tokenizer.ggml.model \"t5\" needs it)");
  }
  SpmNormalizerOptions options;
  options.add_space_prefix = data.add_space_prefix.value_or(true);
  options.remove_extra_whitespaces = data.remove_extra_whitespaces.value_or(false);
  TRINE_TRY_ASSIGN(parts.normalizer, make_spm_normalizer(data.precompiled_charsmap, options));
  std::vector<double> scores;
  scores.reserve(data.scores.size());
  for (std::size_t i = 0; i < data.scores.size(); ++i) {
    const auto kind = parts.vocab->kind(static_cast<std::int32_t>(i));
    const bool in_model = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
    const double score =
        kind == TokenKind::kUserDefined ? 0.0 : static_cast<double>(data.scores[i]);
    scores.push_back(in_model ? score : std::numeric_limits<double>::quiet_NaN());
  }
  UnigramOptions unigram;
  unigram.unk = data.unk.value_or(kNoToken);
  unigram.byte_fallback = true;  // where the vocabulary has byte tokens
  TRINE_TRY_ASSIGN(parts.model, make_unigram(*parts.vocab, std::move(scores), unigram));
  parts.decoder = Decoder::sentencepiece(options.add_space_prefix);
  parts.description = "SentencePiece unigram";
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(GgufTokenizerData data) {
  TRINE_TRY(check(data));
  TokenizerParts parts;
  std::vector<AddedToken> added;
  TRINE_TRY(build_vocab(data, parts, added));
  bool add_bos = false;
  bool add_eos = false;
  if (data.model == "gpt2") {
    TRINE_TRY(build_gpt2(data, parts, add_bos));
  } else if (data.model == "llama") {
    TRINE_TRY(build_spm(data, parts));
    add_bos = true;
  } else if (data.model == "t5") {
    TRINE_TRY(build_unigram(data, parts));
    add_eos = true;
  } else {
    return fail(ErrorCode::kUnsupported,
                "tokenizer.ggml.model \"{}\" is not supported (gpt2, llama and t5 are)",
                data.model.substr(0, 80));
  }
  TRINE_TRY(parts.added_tokens.build(std::move(added), nullptr));
  parts.bos = data.bos;
  parts.eos = data.eos;
  for (const auto& id : {data.eot, data.eom}) {
    if (id) {
      parts.more_stops.push_back(*id);
    }
  }
  if (data.add_bos.value_or(add_bos) && data.bos) {
    parts.prefix.push_back(*data.bos);
  }
  if (data.add_eos.value_or(add_eos) && data.eos) {
    parts.suffix.push_back(*data.eos);
  }
  return std::make_shared<const TokenizerImpl>(std::move(parts));
}

}  // namespace trine::text
