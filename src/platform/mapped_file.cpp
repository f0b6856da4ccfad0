#include "platform/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trine {
namespace {

// Closes on every way out of open().
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}

  ~FileDescriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }

 private:
  const int fd_;
};

ErrorCode code_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kExhausted;
    default:
      return ErrorCode::kInvalidArgument;
  }
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    const int error = errno;
    return fail(code_of_errno(error), "cannot open {}: {}", path, std::strerror(error));
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    const int error = errno;
    return fail(code_of_errno(error), "cannot read the size of {}: {}", path, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, "{} is not a regular file", path);
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (mapping == MAP_FAILED) {
      const int error = errno;
      return fail(code_of_errno(error), "cannot map {} ({} bytes): {}", path, size,
                  std::strerror(error));
    }
    data = static_cast<const std::byte*>(mapping);
  }
  // make_shared cannot reach the private constructor.
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

void MappedFile::release_pages() const {
  if (size_ > 0) {
    // Never loses anything: the mapping is shared and read-only. Failure costs memory only.
    static_cast<void>(::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace trine
