#include "quant/packed_tile.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "support/numeric.h"
#include "support/packed_twin.h"

namespace trine {
namespace {

using kernels::CodeKind;
using kernels::PackedScheme;
using kernels::ScaleKind;
using test::PackedTwin;
using test::random_int;

// What schemes without a GGUF type need: groups of 64 to a whole row, zero points, f32 scales.
TEST(PackedTile, WritesEveryGroupSize) {
  std::uint64_t seed = 70;
  for (const std::int32_t group : {32, 64, 128, 256, 0}) {
    for (const ScaleKind kind : {ScaleKind::kF16, ScaleKind::kF32, ScaleKind::kF16Min,
                                 ScaleKind::kF16Zero, ScaleKind::kF32Zero}) {
      const PackedScheme scheme{CodeKind::kU8, kind, group};
      const std::int64_t cols = 416;  // two tiles, the second one short of a group
      ++seed;
      const PackedTwin twin(scheme, 32, cols);
      std::vector<std::uint8_t> out(static_cast<std::size_t>(twin.bytes()), 0xA5);
      std::vector<std::unique_ptr<PackTile>> tiles;
      std::uint8_t* end = out.data();
      for (std::int64_t col = 0; col < cols; col += 256) {
        tiles.push_back(std::make_unique<PackTile>());
        PackTile& tile = *tiles.back();
        std::uint64_t at = static_cast<std::uint64_t>(col) << 20;
        for (std::size_t row = 0; row < kTileRows; ++row) {
          for (std::uint8_t& code : tile.codes[row]) {
            code = static_cast<std::uint8_t>(random_int(seed, ++at, 0, 255));
          }
          for (std::size_t g = 0; g < 8; ++g) {
            const auto next = [&] { return static_cast<float>(random_int(seed, ++at, -99, 99)); };
            tile.scale_f16[row][g] = f32_to_f16(next());
            tile.min_f16[row][g] = f32_to_f16(next());
            tile.scale_f32[row][g] = next();
            tile.zero[row][g] = static_cast<std::uint8_t>(random_int(seed, ++at, 0, 255));
          }
        }
        end = write_tile(scheme, tile, col, std::min<std::int64_t>(cols - col, 256), end);
      }
      ASSERT_EQ(end, out.data() + out.size());
      for (std::size_t row = 0; row < kTileRows; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) {
          const PackTile& tile = *tiles[static_cast<std::size_t>(col / 256)];
          const std::int64_t tile_group = group == 0 ? 256 : group;
          const PackTile& scales = group == 0 ? *tiles[0] : tile;
          const auto g = group == 0 ? 0U : static_cast<std::size_t>(col % 256 / tile_group);
          const auto r = static_cast<std::int64_t>(row);
          ASSERT_EQ(twin.code(out.data(), r, col),
                    tile.codes[row][static_cast<std::size_t>(col % 256)]);
          const float f16 = f16_to_f32(scales.scale_f16[row][g]);
          const bool wide = kind == ScaleKind::kF32 || kind == ScaleKind::kF32Zero;
          const float scale = wide ? scales.scale_f32[row][g] : f16;
          ASSERT_EQ(twin.scale(out.data(), r, col), scale);
          const float min = kind == ScaleKind::kF16Min ? f16_to_f32(scales.min_f16[row][g])
                            : kind == ScaleKind::kF16Zero || kind == ScaleKind::kF32Zero
                                ? -(scale * static_cast<float>(scales.zero[row][g]))
                                : 0.0f;
          ASSERT_EQ(twin.min(out.data(), r, col), min);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trine
