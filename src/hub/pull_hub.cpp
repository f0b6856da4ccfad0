#include <algorithm>
#include <utility>
#include <vector>

#include "hub/hub_api.h"
#include "hub/pull.h"
#include "hub/reference.h"

namespace trine::hub {
namespace {

constexpr std::uint64_t kMaxApiBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;

// One pull of one repository.
class HubPull {
 public:
  HubPull(const Store& store, HubReference reference, std::string name, HttpOptions http)
      : store_(store),
        reference_(std::move(reference)),
        name_(std::move(name)),
        http_(std::move(http)) {}

  Result<PullOutcome> run() {
    TRINE_TRY_ASSIGN(const HubRepo repo, ask_hub());
    TRINE_TRY_ASSIGN(HubSelection selection, select_files(repo, reference_.file));
    revision_ = repo.commit.empty() ? reference_.revision : repo.commit;
    TRINE_TRY(make_directories(store_.incoming_dir(name_)));
    if (!selection.index.empty()) {
      TRINE_TRY(fetch_index(repo, selection));
    }
    TRINE_TRY_ASSIGN(std::vector<Download> downloads, plan(selection));
    TRINE_TRY(fetch(downloads));
    Manifest manifest;
    manifest.name = name_;
    manifest.source = reference_.canonical();
    manifest.revision = repo.commit;
    manifest.format = selection.format;
    manifest.entry = selection.entry;
    manifest.license = {repo.license, http_.base.text + "/" + reference_.repo, {}};
    for (const Download& file : downloads) {
      manifest.files.push_back({file.name, file.size.value_or(0), file.sha256});
    }
    return finish_pull(store_, std::move(manifest));
  }

 private:
  std::string api_url() const { return http_.base.text + "/api/models/" + reference_.repo; }

  Result<HubRepo> ask_hub() {
    TRINE_TRY_ASSIGN(const HttpAnswer answer,
                     http_get(http_, api_url() + "/revision/" + encode_revision() + "?blobs=true",
                              kMaxApiBytes));
    if (answer.status == 200) {
      Result<HubRepo> repo = parse_hub_repo(answer.body);
      if (!repo.has_value()) {
        return tl::unexpected(std::move(repo).error().with_context(http_.base.origin()));
      }
      return repo;
    }
    if (answer.status == 401 || answer.status == 403) {
      return fail(
          ErrorCode::kUnavailable, "{} refuses {} (HTTP {}): {}", http_.base.origin(),
          reference_.repo, answer.status,
          http_.token.empty()
              ? fmt::format(
                    "private, gated, or no such repository: set TRINE_HUB_TOKEN or HF_TOKEN (or "
                    "--token-file), and accept its terms at {}/{} if it is gated",
                    http_.base.text, reference_.repo)
              : fmt::format("the token given has no access: accept the terms at {}/{} if it is "
                            "gated, or check "
                            "the name",
                            http_.base.text, reference_.repo));
    }
    if (answer.status != 404) {
      return fail(ErrorCode::kUnavailable, "{}: HTTP {} for {}", http_.base.origin(), answer.status,
                  reference_.repo);
    }
    return explain_missing(answer.error_code);
  }

  // 404 for repository and revision together: say which of them is missing.
  Result<HubRepo> explain_missing(std::string_view error_code) {
    bool repo_exists = error_code == "RevisionNotFound";
    if (!repo_exists && error_code != "RepoNotFound") {
      TRINE_TRY_ASSIGN(const HttpAnswer repo, http_get(http_, api_url(), kMaxApiBytes));
      repo_exists = repo.status == 200;
    }
    if (repo_exists) {
      return fail(ErrorCode::kNotFound,
                  "{}: repository {} has no revision \"{}\": name a branch, tag or commit after @",
                  http_.base.origin(), reference_.repo, reference_.revision);
    }
    return fail(ErrorCode::kNotFound,
                "{}: no repository {}: check the name (a private one needs a token)",
                http_.base.origin(), reference_.repo);
  }

  // A slash in a branch name (refs/pr/1) must not look like a path.
  std::string encode_revision() const {
    std::string out = encode_path(reference_.revision);
    for (std::size_t at = out.find('/'); at != std::string::npos; at = out.find('/', at)) {
      out.replace(at, 1, "%2F");
    }
    return out;
  }

  Download download_of(const HubFile& file) const {
    Download out;
    out.name = file.name;
    out.path = store_.incoming_dir(name_) / file.name;
    out.size = file.size;
    out.sha256 = file.sha256;
    return out;
  }

