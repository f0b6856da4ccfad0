// Opening a path of any supported kind, told apart by content, not by file name.
// Thread rule: pure functions on the file system.
#pragma once

#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "format/checkpoint.h"
#include "format/gguf.h"

namespace trine {

enum class CheckpointKind {
  kGguf,         // one .gguf file
  kSafetensors,  // one .safetensors file, or a directory with weights and config.json beside them
};

// What `path` is, without reading more than its first bytes. Errors: not_found; unsupported for
// pickle files
// (.bin, .pt, .pth), naming the conversion to safetensors; corrupt_data for anything else.
Result<CheckpointKind> detect_checkpoint(const std::string& path);

struct OpenedCheckpoint {
  CheckpointKind kind = CheckpointKind::kSafetensors;
  std::optional<GgufFile> gguf;           // set for kGguf
  std::optional<Checkpoint> safetensors;  // set for kSafetensors

  const Checkpoint& weights() const {
    if (gguf.has_value()) {
      return gguf->checkpoint;
    }
    TRINE_CHECK(safetensors.has_value());
    return *safetensors;
  }
};

// detect_checkpoint, then open_gguf or open_safetensors.
Result<OpenedCheckpoint> open_checkpoint(const std::string& path);

}  // namespace trine
