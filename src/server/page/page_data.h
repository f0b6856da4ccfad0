// The page's files inside the program; page_data.cpp is made by embed.cmake. Thread rule:
// constants.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace trine::server::page {

struct EmbeddedFile {
  std::string_view name;  // "style.css"
  std::string_view etag;  // of the bytes, with its quotes
  const unsigned char* bytes;
  std::size_t size;
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace trine::server::page
