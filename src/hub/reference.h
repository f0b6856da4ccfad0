// What a user may write where a model is wanted, and the names models get in the store.
//
//   smollm2-135m                       a name: a model in the store, or one of the built-in
//   catalogue hf:ORG/REPO[@REVISION][:FILE]      a repository of a hub-layout server
//   ./model.gguf, ~/m, dir/            a local path: anything with a slash, a leading '.' or '~',
//   or ending in .gguf
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::hub {

struct HubReference {
  std::string repo;               // "ORG/REPO"
  std::string revision = "main";  // branch, tag or commit
  std::string file;               // empty: choose by the rules of select_files()

  // The shortest text that parses back to the same reference; what a manifest records as source.
  std::string canonical() const;
  // "ORG--REPO[@REVISION][--FILESTEM]" with every other character replaced by '-'.
  std::string default_name() const;
};

enum class ReferenceKind : std::uint8_t { kName, kHub, kPath };

// By spelling alone; looks at no disk.
ReferenceKind reference_kind(std::string_view text);

// Errors: invalid_argument with the part that is wrong and the grammar.
Result<HubReference> parse_hub_reference(std::string_view text);

// A model's name in the store: letters, digits, '.', '_', '-', '@', starting with a letter or
// digit, at most 200 bytes; not ending in .gguf, because that spells a path.
Status check_model_name(std::string_view name);

// A valid model name made from any text; "model" when nothing is left.
std::string sanitize_model_name(std::string_view text);

}  // namespace trine::hub
