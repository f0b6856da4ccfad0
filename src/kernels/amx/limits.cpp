// The limits family: reads as avx512/, int8 products on the matrix unit.
#define TRINE_VNNI
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/amx/tile_config.h"
#include "kernels/limits_inl.h"

namespace trine::kernels {
namespace {

// Four result tiles hide the latency of the tile product.
std::int64_t dots_in_tiles(std::int64_t rounds, std::int32_t* sink) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  alignas(64) std::uint8_t ones[16 * 64];
  __builtin_memset(ones, 1, sizeof ones);
  load_tile_config(config);
  settle_memory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  alignas(64) std::int32_t out[16 * 16];
  _tile_stored(0, out, 64);
  _tile_release();
  *sink = out[0];
  return rounds * 4 * 16 * 16 * 64 * 2;
}

}  // namespace

extern const LimitsTable kLimitsAmx = {&read_memory, &dots_in_tiles};

}  // namespace trine::kernels
