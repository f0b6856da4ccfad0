#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "hub/hub_api.h"
#include "hub/pull.h"
#include "hub/reference.h"

namespace trine::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;

// The files of a model directory, chosen by the rules for a repository.
Result<HubSelection> select_in_directory(const fs::path& directory) {
  HubRepo repo;
  std::error_code error;
  std::vector<std::string> gguf;
  for (fs::directory_iterator it(directory, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (!it->is_regular_file(ignored) || !check_file_name(name).has_value()) {
      continue;  // follows links: a hub cache holds links to its blobs
    }
    HubFile file;
    file.name = name;
    file.size = size_of_file(it->path()).value_or(0);
    repo.files.push_back(std::move(file));
    if (name.ends_with(".gguf")) {
      gguf.push_back(name);
    }
  }
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot list: {}", directory.string(),
                error.message());
  }
  const bool any_safetensors =
      std::any_of(repo.files.begin(), repo.files.end(),
                  [](const HubFile& f) { return f.name.ends_with(".safetensors"); });
  if (!any_safetensors && !gguf.empty()) {
    if (gguf.size() > 1) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}: holds {} .gguf files: give the path of one of them", directory.string(),
                  gguf.size());
    }
    return select_files(repo, gguf.front());
  }
  TRINE_TRY_ASSIGN(HubSelection selection, select_files(repo, ""));
  if (!selection.index.empty()) {
    TRINE_TRY_ASSIGN(const std::string text,
                     read_small_file(directory / selection.index, kMaxIndexBytes));
    TRINE_TRY_ASSIGN(const std::vector<std::string> shards, shards_of_index(text));
    TRINE_TRY(add_shards(repo, shards, selection));
  }
  return selection;
}

Status copy_file(const fs::path& from, const fs::path& to, const PullOptions& options,
                 std::uint64_t& done) {
  const int in = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) {
    return fail(ErrorCode::kUnavailable, "{}: cannot read: {}", from.string(),
                std::strerror(errno));
  }
  const int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (out < 0) {
    const int error = errno;
    ::close(in);
    return fail(ErrorCode::kUnavailable, "{}: cannot create: {}", to.string(),
                std::strerror(error));
  }
  Status status;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (status.has_value()) {
    if (is_cancelled(options.cancel)) {
      status = fail(ErrorCode::kCancelled, "interrupted");
      break;
    }
    const ssize_t got = ::read(in, buffer.data(), buffer.size());
    if (got == 0) {
      break;
    }
    for (ssize_t at = 0; at < got;) {
      const ssize_t put = ::write(out, buffer.data() + at, static_cast<std::size_t>(got - at));
      if (put <= 0) {
        status = fail(errno == ENOSPC ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
                      "{}: cannot write: {}", to.string(), std::strerror(errno));
        break;
      }
      at += put;
    }
    if (got < 0) {
      status =
          fail(ErrorCode::kUnavailable, "{}: cannot read: {}", from.string(), std::strerror(errno));
    } else {
      done += static_cast<std::uint64_t>(got);
      options.progress->update(done);
    }
  }
  if (status.has_value() && ::fsync(out) != 0) {
    status =
        fail(ErrorCode::kUnavailable, "{}: cannot write: {}", to.string(), std::strerror(errno));
  }
  ::close(in);
  ::close(out);
  return status;
}

// A hard link costs no space; other file systems get a copy.
Status link_or_copy(const fs::path& from, const fs::path& to, const PullOptions& options,
                    std::uint64_t& done) {
  TRINE_TRY(make_directories(to.parent_path()));
  TRINE_TRY(remove_tree(to));
  TRINE_TRY_ASSIGN(const std::uint64_t size, size_of_file(from));
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    done += size;
    options.progress->update(done);
    return {};
  }
  TRINE_TRY(check_disk_space(to.parent_path(), size));
  return copy_file(from, to, options, done);
}

struct LocalModel {
  fs::path root;  // of the files
  HubSelection selection;
  std::string source;
  std::string default_name;
};

