// Text to token ids and back. Built from a tokenizer.json or from the arrays a GGUF file carries.
//
// Thread rule: immutable after creation, any thread; StreamDecoder belongs to one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::text {

// Kinds as GGUF's tokenizer.ggml.token_type spells them.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// What a GGUF file says about its tokenizer (tokenizer.ggml.*), already type- and length-checked by
// the caller.
struct GgufTokenizerData {
  std::string model;  // "gpt2", "llama", "t5", ...
  std::string pre;    // "default", "llama-bpe", "qwen2", "smollm", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;        // empty or tokens.size()
  std::vector<std::int32_t> kinds;  // empty or tokens.size()
  std::vector<std::string> merges;
  std::optional<std::int32_t> bos, eos, eot, eom, unk, pad;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;
};

struct EncodeOptions {
  bool add_special = true;  // BOS/EOS as the model's tokenizer adds them
  bool parse_special =
      false;  // whether "<|im_end|>" in the text becomes the control token. Off for user content.
};

// One run of text for encode_parts: template text may name control tokens, user text may not.
struct TextPart {
  std::string text;
  bool from_user = false;
};

// What decoding remembers from token to token; starts as made.
struct DecodeState {
  bool first = true;    // no token has been decoded yet
  int strip_left = -1;  // characters still to take away at the start of the text; -1: not yet asked
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(GgufTokenizerData data);
  // `tokenizer_json` and optional `tokenizer_config_json` are file contents.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view tokenizer_config_json);
  virtual ~Tokenizer() = default;

  // Errors: invalid_argument for text that is not UTF-8 (with the byte offset).
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text,
                                                   const EncodeOptions& options) const = 0;
  // Control tokens are recognised in parts with from_user == false only; neighbouring parts are
  // otherwise encoded as one text. add_special as in EncodeOptions.
  virtual Result<std::vector<std::int32_t>> encode_parts(std::span<const TextPart> parts,
                                                         bool add_special) const = 0;

  // The text of the ids. skip_special leaves control tokens out. Errors: invalid_argument for an id
  // outside the vocabulary.
  virtual Result<std::string> decode(std::span<const std::int32_t> ids,
                                     bool skip_special) const = 0;

  // One step of decode(): appends the bytes that `id` (inside the vocabulary) adds after the tokens
  // that `state` has seen. They may end inside a character. Without an override: token_bytes(), and
  // control tokens as they are spelled.
  virtual void append_bytes(DecodeState& state, std::int32_t id, bool skip_special,
                            std::string& bytes) const;

  virtual std::int32_t vocab_size() const = 0;
  virtual TokenKind kind(std::int32_t id) const = 0;
  // The token as the file spells it ("Ġthe", "<0x0A>").
  virtual std::string_view piece(std::int32_t id) const = 0;
  // The bytes the token stands for in running text; empty for control tokens.
  virtual std::string token_bytes(std::int32_t id) const = 0;
  virtual std::optional<std::int32_t> find(std::string_view piece) const = 0;
  virtual std::optional<std::int32_t> bos() const = 0;
  virtual std::optional<std::int32_t> eos() const = 0;
  // Every id that ends a generation: eos, eot, eom, <|im_end|>, <|eot_id|>, <end_of_turn>, ...
  // found by name and metadata.
  virtual std::span<const std::int32_t> stop_ids() const = 0;
  // "byte-level BPE (llama3)", "SentencePiece BPE", ... for `trine show`.
  virtual std::string description() const = 0;
};

// Streaming detokenizer: feed ids one by one, get text that never ends inside a character; the
// concatenation of all outputs and finish() equals decode() of all ids.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);
  ~StreamDecoder();
  StreamDecoder(const StreamDecoder&) = delete;
  StreamDecoder& operator=(const StreamDecoder&) = delete;
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  Result<std::string> push(std::int32_t id);
  // What is still held back, with invalid bytes as U+FFFD.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trine::text
