// The hub's JSON answer about a repository, and the choice of files to fetch from it.
//
// Layout: GET {base}/api/models/ORG/REPO/revision/REV?blobs=true -> {"sha", "siblings":
// [{"rfilename", "size", "lfs": {"sha256", "size"}}]}. The answer is untrusted: every name passes
// check_file_name() or the answer is refused. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::hub {

struct HubFile {
  std::string name;
  std::optional<std::uint64_t> size;
  std::string
      sha256;  // lower-case hex; empty when the listing gives none (small files outside LFS)
};

struct HubRepo {
  std::string commit;   // "sha" of the answer; empty when absent
  std::string license;  // cardData.license, or the license: tag; empty when absent
  std::vector<HubFile> files;
};

inline constexpr std::size_t kMaxHubFiles = 100'000;

// Errors: corrupt_data naming field and file; exhausted beyond kMaxHubFiles.
Result<HubRepo> parse_hub_repo(std::string_view json);

// What to fetch. With `file`: that one .gguf, or that one .safetensors with configuration and
// tokenizer. Without: configuration, tokenizer, template and all weights of the repository's root
// (`needs_index`: which shards is for the index to say, see shards_of_index). Errors: not_found and
// invalid_argument that list the candidates; unsupported for split GGUF files.
struct HubSelection {
  std::string format;          // "gguf" or "safetensors"
  std::string entry;           // the .gguf, or "."
  std::vector<HubFile> files;  // small ones first
  std::string index;  // name of the safetensors index to fetch first; empty when there is none
};

Result<HubSelection> select_files(const HubRepo& repo, std::string_view file);

// The shards a safetensors index names, sorted, each once. Errors: corrupt_data for bad shape or
// unsafe names.
Result<std::vector<std::string>> shards_of_index(std::string_view json);

// Adds the shards of the index to the selection. Errors: corrupt_data for a shard that the
// repository does not hold.
Status add_shards(const HubRepo& repo, const std::vector<std::string>& shards,
                  HubSelection& selection);

// "model-00001-of-00003.gguf": a part of a split GGUF.
bool is_split_gguf(std::string_view name);

}  // namespace trine::hub
