// A file that appears under its name complete or not at all.
//
// Bytes go to a temporary file beside the target; commit() syncs it to disk and renames it over the
// target, so a reader (or a mapping of the old file) never sees a half-written one. Destruction
// without commit removes the temporary file. A symbolic link stays one: the file it leads to is
// replaced. What exists and is no regular file (a device, a named pipe) is written to directly,
// without that promise. Errors: exhausted when the disk is full, unavailable when a pipe's reader
// went away or standard output is closed, invalid_argument when the path cannot be written. Thread
// rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace trine {

class OutputFile {
 public:
  static Result<OutputFile> create(std::string path);
  // The process's standard output, written to directly.
  static Result<OutputFile> standard_output();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }

  std::uint64_t bytes_written() const { return bytes_written_; }

  Status write(std::span<const std::byte> bytes);
  // `count` zero bytes.
  Status write_zeros(std::uint64_t count);
  Status commit();

 private:
  OutputFile(std::string path, std::string target, std::string temp_path, int fd)
      : path_(std::move(path)),
        target_(std::move(target)),
        temp_path_(std::move(temp_path)),
        fd_(fd) {}

  std::string path_;       // as given
  std::string target_;     // behind symbolic links
  std::string temp_path_;  // empty: written to directly
  int fd_ = -1;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace trine