Result<LocalModel> look_at(std::string_view text) {
  std::error_code error;
  const fs::path path = fs::canonical(expand_home(text), error);
  if (error) {
    return fail(ErrorCode::kNotFound, "{}: {}", text, error.message());
  }
  LocalModel out;
  out.source = "file:" + path.string();
  if (fs::is_directory(path, error)) {
    out.root = path;
    out.default_name = sanitize_model_name(path.filename().string());
    TRINE_TRY_ASSIGN(out.selection, select_in_directory(path));
    return out;
  }
  // A link in a hub cache is named, its target is not.
  const fs::path named = fs::path(text).filename();
  if (named.extension() != ".gguf") {
    return fail(ErrorCode::kUnsupported,
                "{}: neither a .gguf file nor a directory with config.json and .safetensors files",
                text);
  }
  if (is_split_gguf(named.string())) {
    return fail(
        ErrorCode::kUnsupported,
        "{}: one part of a split GGUF: join the parts with `llama-gguf-split --merge` first", text);
  }
  HubFile file;
  file.name = path.filename().string();
  file.size = size_of_file(path).value_or(0);
  out.root = path.parent_path();
  out.default_name = sanitize_model_name(named.stem().string());
  out.selection.format = "gguf";
  out.selection.entry = named.string();
  out.selection.files.push_back(std::move(file));
  TRINE_TRY(check_file_name(out.selection.entry));
  return out;
}

Result<Manifest> import_files(const Store& store, const LocalModel& model, const std::string& name,
                              const PullOptions& options) {
  Manifest manifest;
  manifest.name = name;
  manifest.source = model.source;
  manifest.format = model.selection.format;
  manifest.entry = model.selection.entry;
  const fs::path incoming = store.incoming_dir(name);
  TRINE_TRY(make_directories(incoming));
  std::uint64_t total = 0;
  for (const HubFile& file : model.selection.files) {
    total += file.size.value_or(0);
  }
  options.progress->plan(name, model.selection.files.size(), total);
  std::uint64_t done = 0;
  for (const HubFile& file : model.selection.files) {
    const std::string target = model.selection.entry == "." ? file.name : model.selection.entry;
    TRINE_TRY(link_or_copy(model.root / file.name, incoming / target, options, done));
    TRINE_TRY_ASSIGN(std::string sha256, sha256_file(incoming / target, options.cancel));
    TRINE_TRY_ASSIGN(const std::uint64_t size, size_of_file(incoming / target));
    options.progress->file_done(target, size, sha256);
    manifest.files.push_back({target, size, std::move(sha256)});
  }
  return manifest;
}

}  // namespace

Result<PullOutcome> pull_from_path(const Store& store, std::string_view path,
                                   const PullOptions& options) {
  TRINE_TRY_ASSIGN(const LocalModel model, look_at(path));
  const std::string name = options.name.empty() ? model.default_name : options.name;
  // The path may hold another file than last time, so a model that is there is compared, not
  // trusted.
  if (!options.force) {
    TRINE_TRY_ASSIGN(const std::optional<PullOutcome> taken,
                     find_present(store, name, model.source, options));
    static_cast<void>(taken);
  }
  if (options.check_opens) {
    TRINE_TRY(options.check_opens(
        model.selection.entry == "." ? model.root.string()
                                     : (model.root / model.selection.files.front().name).string()));
  }
  TRINE_TRY_ASSIGN(const StoreLock held, lock_for_pull(store, name, options));
  Result<Manifest> manifest = import_files(store, model, name, options);
  options.progress->finish();
  if (!manifest.has_value()) {
    TRINE_TRY(remove_tree(store.incoming_dir(name)));
    return tl::unexpected(std::move(manifest).error());
  }
  TRINE_TRY_ASSIGN(std::optional<Manifest> present, store.find(name));
  if (!options.force && present.has_value() && present->source == manifest->source &&
      present->files == manifest->files && store.check_complete(*present).has_value()) {
    Manifest& kept = *present;
    TRINE_TRY(remove_tree(store.incoming_dir(name)));
    std::string entry = store.entry_path(kept).string();
    return PullOutcome{std::move(kept), std::move(entry), true};
  }
  return finish_pull(store, std::move(*manifest));
}

}  // namespace trine::hub
