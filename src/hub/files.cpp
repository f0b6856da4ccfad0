#include "hub/files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/printable.h"

namespace trine::hub {
namespace {

constexpr std::size_t kReadChunk = std::size_t{1} << 20;
// Kept free beyond what a download needs, so that logs and manifests still find room.
constexpr std::size_t kMaxComponent = 255;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr int kMaxComponents = 8;

// Closes a descriptor on every path out of a function.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}

  ~Fd() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }

  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool is_valid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int extra = lead < 0x80         ? 0
                      : (lead >> 5) == 6  ? 1
                      : (lead >> 4) == 14 ? 2
                      : (lead >> 3) == 30 ? 3
                                          : -1;
    if (extra < 0 || i + static_cast<std::size_t>(extra) >= text.size()) {
      return false;
    }
    std::uint32_t code = extra == 0 ? lead : lead & (0x3Fu >> extra);
    for (int k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if ((next & 0xC0) != 0x80) {
        return false;
      }
      code = (code << 6) | (next & 0x3Fu);
    }
    constexpr std::array<std::uint32_t, 4> kLeast{0, 0x80, 0x800, 0x10000};
    if (code < kLeast[static_cast<std::size_t>(extra)] || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000)) {
      return false;
    }
    i += static_cast<std::size_t>(extra) + 1;
  }
  return true;
}

// For messages: what a hostile name holds must not reach the terminal as control sequences.
std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 120)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

struct Digest::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  const EVP_MD* algorithm;

  explicit Impl(const EVP_MD* which) : algorithm(which) {
    TRINE_CHECK(context != nullptr && EVP_DigestInit_ex(context, algorithm, nullptr) == 1);
  }

  ~Impl() { EVP_MD_CTX_free(context); }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

Digest::Digest(Algorithm algorithm)
    : impl_(std::make_unique<Impl>(algorithm == Algorithm::kSha256 ? EVP_sha256() : EVP_sha1())) {}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(std::string_view bytes) {
  TRINE_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
}

void Digest::reset() {
  TRINE_CHECK(EVP_DigestInit_ex(impl_->context, impl_->algorithm, nullptr) == 1);
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  TRINE_CHECK(EVP_DigestFinal_ex(impl_->context, digest.data(), &size) == 1);
  reset();
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += fmt::format("{:02x}", digest[i]);
  }
  return hex;
}

namespace {

bool is_hex(std::string_view text, std::size_t size) {
  return text.size() == size &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

}  // namespace

bool is_sha256_hex(std::string_view text) {
  return is_hex(text, 64);
}

bool is_sha1_hex(std::string_view text) {
  return is_hex(text, 40);
}

std::string to_lower_ascii(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

Status hash_file_prefix(const std::filesystem::path& path, std::uint64_t bytes, Digest& hash,
                        CancelFlag cancel) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    return fail(ErrorCode::kUnavailable, "{}: cannot read: {}", path.string(),
                std::strerror(errno));
  }
  std::vector<char> buffer(kReadChunk);
  while (bytes > 0) {
    if (is_cancelled(cancel)) {
      return fail(ErrorCode::kCancelled, "interrupted");
    }
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, buffer.size()));
    const ssize_t got = ::read(fd.get(), buffer.data(), want);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return fail(ErrorCode::kUnavailable, "{}: cannot read the last {} bytes: {}", path.string(),
                  bytes, got == 0 ? "the file ends before" : std::strerror(errno));
    }
    hash.update({buffer.data(), static_cast<std::size_t>(got)});
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<std::string> sha256_file(const std::filesystem::path& path, CancelFlag cancel) {
  TRINE_TRY_ASSIGN(const std::uint64_t size, size_of_file(path));
  Sha256 hash;
  TRINE_TRY(hash_file_prefix(path, size, hash, cancel));
  return hash.finish();
}

