// From rows of codes and scales to the packed layout that the kernels read
// (docs/formats/packed-weights.md): the one writer of that layout.
//
// Whoever has weights in another form (GGUF blocks, a quantizer's result, random numbers of a
// benchmark) fills a PackTile, 32 rows by up to 256 columns, and write_tile() puts it in place.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/packed.h"

namespace trine {

inline constexpr std::size_t kTileRows = 32;
inline constexpr std::size_t kTileCols = 256;

// Scales of the groups in ascending order. Which fields count depends on the scheme's ScaleKind.
struct PackTile {
  std::array<std::array<std::uint8_t, kTileCols>, kTileRows> codes;
  std::array<std::array<std::uint16_t, 8>, kTileRows> scale_f16;  // bits; kF16*
  std::array<std::array<std::uint16_t, 8>, kTileRows> min_f16;    // kF16Min
  std::array<std::array<std::uint8_t, 8>, kTileRows> zero;        // kF16Zero, kF32Zero
  std::array<std::array<float, 8>, kTileRows> scale_f32;          // kF32, kF32Zero
  std::array<std::uint16_t, kTileRows> super_f16;                 // kSuper*
  std::array<std::uint16_t, kTileRows> super_min_f16;             // kSuperU8Min
  std::array<std::array<std::uint8_t, 16>, kTileRows> sub;        // kSuper*: i8 bits or u8
  std::array<std::array<std::uint8_t, 16>, kTileRows> sub_min;    // kSuperU8Min
};

// Writes the first `cols` columns (a multiple of 32) of the tile that starts at column `col` of a
// matrix with `total_cols` columns, and returns the first byte behind them. Tiles of a block follow
// each other: col is a multiple of 256. A scale of the whole row is written with the first tile.
std::uint8_t* write_tile(const kernels::PackedScheme& scheme, const PackTile& tile,
                         std::int64_t col, std::int64_t cols, std::uint8_t* out);

}  // namespace trine
