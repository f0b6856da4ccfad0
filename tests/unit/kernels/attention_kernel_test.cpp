#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "support/numeric.h"

namespace trine::kernels {
namespace {

using test::random_floats;
using test::same_bits;

constexpr std::int64_t kKeys = kAttentionTileKeys;

// The state of a block of queries and the tiles it has met.
struct Block {
  std::int64_t dim_k, dim_v, num_queries;
  float softcap = 0.0f;
  std::vector<float> q, max, sum, acc, scores;

  Block(std::int64_t dk, std::int64_t dv, std::int64_t queries, std::uint64_t seed)
      : dim_k(dk),
        dim_v(dv),
        num_queries(queries),
        q(random_floats(seed, queries * dk, 3.0f)),
        max(static_cast<std::size_t>(queries), -std::numeric_limits<float>::infinity()),
        sum(static_cast<std::size_t>(queries), 0.0f),
        acc(static_cast<std::size_t>(queries * dv), 0.0f),
        scores(static_cast<std::size_t>(queries * kKeys), std::nanf("")) {}

  void tile(IsaLevel level, const std::vector<float>& k, const std::vector<float>& v,
            const std::vector<std::uint32_t>& visible) {
    AttentionTileArgs args{};
    args.q = q.data();
    args.q_stride = dim_k;
    args.num_queries = num_queries;
    args.k = k.data();
    args.k_stride = dim_k;
    args.v = v.data();
    args.v_stride = dim_v;
    args.dim_k = dim_k;
    args.dim_v = dim_v;
    args.scale = 0.25f;
    args.softcap = softcap;
    args.visible = visible.data();
    args.scores = scores.data();
    args.max = max.data();
    args.sum = sum.data();
    args.acc = acc.data();
    args.acc_stride = dim_v;
    attention_tile_table(level).tile(&args);
  }
};

std::vector<std::uint32_t> random_masks(std::uint64_t seed, std::int64_t count) {
  std::vector<std::uint32_t> masks;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto word = philox(seed, static_cast<std::uint64_t>(i / 2), RngPurpose::kTest, 0);
    masks.push_back(word[0] % 4 == 0 ? ~0u : word[0] % 4 == 1 ? 0u : word[1]);
  }
  return masks;
}

TEST(AttentionKernel, LevelsAgreeBitForBit) {
  std::uint64_t seed = 10;
  for (const std::int64_t dim_k : {16, 48, 64, 128}) {
    for (const std::int64_t dim_v : {16, 64, 80}) {
      for (const std::int64_t queries : {1, 2, 5, 6, 7, 13}) {
        seed += 10;
        std::vector<Block> blocks;
        for (const IsaLevel level : test::machine_levels()) {
          Block block(dim_k, dim_v, queries, seed);
          block.softcap = seed % 20 == 0 ? 5.0f : 0.0f;
          for (std::uint64_t t = 0; t < 3; ++t) {
            auto k = random_floats(seed + t, kKeys * dim_k, 2.0f);
            const auto v = random_floats(seed + 5 + t, kKeys * dim_v);
            if (t == 2 && seed % 30 == 0) {
              k[7] = std::numeric_limits<float>::infinity();
            }
            block.tile(level, k, v, random_masks(seed + t, queries));
          }
          blocks.push_back(block);
        }
        for (const Block& block : blocks) {
          ASSERT_TRUE(same_bits(block.acc, blocks[0].acc))
              << dim_k << " " << dim_v << " " << queries;
          ASSERT_TRUE(same_bits(block.sum, blocks[0].sum));
          ASSERT_TRUE(same_bits(block.max, blocks[0].max));
        }
      }
    }
  }
}

TEST(AttentionKernel, AQueryAloneEqualsTheQueryInABlock) {
  const std::int64_t queries = 13;
  Block together(48, 80, queries, 1);
  std::vector<Block> alone;
  for (std::int64_t i = 0; i < queries; ++i) {
    alone.emplace_back(48, 80, 1, 1);
    std::copy_n(together.q.begin() + i * 48, 48, alone.back().q.begin());
  }
  for (std::uint64_t t = 0; t < 4; ++t) {
    const auto k = random_floats(20 + t, kKeys * 48, 2.0f);
    const auto v = random_floats(30 + t, kKeys * 80);
    const auto masks = random_masks(40 + t, queries);
    together.tile(isa_level(), k, v, masks);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      alone[i].tile(isa_level(), k, v, {masks[i]});
    }
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const auto from = together.acc.begin() + static_cast<std::int64_t>(i) * 80;
    EXPECT_TRUE(same_bits(alone[i].acc, std::vector<float>(from, from + 80))) << i;
    EXPECT_TRUE(same_bits(alone[i].sum[0], together.sum[i]));
  }
}

TEST(AttentionKernel, WhatIsNotVisibleCannotChangeAnything) {
  for (const IsaLevel level : test::machine_levels()) {
    const std::vector<std::uint32_t> masks{0x0ff0u, 0xffffffffu, 0x0ff1u};
    auto k = random_floats(3, kKeys * 16);
    auto v = random_floats(4, kKeys * 16);
    Block clean(16, 16, 3, 2);
    clean.tile(level, k, v, masks);
    // Key 20 is seen by query 1 only.
    std::fill_n(k.begin() + 20 * 16, 16, std::nanf(""));
    std::fill_n(v.begin() + 20 * 16, 16, std::numeric_limits<float>::infinity());
    Block dirty(16, 16, 3, 2);
    dirty.tile(level, k, v, masks);
    for (std::size_t i = 0; i < 48; ++i) {
      if (i / 16 != 1) {
        EXPECT_TRUE(same_bits(clean.acc[i], dirty.acc[i])) << i;
      } else {
        EXPECT_TRUE(std::isnan(dirty.acc[i]));
      }
    }
  }
}

TEST(AttentionKernel, AQueryThatSeesNothingKeepsItsState) {
  Block block(16, 16, 2, 2);
  const auto k = random_floats(3, kKeys * 16);
  const auto v = random_floats(4, kKeys * 16);
  block.tile(isa_level(), k, v, {1u, 1u});
  const Block before = block;
  block.tile(isa_level(), v, k, {0u, 2u});
  EXPECT_EQ(block.sum[0], before.sum[0]);
  EXPECT_EQ(block.max[0], before.max[0]);
  EXPECT_EQ(block.acc[3], before.acc[3]);
  EXPECT_NE(block.sum[1], before.sum[1]);
  block.tile(isa_level(), v, k, {0u, 0u});
  EXPECT_EQ(block.sum[0], before.sum[0]);
}

}  // namespace
}  // namespace trine::kernels
