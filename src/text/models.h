// The three tokenization models: what turns one pre-tokenized piece of text into ids.
//   BPE: Sennrich et al. 2016, merges by rank, as the Hugging Face library runs it; byte-level and
//   byte-fallback. SentencePiece BPE: merges by the score of the resulting piece (GGUF "llama").
//   Unigram: Kudo 2018, best path by Viterbi.
// All run in O(n log n) or better in the piece's length, for any text.
//
// Thread rule: immutable, any thread. The Vocab must outlive the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/vocab.h"

namespace trine::text {

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `piece` (valid UTF-8). Errors: exhausted for a piece over 2^31 bytes,
  // invalid_argument for text that the vocabulary cannot express when the file names no unknown
  // token.
  virtual Status encode(std::string_view piece, std::vector<std::int32_t>& out) const = 0;
};

struct BpeOptions {
  std::int32_t unk = kNoToken;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token as a whole stays whole
};

using MergePair = std::pair<std::string, std::string>;

// `key` names the list in errors, e.g. "tokenizer.ggml.merges". Errors: corrupt_data for a merge of
// or into a piece that the vocabulary lacks.
Result<std::unique_ptr<const Model>> make_bpe(const Vocab& vocab,
                                              const std::vector<MergePair>& merges,
                                              const BpeOptions& options, std::string_view key);

// `scores` has one value per id. Characters without a piece become byte tokens, or `unk`.
std::unique_ptr<const Model> make_spm_bpe(const Vocab& vocab, std::vector<float> scores,
                                          std::int32_t unk);

struct UnigramOptions {
  std::int32_t unk = kNoToken;
  bool byte_fallback = false;
};

// `scores` has one value per id; NaN keeps an id out of the model. Errors: corrupt_data for a piece
// over 1024 bytes.
Result<std::unique_ptr<const Model>> make_unigram(const Vocab& vocab, std::vector<double> scores,
                                                  const UnigramOptions& options);

// Appends the byte tokens of `text`; false (and nothing appended) when one of them does not exist.
bool append_byte_tokens(const Vocab& vocab, std::string_view text, std::vector<std::int32_t>& out);

}  // namespace trine::text
