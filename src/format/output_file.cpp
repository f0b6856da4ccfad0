#include "format/output_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trine {
namespace {

tl::unexpected<Error> system_error(std::string_view what, std::string_view path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const ErrorCode code = full                               ? ErrorCode::kExhausted
                         : error == EPIPE || error == EBADF ? ErrorCode::kUnavailable
                                                            : ErrorCode::kInvalidArgument;
  return fail(code, "cannot {} {}: {}", what, path, std::strerror(error));
}

// Where the name leads once its last component is no symbolic link any more. The file itself need
// not exist: a link may point to a name that is free.
Result<std::string> follow_links(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel
  std::filesystem::path target = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) {
      return target.string();  // no link
    }
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return system_error("write", path, ELOOP);
}

// Makes a finished rename survive a power loss. A file system that cannot sync directories is left
// as it is.
void sync_directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(1, '.') : parent.string();
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

}  // namespace

Result<OutputFile> OutputFile::create(std::string path) {
  static std::atomic<unsigned> counter{0};
  if (path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the name of the output file is empty");
  }
  struct stat info = {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return system_error("write", path, EISDIR);
  }
  if (exists && !S_ISREG(info.st_mode)) {
    // A device or a pipe is written to; a rename would put a file in its place.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
      return system_error("open", path, errno);
    }
    return OutputFile(std::move(path), {}, {}, fd);
  }
  TRINE_TRY_ASSIGN(std::string target, follow_links(path));
  std::string temp = fmt::format("{}.tmp-{}-{}", target, ::getpid(), counter.fetch_add(1));
  const int fd = ::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return system_error("create", path, errno);
  }
  if (exists) {
    // A private file stays private. Some file systems have no modes; then there is nothing to keep.
    (void)::fchmod(fd, info.st_mode & 0777);
  }
  return OutputFile(std::move(path), std::move(target), std::move(temp), fd);
}

Result<OutputFile> OutputFile::standard_output() {
  const int fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) {
    return system_error("write", "standard output", errno);
  }
  return OutputFile("standard output", {}, {}, fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temp_path_(std::move(other.temp_path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_written_(other.bytes_written_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    if (!temp_path_.empty()) {
      ::unlink(temp_path_.c_str());
    }
  }
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return system_error("write", path_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    bytes_written_ += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status OutputFile::write_zeros(std::uint64_t count) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  while (count > 0) {
    const std::size_t chunk =
        static_cast<std::size_t>(std::min<std::uint64_t>(count, kZeros.size()));
    TRINE_TRY(write(std::span(kZeros).first(chunk)));
    count -= chunk;
  }
  return {};
}

Status OutputFile::commit() {
  if (temp_path_.empty()) {
    // What has no disk behind it cannot be synced; the bytes are with their reader.
    if (::close(std::exchange(fd_, -1)) != 0) {
      return system_error("write", path_, errno);
    }
    return {};
  }
  if (::fsync(fd_) != 0) {
    return system_error("write", path_, errno);
  }
  if (std::rename(temp_path_.c_str(), target_.c_str()) != 0) {
    return system_error("rename to", target_, errno);
  }
  ::close(std::exchange(fd_, -1));
  sync_directory_of(target_);
  return {};
}

}  // namespace trine
