#include "hub/store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/catalogue.h"
#include "hub/reference.h"

namespace trine::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{16} << 20;
constexpr std::chrono::milliseconds kLockPoll{100};

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

// Names of the sub-directories of `directory`, sorted; empty when it does not exist.
Result<std::vector<std::string>> directory_names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory) {
    return names;
  }
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->is_directory(error)) {
      names.push_back(it->path().filename().string());
    }
  }
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot list: {}", directory.string(),
                error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int lock_owner(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof(text) - 1, 0);
  int pid = 0;
  if (got > 0) {
    std::from_chars(text, text + got, pid);
  }
  return pid;
}

std::uint64_t tree_bytes(const fs::path& directory) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && !it->is_symlink(ignored)) {
      const std::uintmax_t size = it->file_size(ignored);
      total += ignored ? 0 : size;
    }
  }
  return total;
}

}  // namespace

StoreLock::StoreLock(StoreLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

StoreLock& StoreLock::operator=(StoreLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

StoreLock::~StoreLock() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

fs::path expand_home(std::string_view path) {
  if (path == "~" || path.starts_with("~/")) {
    if (const std::string_view home = environment("HOME"); !home.empty()) {
      return fs::path(home) / path.substr(std::min<std::size_t>(2, path.size()));
    }
  }
  return fs::path(path);
}

Result<Store> Store::open(std::string_view home, std::string catalogue_file) {
  if (!home.empty()) {
    std::error_code error;
    fs::path root = fs::absolute(expand_home(home), error);
    if (error) {
      return fail(ErrorCode::kInvalidArgument, "TRINE_HOME \"{}\": {}", home, error.message());
    }
    return Store(std::move(root), std::move(catalogue_file));
  }
  if (const std::string_view cache = environment("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return Store(fs::path(cache) / "trine", std::move(catalogue_file));
  }
  if (const std::string_view user = environment("HOME"); !user.empty()) {
    return Store(fs::path(user) / ".cache" / "trine", std::move(catalogue_file));
  }
  return fail(ErrorCode::kInvalidArgument,
              "no place for models: set TRINE_HOME (or XDG_CACHE_HOME or HOME)");
}

Result<Store::Listing> Store::list() const {
  Listing out;
  TRINE_TRY_ASSIGN(const std::vector<std::string> names, directory_names(root_ / "models"));
  for (const std::string& name : names) {
    if (!check_model_name(name).has_value()) {
      out.problems.push_back(fmt::format("{}: not a model name", model_dir(name).string()));
      continue;
    }
    Result<std::optional<Manifest>> found = find(name);
    if (!found.has_value()) {
      out.problems.push_back(found.error().message);
      continue;
    }
    std::optional<Manifest>& manifest = *found;
    if (manifest.has_value()) {
      out.models.push_back(std::move(*manifest));
    } else {
      out.problems.push_back(fmt::format("{}: no manifest.json", model_dir(name).string()));
    }
  }
  TRINE_TRY_ASSIGN(out.interrupted, directory_names(root_ / "incoming"));
  return out;
}

Result<std::optional<Manifest>> Store::find(std::string_view name) const {
  TRINE_TRY(check_model_name(name));
  const fs::path path = model_dir(name) / "manifest.json";
  const Result<std::string> text = read_small_file(path, kMaxManifestBytes);
  if (!text.has_value()) {
    if (text.error().code == ErrorCode::kNotFound) {
      return std::optional<Manifest>();
    }
    return tl::unexpected(text.error());
  }
  Result<Manifest> manifest = manifest_from_json(*text);
  if (!manifest.has_value()) {
    return tl::unexpected(std::move(manifest).error().with_context(path.string()));
  }
  if (manifest->name != name) {
    return fail(ErrorCode::kCorruptData, "{}: describes \"{}\": directory renamed by hand?",
                path.string(), manifest->name);
  }
  return std::optional<Manifest>(std::move(*manifest));
}

Result<std::optional<Manifest>> Store::find_source(std::string_view source) const {
  TRINE_TRY_ASSIGN(Listing listing, list());
  for (Manifest& manifest : listing.models) {
    if (manifest.source == source) {
      return std::optional<Manifest>(std::move(manifest));
    }
  }
  return std::optional<Manifest>();
}

Status Store::check_complete(const Manifest& manifest) const {
  for (const StoredFile& file : manifest.files) {
    const Result<std::uint64_t> size = size_of_file(model_dir(manifest.name) / file.name);
    const std::string found = !size.has_value() ? "missing" : fmt::format("{} bytes", *size);
    if (!size.has_value() || *size != file.size) {
      return fail(
          ErrorCode::kCorruptData,
          "model {}: file {} is {}, its manifest says {} bytes: `trine rm {}` and pull it again",
          manifest.name, file.name, found, file.size, manifest.name);
    }
  }
  return {};
}

fs::path Store::entry_path(const Manifest& manifest) const {
  return manifest.entry == "." ? model_dir(manifest.name)
                               : model_dir(manifest.name) / manifest.entry;
}

Result<StoreLock> Store::lock(std::string_view name, bool wait, CancelFlag cancel,
                              const std::function<void(int pid)>& on_wait) const {
  TRINE_TRY(check_model_name(name));
  TRINE_TRY(make_directories(root_ / "locks"));
  const fs::path path = root_ / "locks" / (std::string(name) + ".lock");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    return fail(ErrorCode::kUnavailable, "{}: cannot open: {}", path.string(),
                std::strerror(errno));
  }
  StoreLock held(fd);
  bool told = false;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return fail(ErrorCode::kUnavailable, "{}: cannot lock: {}", path.string(),
                  std::strerror(errno));
    }
    if (!wait) {
      return fail(ErrorCode::kUnavailable,
                  "model {} is being changed by another trine (process {}): try again later", name,
                  lock_owner(fd));
    }
    if (is_cancelled(cancel)) {
      return fail(ErrorCode::kCancelled,
                  "interrupted while waiting for another trine to finish with {}", name);
    }
    if (!std::exchange(told, true) && on_wait) {
      on_wait(lock_owner(fd));
    }
    std::this_thread::sleep_for(kLockPoll);
  }
  // For the message another process prints while it waits; a failure to write it does no harm.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return fail(ErrorCode::kUnavailable, "{}: cannot write: {}", path.string(),
                std::strerror(errno));
  }
  return held;
}

