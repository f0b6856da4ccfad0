// Whatever a hub answers, the file list that comes out of it holds names that stay inside their
// directory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_support.h"
#include "hub/files.h"
#include "hub/hub_api.h"

namespace {

void check_names(const std::vector<trine::hub::HubFile>& files) {
  for (const trine::hub::HubFile& file : files) {
    trine::require(trine::hub::check_file_name(file.name).has_value());
    trine::require(file.sha256.empty() || trine::hub::is_sha256_hex(file.sha256));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto repo = trine::hub::parse_hub_repo(text);
  if (!repo.has_value()) {
    trine::require_printable(repo.error());
  } else {
    check_names(repo->files);
    if (auto all = trine::hub::select_files(*repo, ""); all.has_value()) {
      check_names(all->files);
    }
    for (const trine::hub::HubFile& file : repo->files) {
      if (const auto one = trine::hub::select_files(*repo, file.name); one.has_value()) {
        trine::require(one->files.back().name == file.name);
      }
    }
  }
  const auto shards = trine::hub::shards_of_index(text);
  if (!shards.has_value()) {
    trine::require_printable(shards.error());
  } else {
    for (const std::string& shard : *shards) {
      trine::require(trine::hub::check_file_name(shard).has_value());
    }
  }
  return 0;
}
