#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 28;

// Control tokens that end a turn or a text, by the names that chat models give them.
constexpr std::array<std::string_view, 18> kStopNames{
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<|endofturn|>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};

Status check_text_size(std::size_t size) {
  if (size > kMaxText) {
    return fail(ErrorCode::kExhausted, "text of {} bytes, at most {}", size, kMaxText);
  }
  return {};
}

std::vector<std::int32_t> find_stop_ids(const TokenizerParts& parts) {
  std::vector<std::int32_t> out = parts.more_stops;
  if (parts.eos) {
    out.push_back(*parts.eos);
  }
  const Vocab& vocab = *parts.vocab;
  // In the harmony format a message, not the turn, ends with <|end|>.
  const bool harmony = vocab.find("<|return|>") != kNoToken && vocab.find("<|call|>") != kNoToken;
  for (const std::string_view name : kStopNames) {
    const std::int32_t id = vocab.find(name);
    if (id != kNoToken && vocab.kind(id) == TokenKind::kControl &&
        !(harmony && name == "<|end|>")) {
      out.push_back(id);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

void Tokenizer::append_bytes(DecodeState& /*state*/, std::int32_t id, bool skip_special,
                             std::string& bytes) const {
  if (kind(id) != TokenKind::kControl) {
    bytes += token_bytes(id);
  } else if (!skip_special) {
    bytes += piece(id);
  }
}

TokenizerImpl::TokenizerImpl(TokenizerParts parts)
    : parts_(std::move(parts)), stop_ids_(find_stop_ids(parts_)) {
  TRINE_CHECK(parts_.model != nullptr);
  TRINE_CHECK(parts_.added.size() == static_cast<std::size_t>(vocab_size()));
  TRINE_CHECK(parts_.special.size() == parts_.added.size());
}

Status TokenizerImpl::encode_plain(std::string text, bool at_origin,
                                   std::vector<std::int32_t>& out) const {
  if (text.empty()) {  // nothing, or normalized away: a pre-tokenizer must not put its prefix there
    return {};
  }
  PieceList list;
  list.text = std::move(text);
  list.pieces.push_back({0, list.text.size()});
  list.at_origin = at_origin;
  if (parts_.pretokenizer) {
    TRINE_TRY(parts_.pretokenizer->apply(list));
  }
  for (const Piece& piece : list.pieces) {
    if (piece.end > piece.begin) {
      TRINE_TRY(parts_.model->encode(list.view(piece), out));
    }
  }
  return {};
}

Status TokenizerImpl::encode_segment(std::string_view text, bool at_origin, bool skip_special,
                                     std::vector<std::int32_t>& out) const {
  std::string normalized(text);
  if (parts_.normalizer) {
    TRINE_TRY(parts_.normalizer->apply(normalized));
  }
  if (!parts_.added_tokens.has_normalized()) {
    return encode_plain(std::move(normalized), at_origin, out);
  }
  for (const Segment& s : parts_.added_tokens.split_normalized(normalized, skip_special)) {
    if (s.id != kNoToken) {
      out.push_back(s.id);
    } else {
      TRINE_TRY(encode_plain(normalized.substr(s.begin, s.end - s.begin), at_origin && s.begin == 0,
                             out));
    }
  }
  return {};
}

Status TokenizerImpl::encode_between(std::string_view text, std::size_t offset, bool skip_special,
                                     std::vector<std::int32_t>& out) const {
  for (const Segment& s : parts_.added_tokens.split_raw(text, skip_special)) {
    if (s.id != kNoToken) {
      out.push_back(s.id);
    } else {
      TRINE_TRY(encode_segment(text.substr(s.begin, s.end - s.begin), offset + s.begin == 0,
                               skip_special, out));
    }
  }
  return {};
}

Result<std::vector<std::int32_t>> TokenizerImpl::encode(std::string_view text,
                                                        const EncodeOptions& options) const {
  TRINE_TRY(check_text_size(text.size()));
  TRINE_TRY(check_utf8(text, "the text"));
  std::vector<std::int32_t> out;
  if (options.add_special) {
    out = parts_.prefix;
  }
  TRINE_TRY(encode_between(text, 0, !options.parse_special, out));
  if (options.add_special) {
    out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return out;
}

Result<std::vector<std::int32_t>> TokenizerImpl::encode_parts(std::span<const TextPart> parts,
                                                              bool add_special) const {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>>
      trusted;  // stretches of template text, neighbours joined
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TRINE_TRY(check_text_size(text.size() + parts[i].text.size()));
    TRINE_TRY(check_utf8(parts[i].text, fmt::format("part {} of the text", i)));
    const std::size_t begin = text.size();
    text += parts[i].text;
    if (parts[i].from_user || text.size() == begin) {
      continue;
    }
    if (!trusted.empty() && trusted.back().second == begin) {
      trusted.back().second = text.size();
    } else {
      trusted.emplace_back(begin, text.size());
    }
  }
  // Control tokens first, in the template's stretches only: no user text, whatever it is, can hide,
  // make or cut one. What lies between is then encoded with control tokens off.
  std::vector<std::int32_t> out;
  if (add_special) {
    out = parts_.prefix;
  }
  std::size_t done = 0;
  for (const auto& [begin, end] : trusted) {
    for (const Segment& s : parts_.added_tokens.special_in(text, begin, end, done)) {
      if (done < s.begin) {
        TRINE_TRY(
            encode_between(std::string_view(text).substr(done, s.begin - done), done, true, out));
      }
      out.push_back(s.id);
      done = std::max(done, s.end);
    }
  }
  TRINE_TRY(encode_between(std::string_view(text).substr(done), done, true, out));
  if (add_special) {
    out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return out;
}

void TokenizerImpl::append_bytes(DecodeState& state, std::int32_t id, bool skip_special,
                                 std::string& bytes) const {
  TRINE_DCHECK(parts_.vocab->contains(id));
  const auto index = static_cast<std::size_t>(id);
  const std::string& piece = parts_.vocab->piece(id);
  if (piece.empty() || (skip_special && parts_.special[index])) {
    return;
  }
  std::string text = parts_.decoder.bytes(piece, state.first, parts_.added[index]);
  state.first = false;
  if (state.strip_left < 0) {
    state.strip_left = parts_.decoder.strip_start();
  }
  while (state.strip_left > 0 && !text.empty()) {
    if (text.front() != parts_.decoder.strip_char()) {
      state.strip_left = 0;
      break;
    }
    text.erase(0, 1);
    --state.strip_left;
  }
  bytes += text;
}

Result<std::string> TokenizerImpl::decode(std::span<const std::int32_t> ids,
                                          bool skip_special) const {
  std::string out;
  DecodeState state;
  Utf8Lossy lossy;
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!parts_.vocab->contains(id)) {
      return fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary [0, {})", id,
                  vocab_size());
    }
    bytes.clear();
    append_bytes(state, id, skip_special, bytes);
    lossy.push(bytes, out);
  }
  lossy.finish(out);
  return out;
}

TokenKind TokenizerImpl::kind(std::int32_t id) const {
  TRINE_CHECK(parts_.vocab->contains(id));
  return parts_.vocab->kind(id);
}

std::string_view TokenizerImpl::piece(std::int32_t id) const {
  TRINE_CHECK(parts_.vocab->contains(id));
  return parts_.vocab->piece(id);
}

std::string TokenizerImpl::token_bytes(std::int32_t id) const {
  if (kind(id) == TokenKind::kControl || parts_.special[static_cast<std::size_t>(id)]) {
    return {};
  }
  return parts_.decoder.bytes(piece(id), false, parts_.added[static_cast<std::size_t>(id)]);
}

std::optional<std::int32_t> TokenizerImpl::find(std::string_view piece) const {
  const std::int32_t id = parts_.vocab->find(piece);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool skip_special = true;
  DecodeState decode;
  Utf8Lossy lossy;
};

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : state_(std::make_unique<State>()) {
  TRINE_CHECK(tokenizer != nullptr);
  state_->tokenizer = std::move(tokenizer);
  state_->skip_special = skip_special;
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

Result<std::string> StreamDecoder::push(std::int32_t id) {
  const Tokenizer& tokenizer = *state_->tokenizer;
  if (id < 0 || id >= tokenizer.vocab_size()) {
    return fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary [0, {})", id,
                tokenizer.vocab_size());
  }
  std::string bytes;
  tokenizer.append_bytes(state_->decode, id, state_->skip_special, bytes);
  std::string out;
  state_->lossy.push(bytes, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  state_->lossy.finish(out);
  return out;
}

}  // namespace trine::text
