#include "format/open.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "format/safetensors.h"

namespace trine {
namespace {

std::string read_prefix(const std::string& path, std::size_t count) {
  std::string out(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(out.data(), static_cast<std::streamsize>(count));
  out.resize(static_cast<std::size_t>(file.gcount()));
  return out;
}

// PyTorch saves a zip archive of pickles; older versions wrote a bare pickle (protocol 2 and up).
bool looks_like_pickle(std::string_view prefix) {
  return prefix.starts_with("PK\x03\x04") ||
         (prefix.size() >= 2 && prefix[0] == '\x80' && prefix[1] >= 2 && prefix[1] <= 5);
}

}  // namespace

Result<CheckpointKind> detect_checkpoint(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kNotFound, "no such model file or directory: {}", path);
  }
  if (std::filesystem::is_directory(status)) {
    return CheckpointKind::kSafetensors;
  }
  if (!std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kInvalidArgument, "{} is not a regular file or directory", path);
  }
  const std::string prefix = read_prefix(path, 9);
  if (prefix.starts_with("GGUF")) {
    return CheckpointKind::kGguf;
  }
  if (looks_like_pickle(prefix)) {
    return fail(ErrorCode::kUnsupported,
                "{} is a pickle file, which can run code when loaded; convert it to safetensors "
                "(transformers: model.save_pretrained(dir, safe_serialization=True))",
                path);
  }
  if (prefix.size() == 9 && prefix[8] == '{') {
    return CheckpointKind::kSafetensors;
  }
  for (const std::string_view old : {"ggml", "lmgg", "fmgg", "tjgg", "algg"}) {
    if (prefix.starts_with(old)) {
      return fail(ErrorCode::kUnsupported,
                  "{} is a GGML file from before GGUF; convert the model again", path);
    }
  }
  return fail(
      ErrorCode::kCorruptData,
      "{} is neither GGUF (starts with \"GGUF\") nor safetensors (header starts with \"{{\")",
      path);
}

Result<OpenedCheckpoint> open_checkpoint(const std::string& path) {
  OpenedCheckpoint out;
  TRINE_TRY_ASSIGN(out.kind, detect_checkpoint(path));
  if (out.kind == CheckpointKind::kGguf) {
    TRINE_TRY_ASSIGN(out.gguf, open_gguf(path));
  } else {
    TRINE_TRY_ASSIGN(out.safetensors, open_safetensors(path));
  }
  return out;
}

}  // namespace trine
