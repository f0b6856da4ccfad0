// Normalizers: what happens to the text before it is split (tokenizer.json "normalizer", and GGUF's
// counterparts).
//
// Thread rule: immutable, any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace trine::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `text` (valid UTF-8 before and after). Errors: exhausted when the result passes a
  // limit.
  virtual Status apply(std::string& text) const = 0;
};

using NormalizerPtr = std::shared_ptr<const Normalizer>;

// Errors: unsupported for a type that this build does not know, corrupt_data for a field of the
// wrong shape.
Result<NormalizerPtr> normalizer_from_json(const nlohmann::ordered_json& json);

NormalizerPtr make_prepend(std::string prefix);
NormalizerPtr make_replace_literal(std::string from, std::string to);
NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps);

// SentencePiece's character map: the longest prefix in the map is replaced, then white space is
// collapsed, escaped and prefixed as the flags say.
struct SpmNormalizerOptions {
  bool add_space_prefix = true;
  bool remove_extra_whitespaces = false;
};

// Errors: corrupt_data for a damaged map. An empty map changes no characters.
Result<NormalizerPtr> make_spm_normalizer(std::string_view charsmap,
                                          const SpmNormalizerOptions& options);

}  // namespace trine::text
