#include "apps/trine/npy.h"

#include <fmt/format.h>

namespace trine::app {

std::string npy_header(std::int64_t rows, std::int64_t cols) {
  constexpr std::size_t kPrefix = 10;  // magic, version, two bytes of length
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  const std::size_t unpadded = kPrefix + dict.size() + 1;
  dict.append((64 - unpadded % 64) % 64, ' ');
  dict += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 0xFF);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

}  // namespace trine::app
