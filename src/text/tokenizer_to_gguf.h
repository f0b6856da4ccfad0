// A tokenizer.json as the arrays of a GGUF file: the way back from Tokenizer::from_json to
// Tokenizer::from_gguf.
//
// A GGUF file names a splitter instead of spelling it, and has no words for normalizers and for
// what added tokens strip. So the result is tried: both tokenizers must give the same ids for the
// bytes of every token and for texts of many kinds. Thread rule: pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace trine::text {

struct GgufTokenizer {
  // `model` is "gpt2" or "llama". `tokens` has one entry per row of the model; eot and eom are left
  // to who knows the model's end tokens.
  GgufTokenizerData data;
  // What readers of the file may do differently, a sentence each.
  std::vector<std::string> notes;
};

// `rows` is the number of rows of the model's embedding table. Errors: those of from_json;
// unsupported naming the part that a GGUF file cannot say.
Result<GgufTokenizer> gguf_tokenizer(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config_json, std::int64_t rows);

}  // namespace trine::text