Result<std::string> git_blob_id(const std::filesystem::path& path, CancelFlag cancel) {
  TRINE_TRY_ASSIGN(const std::uint64_t size, size_of_file(path));
  Digest hash(Digest::Algorithm::kSha1);
  hash.update(fmt::format("blob {}", size));
  hash.update(std::string_view("\0", 1));
  TRINE_TRY(hash_file_prefix(path, size, hash, cancel));
  return hash.finish();
}

Result<std::string> read_small_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return fail(missing ? ErrorCode::kNotFound : ErrorCode::kUnavailable, "{}: cannot read: {}",
                path.string(), std::strerror(errno));
  }
  std::string text;
  std::vector<char> buffer(std::size_t{64} * 1024);
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return fail(ErrorCode::kUnavailable, "{}: cannot read: {}", path.string(),
                  std::strerror(errno));
    }
    if (got == 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      return fail(ErrorCode::kExhausted, "{}: larger than {} bytes", path.string(), max_bytes);
    }
  }
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  const std::string temporary = path.string() + fmt::format(".tmp{}", ::getpid());
  const auto failed = [&temporary, &path](int error) {
    ::unlink(temporary.c_str());
    return fail(ErrorCode::kUnavailable, "{}: cannot write: {}", path.string(),
                std::strerror(error));
  };
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    return failed(errno);
  }
  while (!text.empty()) {
    const ssize_t put = ::write(fd.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return failed(errno);
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  if (::fsync(fd.get()) != 0 || ::close(fd.release()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return failed(errno);
  }
  return {};
}

Status make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot create the directory: {}", path.string(),
                error.message());
  }
  return {};
}

Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot rename to {}: {}", from.string(), to.string(),
                error.message());
  }
  return {};
}

Status remove_tree(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    return fail(ErrorCode::kUnavailable, "{}: cannot remove: {}", path.string(), error.message());
  }
  return {};
}

Result<std::uint64_t> size_of_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return fail(error == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound
                                                              : ErrorCode::kUnavailable,
                "{}: {}", path.string(), error.message());
  }
  return std::uint64_t{size};
}

Status check_fits(const std::filesystem::path& directory, std::uint64_t needed,
                  std::uint64_t free) {
  if (needed > free || free - needed < kDiskReserve) {
    return fail(ErrorCode::kExhausted,
                "{}: {} needed (and {} kept free), {} free on this disk: make room (`trine rm`), "
                "or set TRINE_HOME to a larger disk",
                directory.string(), format_bytes(needed), format_bytes(kDiskReserve),
                format_bytes(free));
  }
  return {};
}

Status check_disk_space(const std::filesystem::path& directory, std::uint64_t needed) {
  struct statvfs info {};

  if (::statvfs(directory.c_str(), &info) != 0) {
    return fail(ErrorCode::kUnavailable, "{}: cannot ask for free space: {}", directory.string(),
                std::strerror(errno));
  }
  return check_fits(directory, needed, std::uint64_t{info.f_bavail} * std::uint64_t{info.f_frsize});
}

Status check_file_name(std::string_view name) {
  const auto refuse = [name](std::string_view why) {
    return fail(ErrorCode::kCorruptData, "unsafe file name \"{}\": {}", printable(name), why);
  };
  if (name.empty()) {
    return refuse("empty");
  }
  if (name.size() > kMaxNameBytes) {
    return refuse("longer than 1024 bytes");
  }
  if (name.front() == '/') {
    return refuse("absolute path");
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return refuse("control character");
    }
  }
  if (name.find('\\') != std::string_view::npos) {
    return refuse("backslash");
  }
  if (!is_valid_utf8(name)) {
    return refuse("not UTF-8");
  }
  int components = 0;
  std::string_view rest = name;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return refuse("leaves or repeats a directory");
    }
    if (part.size() > kMaxComponent) {
      return refuse("a component longer than 255 bytes");
    }
    if (++components > kMaxComponents) {
      return refuse("more than 8 directories deep");
    }
    if (slash == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(slash + 1);
  }
  if (name == "manifest.json" || name.ends_with(".part") || name.ends_with(".part.json")) {
    return refuse("the store uses this name itself");
  }
  return {};
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace trine::hub
