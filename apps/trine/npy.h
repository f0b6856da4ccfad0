// The header of a NumPy .npy file, version 1.0: a little-endian C-order array of float32.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <string>

namespace trine::app {

// Magic, length and dictionary, padded so that the data begins at a multiple of 64 bytes.
std::string npy_header(std::int64_t rows, std::int64_t cols);

}  // namespace trine::app