  Status fetch_index(const HubRepo& repo, HubSelection& selection) {
    const auto index =
        std::find_if(selection.files.begin(), selection.files.end(),
                     [&selection](const HubFile& file) { return file.name == selection.index; });
    std::vector<Download> downloads{download_of(*index)};
    const std::uint64_t bytes = index->size.value_or(0);
    if (bytes > kMaxIndexBytes) {
      return fail(ErrorCode::kCorruptData, "{}: {} bytes, an index has at most {}", index->name,
                  bytes, kMaxIndexBytes);
    }
    TRINE_TRY(check_disk_space(store_.incoming_dir(name_), bytes));
    const std::unique_ptr<ProgressSink> quiet = make_progress(ProgressStyle::kQuiet, nullptr);
    ProgressSink* const shown = std::exchange(http_.progress, quiet.get());
    const Status fetched = fetch(downloads);
    http_.progress = shown;
    TRINE_TRY(fetched);
    // With the hash known now, the second look at this file recognises it and fetches nothing.
    index->size = downloads.front().size;
    index->sha256 = downloads.front().sha256;
    TRINE_TRY_ASSIGN(const std::string text,
                     read_small_file(downloads.front().path, kMaxIndexBytes));
    TRINE_TRY_ASSIGN(const std::vector<std::string> shards, shards_of_index(text));
    return add_shards(repo, shards, selection);
  }

  // Directories, disk space, and the announcement of what comes.
  Result<std::vector<Download>> plan(const HubSelection& selection) {
    std::vector<Download> downloads;
    std::uint64_t total = 0;
    std::uint64_t have = 0;
    for (const HubFile& file : selection.files) {
      downloads.push_back(download_of(file));
      const Download& download = downloads.back();
      TRINE_TRY(make_directories(download.path.parent_path()));
      const std::optional<std::uint64_t> sum = checked_sum(total, file.size.value_or(0));
      if (!sum.has_value()) {
        return fail(ErrorCode::kCorruptData, "hub answer: the sizes of the files overflow");
      }
      total = *sum;
      const std::string part = download.path.string() + ".part";
      have += std::min(file.size.value_or(0),
                       size_of_file(part).value_or(0) + size_of_file(download.path).value_or(0));
    }
    TRINE_TRY(check_disk_space(store_.incoming_dir(name_), total - std::min(total, have)));
    http_.progress->plan(name_, downloads.size(), total);
    return downloads;
  }

  static std::optional<std::uint64_t> checked_sum(std::uint64_t a, std::uint64_t b) {
    std::uint64_t out = 0;
    return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional<std::uint64_t>(out);
  }

  Status fetch(std::vector<Download>& downloads) {
    const auto set_urls = [this, &downloads] {
      for (Download& file : downloads) {
        std::string revision = encode_path(revision_);
        for (std::size_t at = revision.find('/'); at != std::string::npos;
             at = revision.find('/', at)) {
          revision.replace(at, 1, "%2F");
        }
        file.url = fmt::format("{}/{}/resolve/{}/{}", http_.base.text, reference_.repo, revision,
                               encode_path(file.name));
      }
    };
    set_urls();
    long status = 0;
    Status done = download_files(http_, downloads, 0, &status);
    if (!done.has_value() && status == 404 && revision_ != reference_.revision) {
      // Simple mirrors serve files under the branch's name only. Sizes and hashes of the listing
      // still hold.
      revision_ = reference_.revision;
      set_urls();
      done = download_files(http_, downloads, 0, &status);
    }
    if (!done.has_value() && status == 404) {
      return tl::unexpected(std::move(done).error().with_context(
          fmt::format("{} revision {}", reference_.repo, reference_.revision)));
    }
    return done;
  }

  const Store& store_;
  const HubReference reference_;
  const std::string name_;
  HttpOptions http_;
  std::string revision_;
};

}  // namespace

Result<PullOutcome> pull_from_hub(const Store& store, std::string_view reference,
                                  const PullOptions& options) {
  TRINE_TRY_ASSIGN(HubReference parsed, parse_hub_reference(reference));
  const std::string name = options.name.empty() ? parsed.default_name() : options.name;
  const std::string source = parsed.canonical();
  TRINE_TRY_ASSIGN(std::optional<PullOutcome> present, find_present(store, name, source, options));
  if (present.has_value()) {
    return std::move(*present);
  }
  TRINE_TRY_ASSIGN(HttpOptions http, http_options(options));
  TRINE_TRY_ASSIGN(const StoreLock held, lock_for_pull(store, name, options));
  // Another process may have finished the same pull while we waited.
  TRINE_TRY_ASSIGN(present, find_present(store, name, source, options));
  if (present.has_value()) {
    return std::move(*present);
  }
  Result<PullOutcome> out = HubPull(store, std::move(parsed), name, std::move(http)).run();
  options.progress->finish();
  if (!out.has_value()) {
    drop_empty_incoming(store, name);
  }
  return out;
}

}  // namespace trine::hub
