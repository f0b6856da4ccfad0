// The model store: one directory per model under $TRINE_HOME, described by a manifest that is
// written last.
//
// Layout (docs/model-store.md):
//   models/NAME/manifest.json + files     complete, verified models only
//   incoming/NAME/                        downloads in progress and what is kept of interrupted
//   ones locks/NAME.lock                       held (flock) by whoever changes models/NAME or
//   incoming/NAME tools/                                a Python environment for pip, only when
//   python3 has no pip
// A model appears and is replaced by one rename of its directory, so readers never see a
// half-written one. Thread rule: a Store is a value without shared state; processes are kept apart
// by StoreLock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hub/files.h"

namespace trine::hub {

struct StoredFile {
  std::string name;  // relative, passes check_file_name()
  std::uint64_t size = 0;
  std::string sha256;  // lower-case hex

  bool operator==(const StoredFile&) const = default;
};

struct License {
  std::string id;   // SPDX identifier or the source's own word for it; empty when unknown
  std::string url;  // where its text is
  std::vector<std::string> files;  // copies kept with the model

  bool operator==(const License&) const = default;
};

struct Manifest {
  std::string name;
  std::string source;    // hf:..., pypi:PACKAGE==VERSION, file:/path
  std::string revision;  // commit of a hub repository, else empty
  std::string format;    // "gguf" or "safetensors"
  std::string entry;     // the .gguf file, or "." for the directory
  License license;
  std::int64_t created_unix_s = 0;
  std::vector<StoredFile> files;

  std::uint64_t total_bytes() const;
  bool operator==(const Manifest&) const = default;
};

std::string manifest_to_json(const Manifest& manifest);
// Errors: corrupt_data naming the field. Every file name passes check_file_name().
Result<Manifest> manifest_from_json(std::string_view text);

// An exclusive lock on one model name, released when destroyed (and by the kernel when the process
// dies).
class StoreLock {
 public:
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;
  StoreLock(StoreLock&& other) noexcept;
  StoreLock& operator=(StoreLock&& other) noexcept;
  ~StoreLock();

 private:
  friend class Store;

  explicit StoreLock(int fd) : fd_(fd) {}

  int fd_;
};

class Store {
 public:
  // At `home` (option home, variable TRINE_HOME) when not empty, else $XDG_CACHE_HOME/trine, else
  // ~/.cache/trine. Creates nothing. `catalogue_file`: see Catalogue::load().
  static Result<Store> open(std::string_view home, std::string catalogue_file = "");

  explicit Store(std::filesystem::path root, std::string catalogue_file = "")
      : root_(std::move(root)), catalogue_file_(std::move(catalogue_file)) {}

  const std::filesystem::path& root() const { return root_; }

  const std::string& catalogue_file() const { return catalogue_file_; }

  std::filesystem::path tools_dir() const { return root_ / "tools"; }

  // `name` must pass check_model_name().
  std::filesystem::path model_dir(std::string_view name) const { return root_ / "models" / name; }

  std::filesystem::path incoming_dir(std::string_view name) const {
    return root_ / "incoming" / name;
  }

  struct Listing {
    std::vector<Manifest> models;          // by name
    std::vector<std::string> problems;     // one line for each directory that is no readable model
    std::vector<std::string> interrupted;  // names with an unfinished download
  };

  Result<Listing> list() const;

  // nullopt when there is no such model; an error when its manifest is damaged.
  Result<std::optional<Manifest>> find(std::string_view name) const;
  // The model whose source is `source`, whatever its name.
  Result<std::optional<Manifest>> find_source(std::string_view source) const;
  // Every file is there with its recorded size. Errors: corrupt_data naming the file and both
  // sizes.
  Status check_complete(const Manifest& manifest) const;
  // Path that opens the model: the .gguf file, or the directory.
  std::filesystem::path entry_path(const Manifest& manifest) const;

  // Waits while another process holds the lock, calling on_wait once with its process id (0 when
  // unknown). With wait = false: unavailable at once.
  Result<StoreLock> lock(std::string_view name, bool wait, CancelFlag cancel,
                         const std::function<void(int pid)>& on_wait = {}) const;

  // Writes the manifest into incoming/NAME and moves that directory to models/NAME, in one rename
  // (an exchange when a model of that name exists; the old one is then deleted). The caller holds
  // the lock.
  Status commit(const Manifest& manifest) const;

  // Deletes the model and what is left of an interrupted download of it. Returns the bytes freed.
  Result<std::uint64_t> remove(std::string_view name) const;

  // What every command uses to turn its MODEL argument into a path: a stored name, a hub reference
  // that was pulled, or a local path to a .gguf file or a directory. Errors: not_found saying how
  // to get it; corrupt_data when files are missing.
  Result<std::string> resolve(std::string_view text) const;

 private:
  std::filesystem::path root_;
  std::string catalogue_file_;
};

// "~" and "~/x" as shells expand them; other paths unchanged.
std::filesystem::path expand_home(std::string_view path);

}  // namespace trine::hub
