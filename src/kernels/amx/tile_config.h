// The configuration of the AMX unit, and what its intrinsics do not tell the compiler.
#pragma once

#include <cstdint>

namespace trine::kernels {
namespace {

// The 64 bytes that ldtilecfg reads, palette 1: up to 16 rows of up to 64 bytes in each tile.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// g++ 12's _tile_loadconfig declares that it reads the first 8 bytes; the stores to the others may
// then be dropped as dead, and the first tile instruction is illegal.
inline void load_tile_config(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config));
}

// g++ 12's _tile_loadd declares no memory that it reads: stores before this are done before the
// tile loads after it.
inline void settle_memory() {
  asm volatile("" : : : "memory");
}

}  // namespace
}  // namespace trine::kernels
