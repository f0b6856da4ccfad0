// A file mapped read-only into memory, kept alive by shared_ptr.
//
// Weights are used in place, so views into a mapping live as long as somebody holds the MappedFile.
// A file that another process truncates while it is mapped makes later reads fail with SIGBUS;
// files are therefore replaced by rename, never rewritten in place (format/output_file.h). Errors:
// not_found when there is no such file; invalid_argument for a directory or device; exhausted when
// the mapping does not fit the address space. Thread rule: immutable after open; any number of
// readers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace trine {

class MappedFile {
 public:
  // An empty file gives an empty span.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // The resident pages of the mapping are given back; reading them again fetches them again.
  void release_pages() const;

  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  const std::string path_;
  const std::byte* const data_;
  const std::size_t size_;
};

}  // namespace trine
