// File helpers of the model store: SHA-256, atomic small writes, disk space, and the rules for
// names that come from servers. Thread rule: pure functions and values; a Sha256 belongs to one
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::hub {

// Set by a signal handler or another thread; long work looks at it and ends with
// ErrorCode::kCancelled. May be null: never cancelled.
using CancelFlag = const std::atomic<bool>*;

inline bool is_cancelled(CancelFlag cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

// Incremental hash by OpenSSL's EVP.
class Digest {
 public:
  enum class Algorithm : std::uint8_t { kSha256, kSha1 };

  explicit Digest(Algorithm algorithm);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(std::string_view bytes);
  // Lower-case hex; the object starts afresh afterwards.
  std::string finish();
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// FIPS 180-4.
class Sha256 : public Digest {
 public:
  Sha256() : Digest(Algorithm::kSha256) {}
};

// True for exactly 64 lower- or upper-case hex digits.
bool is_sha256_hex(std::string_view text);
// The same for 40 digits.
bool is_sha1_hex(std::string_view text);
std::string to_lower_ascii(std::string_view text);

// Feeds the first `bytes` bytes of the file to `hash`. Errors: unavailable when it cannot be read
// or is shorter.
Status hash_file_prefix(const std::filesystem::path& path, std::uint64_t bytes, Digest& hash,
                        CancelFlag cancel);
Result<std::string> sha256_file(const std::filesystem::path& path, CancelFlag cancel);
// What git names the content by: SHA-1 of "blob SIZE", a zero byte and the content. It tells a
// wrong file from the right one, not an attacker's from ours.
Result<std::string> git_blob_id(const std::filesystem::path& path, CancelFlag cancel);

// The whole file, refused (exhausted) beyond max_bytes. not_found when it does not exist.
Result<std::string> read_small_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Writes to a temporary neighbour, syncs and renames: readers see the old or the new content, never
// a part.
Status write_file_atomic(const std::filesystem::path& path, std::string_view text);

Status make_directories(const std::filesystem::path& path);
Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
Status remove_tree(const std::filesystem::path& path);
Result<std::uint64_t> size_of_file(const std::filesystem::path& path);

// What a download leaves free on the disk, for everything else that writes there.
constexpr std::uint64_t kDiskReserve = std::uint64_t{16} << 20;

// Fails with exhausted, giving all numbers, unless `needed` bytes and kDiskReserve are free under
// `directory`. check_fits: the same where `free` bytes are.
Status check_fits(const std::filesystem::path& directory, std::uint64_t needed, std::uint64_t free);
Status check_disk_space(const std::filesystem::path& directory, std::uint64_t needed);

// A file name inside a model: a relative path whose components are plain names. Refuses empty
// names, absolute paths,
// "." and "..", empty components, backslashes, control characters including NUL, invalid UTF-8,
// components over 255 bytes, more than 8 components, and the store's own names (manifest.json,
// *.part, *.part.json).
Status check_file_name(std::string_view name);

// 98362432 -> "98.4 MB". Decimal units, as disks and networks count.
std::string format_bytes(std::uint64_t bytes);

}  // namespace trine::hub
