// The texts of a file: the whole of a plain one, or of JSONL each line's "text" or "messages".
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/bundle.h"

namespace trine::eval {

struct Document {
  std::string text;
  std::string messages;  // a JSON array in the OpenAI shape; empty: text counts
  std::int64_t line = 1;
};

// `name` is named in errors, and says by its ending .jsonl what the content is. Errors:
// invalid_argument naming line and field.
Result<std::vector<Document>> parse_documents(std::string_view content, const std::string& name);

// The tokens of each, conversations through the model's chat template, without begin tokens.
// Errors: those of tokenizer and template, naming the line.
Result<std::vector<std::vector<std::int32_t>>> encode_documents(
    const std::vector<Document>& documents, const std::string& name, const ModelText& text,
    const ModelConfig& config);

// A conversation's tokens as the model sees them. Errors: those of the template; unsupported for a
// system prompt that the template has no place for.
Result<std::vector<std::int32_t>> encode_messages(std::string_view messages,
                                                  bool add_generation_prompt, const ModelText& text,
                                                  const ModelConfig& config);

}  // namespace trine::eval
