// Hand-written splitters for the pre-tokenizer patterns that most models use. Each gives exactly
// the pieces that its regular expression gives (a property test holds them to PCRE2), in one pass
// over the text.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trine::text {

enum class SplitPattern : std::uint8_t {
  kGpt2,    // GPT-2, and the regex inside tokenizer.json's ByteLevel
  kLlama3,  // Llama 3 and cl100k: digits in groups of up to three
  kQwen2,   // Qwen 2 and 3: digits one by one
  kO200k,   // GPT-4o: words split at a lower-to-upper border
  kTekken,  // Mistral: as o200k, digits one by one, no contractions
};

// The pattern with exactly this text, in one of the spellings found in the wild.
std::optional<SplitPattern> known_pattern(std::string_view regex);
// The regular expression that the splitter stands for.
std::string_view pattern_regex(SplitPattern pattern);

// End of the piece that starts at `pos` < text.size(). The pieces tile the text. `text` must be
// valid UTF-8.
std::size_t next_piece(SplitPattern pattern, std::string_view text, std::size_t pos);

}  // namespace trine::text
