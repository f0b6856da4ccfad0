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
#include <unistd.h>

namespace trine {
namespace {

tl::unexpected<Error> system_error(std::string_view what, std::string_view path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return fail(full ? ErrorCode::kExhausted : ErrorCode::kInvalidArgument, "cannot {} {}: {}", what,
              path, std::strerror(error));
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
  std::string temp = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
  const int fd = ::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return system_error("create", temp, errno);
  }
  return OutputFile(std::move(path), std::move(temp), fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temp_path_(std::move(other.temp_path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_written_(other.bytes_written_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temp_path_.c_str());
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
  if (::fsync(fd_) != 0) {
    return system_error("sync", temp_path_, errno);
  }
  if (std::rename(temp_path_.c_str(), path_.c_str()) != 0) {
    return system_error("rename to", path_, errno);
  }
  ::close(std::exchange(fd_, -1));
  sync_directory_of(path_);
  return {};
}

}  // namespace trine
