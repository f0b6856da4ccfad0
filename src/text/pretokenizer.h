// Pre-tokenizers: where the text is cut before the model sees it (tokenizer.json "pre_tokenizer",
// GGUF tokenizer.ggml.pre).
//
// Thread rule: immutable, any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "text/pattern.h"

namespace trine::text {

// Pieces of one text, in order and without overlap.
struct PieceList {
  std::string text;
  std::vector<Piece> pieces;
  bool at_origin = false;  // byte 0 of `text` is the start of what the caller wants encoded

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Errors: as Regex::find_all.
  virtual Status apply(PieceList& list) const = 0;
};

using PreTokenizerPtr = std::shared_ptr<const PreTokenizer>;

// Errors: unsupported for a type that this build does not know, corrupt_data for a field of the
// wrong shape.
Result<PreTokenizerPtr> pretokenizer_from_json(const nlohmann::ordered_json& json);

// How a GGUF file's `pre` name splits text and what else it implies.
struct GgufPre {
  PreTokenizerPtr pretokenizer;
  bool ignore_merges = false;
  bool add_bos = false;
  std::string_view family;  // for description()
};

// Errors: unsupported with the name and the names that work.
Result<GgufPre> gguf_pretokenizer(std::string_view pre);

// The `pre` name that stands for a tokenizer.json's "pre_tokenizer" (null: none) of a byte-level
// model. Where no name has both the splitter and `ignore_merges`, the splitter decides. Errors:
// unsupported for one that cuts texts as no name does.
Result<std::string_view> gguf_pre_name(const nlohmann::ordered_json& pre_tokenizer,
                                       bool ignore_merges);

// The byte-level alphabet: every byte as one printable character (GPT-2's table).
void append_byte_level(std::string& out, std::string_view bytes);
// The bytes of a byte-level spelling, or nullopt when a character is outside the alphabet.
std::optional<std::string> bytes_of_byte_level(std::string_view spelling);

}  // namespace trine::text
