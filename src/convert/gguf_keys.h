// The metadata of a GGUF file: what the model is, how its tokenizer works, how its authors sample.
// Key names: the GGUF document of the ggml project. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/bundle.h"
#include "format/gguf.h"
#include "model/config.h"
#include "text/tokenizer_to_gguf.h"

namespace trine {

using GgufPairs = std::vector<GgufMetadata::Pair>;

// general.* but what depends on the tensors' types (general.file_type).
void add_general_keys(std::string_view architecture, std::string_view name, GgufPairs& out);

// ARCHITECTURE.*: dimensions, norms, rotary scaling, windows, experts. What other readers are known
// to leave out of account goes to `notes`. The model can be said (plan_gguf).
void add_model_keys(std::string_view architecture, const ModelConfig& config, GgufPairs& out,
                    std::vector<std::string>& notes);

// tokenizer.*: the arrays, the special tokens and the chat templates; of a model without a
// tokenizer the special tokens of its configuration. `tokenizer` may be null.
Status add_tokenizer_keys(text::GgufTokenizer* tokenizer, const ModelText& text,
                          const ModelConfig& config, GgufPairs& out,
                          std::vector<std::string>& notes);

// general.sampling.*
void add_sampling_keys(const GenerationDefaults& defaults, GgufPairs& out);

}  // namespace trine