Status Store::commit(const Manifest& manifest) const {
  TRINE_TRY(check_model_name(manifest.name));
  const fs::path incoming = incoming_dir(manifest.name);
  const fs::path final_dir = model_dir(manifest.name);
  TRINE_TRY(write_file_atomic(incoming / "manifest.json", manifest_to_json(manifest)));
  TRINE_TRY(make_directories(final_dir.parent_path()));
  if (::renameat2(AT_FDCWD, incoming.c_str(), AT_FDCWD, final_dir.c_str(), RENAME_NOREPLACE) == 0) {
    return {};
  }
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, incoming.c_str(), AT_FDCWD, final_dir.c_str(), RENAME_EXCHANGE) == 0) {
    return remove_tree(incoming);  // the old model by now
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return fail(ErrorCode::kUnavailable, "{}: cannot move to {}: {}", incoming.string(),
                final_dir.string(), std::strerror(errno));
  }
  // A file system without these flags (some network mounts): remove, then rename. A crash in
  // between loses the old model but leaves the new one complete in incoming/, where the next pull
  // finds it.
  TRINE_TRY(remove_tree(final_dir));
  return rename_path(incoming, final_dir);
}

Result<std::uint64_t> Store::remove(std::string_view name) const {
  TRINE_TRY(check_model_name(name));
  TRINE_TRY_ASSIGN(const StoreLock held, lock(name, false, nullptr));
  std::uint64_t freed = 0;
  bool found = false;
  for (const fs::path& directory : {model_dir(name), incoming_dir(name)}) {
    struct stat info {};

    if (::lstat(directory.c_str(), &info) != 0) {
      continue;
    }
    found = true;
    if (!S_ISDIR(info.st_mode)) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} is not a directory of this store: remove it by hand", directory.string());
    }
    freed += tree_bytes(directory);
    // The manifest goes first: a removal that is cut short must not leave something that looks like
    // a model.
    std::error_code ignored;
    fs::remove(directory / "manifest.json", ignored);
    TRINE_TRY(remove_tree(directory));
  }
  if (!found) {
    return fail(ErrorCode::kNotFound, "no model \"{}\" in {}: `trine ls` lists what is there", name,
                root_.string());
  }
  return freed;
}

Result<std::string> Store::resolve(std::string_view text) const {
  const auto open_stored = [this](const Manifest& manifest) -> Result<std::string> {
    TRINE_TRY(check_complete(manifest));
    return entry_path(manifest).string();
  };
  switch (reference_kind(text)) {
    case ReferenceKind::kHub: {
      TRINE_TRY_ASSIGN(const HubReference reference, parse_hub_reference(text));
      TRINE_TRY_ASSIGN(const std::optional<Manifest> manifest, find_source(reference.canonical()));
      if (!manifest.has_value()) {
        return fail(ErrorCode::kNotFound, "{} is not in {}: run `trine pull {}`", text,
                    root_.string(), text);
      }
      return open_stored(*manifest);
    }
    case ReferenceKind::kPath: {
      std::error_code error;
      fs::path path = expand_home(text);
      if (!fs::exists(path, error)) {
        return fail(ErrorCode::kNotFound, "{}: no such file or directory", path.string());
      }
      return path.string();
    }
    case ReferenceKind::kName:
      break;
  }
  if (check_model_name(text).has_value()) {
    TRINE_TRY_ASSIGN(const std::optional<Manifest> manifest, find(text));
    if (manifest.has_value()) {
      return open_stored(*manifest);
    }
  }
  std::error_code error;
  if (fs::exists(fs::path(text), error)) {
    return std::string(text);
  }
  TRINE_TRY_ASSIGN(const Catalogue catalogue, Catalogue::load(catalogue_file_));
  if (catalogue.find(text) != nullptr) {
    return fail(ErrorCode::kNotFound, "model {} is not downloaded yet: run `trine pull {}`", text,
                text);
  }
  return fail(ErrorCode::kNotFound,
              "no model \"{}\" in {} and no such file: `trine ls` lists what is there; `trine "
              "pull` fetches {}, "
              "hf:ORG/REPO or a local path",
              text, root_.string(), catalogue.names());
}

}  // namespace trine::hub
