#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/dispatch.h"
#include "support/numeric.h"
#include "tensor/kv_layout.h"

namespace trine::kernels {
namespace {

using test::random_floats;
using test::same_bits;

constexpr std::int64_t kKeys = kAttentionTileKeys;

constexpr DType kElements[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};

KvElement kv_element(DType dtype) {
  return dtype == DType::kF16    ? KvElement::kF16
         : dtype == DType::kBF16 ? KvElement::kBF16
                                 : KvElement::kF32;
}

// Key and value blocks of one tile in the layout of a page; element (j, d) is a function of the
// seed, rounded to the type.
struct Blocks {
  KvGeometry geometry;
  std::vector<std::byte> k, v;

  Blocks(DType dtype, std::int64_t dim_k, std::int64_t dim_v, std::uint64_t seed)
      : geometry{.num_layers = 1,
                 .num_kv_heads = 1,
                 .head_dim_k = static_cast<std::int32_t>(dim_k),
                 .head_dim_v = static_cast<std::int32_t>(dim_v),
                 .dtype = dtype},
        k(static_cast<std::size_t>(geometry.key_block_bytes()), std::byte{0xff}),
        v(static_cast<std::size_t>(geometry.value_block_bytes()), std::byte{0xff}) {
    const auto keys = random_floats(seed, kKeys * dim_k, 2.0f);
    const auto values = random_floats(seed + 1, kKeys * dim_v);
    for (std::int64_t j = 0; j < kKeys; ++j) {
      for (std::int64_t d = 0; d < dim_k; ++d) {
        put(k, geometry.key_element(j, d), keys[static_cast<std::size_t>(j * dim_k + d)]);
      }
      for (std::int64_t d = 0; d < dim_v; ++d) {
        put(v, geometry.value_element(j, d), values[static_cast<std::size_t>(j * dim_v + d)]);
      }
      if (dtype == DType::kI8) {
        const std::uint16_t scale = f32_to_f16(0.01f + 0.001f * static_cast<float>(j));
        std::memcpy(k.data() + geometry.key_scale(j), &scale, 2);
        std::memcpy(v.data() + geometry.value_scale(j), &scale, 2);
      }
    }
  }

  void put(std::vector<std::byte>& block, std::int64_t at, float value) const {
    const auto write = [&](auto bits) { std::memcpy(block.data() + at, &bits, sizeof bits); };
    switch (geometry.dtype) {
      case DType::kF16:
        write(f32_to_f16(value));
        break;
      case DType::kBF16:
        write(f32_to_bf16(value));
        break;
      case DType::kI8:
        write(static_cast<std::uint8_t>(value * 40.0f + 128.0f));
        break;
      default:
        write(value);
        break;
    }
  }

  // The number that stands there.
  double get(const std::vector<std::byte>& block, std::int64_t at, std::int64_t scale_at) const {
    const auto read = [&](std::int64_t from, auto value) {
      std::memcpy(&value, block.data() + from, sizeof value);
      return value;
    };
    switch (geometry.dtype) {
      case DType::kF16:
        return static_cast<double>(f16_to_f32(read(at, std::uint16_t{0})));
      case DType::kBF16:
        return static_cast<double>(bf16_to_f32(read(at, std::uint16_t{0})));
      case DType::kI8:
        return static_cast<double>(f16_to_f32(read(scale_at, std::uint16_t{0}))) *
               (read(at, std::uint8_t{0}) - 128);
      default:
        return static_cast<double>(read(at, 0.0f));
    }
  }

  double key(std::int64_t j, std::int64_t d) const {
    return get(k, geometry.key_element(j, d), geometry.key_scale(j));
  }

  double value(std::int64_t j, std::int64_t d) const {
    return get(v, geometry.value_element(j, d), geometry.value_scale(j));
  }
};

// A block of queries and what a segment makes of them.
struct Queries {
  std::int64_t dim_k, dim_v, count;
  float softcap = 0.0f;
  std::vector<float> q, max, sum, acc, scores;

  Queries(std::int64_t dk, std::int64_t dv, std::int64_t queries, std::uint64_t seed)
      : dim_k(dk),
        dim_v(dv),
        count(queries),
        q(random_floats(seed, queries * dk, 3.0f)),
        max(static_cast<std::size_t>(queries), std::nanf("")),
        sum(static_cast<std::size_t>(queries), std::nanf("")),
        acc(static_cast<std::size_t>(queries * dv), std::nanf("")),
        scores(static_cast<std::size_t>(queries * kSegmentKeys), std::nanf("")) {}

  void segment(IsaLevel level, const std::vector<Blocks>& blocks,
               const std::vector<std::uint32_t>& visible) {
    std::vector<AttentionTile> tiles;
    for (const Blocks& block : blocks) {
      tiles.push_back({block.k.data(), block.v.data()});
    }
    AttentionSegmentArgs args{};
    args.q = q.data();
    args.q_stride = dim_k;
    args.num_queries = count;
    args.tiles = tiles.data();
    args.num_tiles = static_cast<int>(tiles.size());
    args.tiles_coming = 0;
    args.dim_k = dim_k;
    args.dim_v = dim_v;
    args.scale = 0.25f;
    args.softcap = softcap;
    args.prefetch_bytes = 4096;
    args.visible = visible.data();
    args.scores = scores.data();
    args.max = max.data();
    args.sum = sum.data();
    args.acc = acc.data();
    args.acc_stride = dim_v;
    const DType dtype = blocks[0].geometry.dtype;
    if (dtype != DType::kI8) {
      attention_table(level).segment[static_cast<std::size_t>(kv_element(dtype))](&args);
      return;
    }
    std::vector<unsigned char> rows(static_cast<std::size_t>(count * query_row_bytes(dim_k)));
    attention_i8_table(level).quantize_queries(q.data(), dim_k, count, dim_k, rows.data());
    args.q = nullptr;
    args.q_rows = rows.data();
    attention_i8_table(level).segment(&args);
  }
};

std::vector<Blocks> random_blocks(DType element, std::int64_t dim_k, std::int64_t dim_v,
                                  std::uint64_t seed, std::size_t count) {
  std::vector<Blocks> blocks;
  for (std::size_t t = 0; t < count; ++t) {
    blocks.emplace_back(element, dim_k, dim_v, seed + 10 * t);
  }
  return blocks;
}

std::vector<std::uint32_t> random_masks(std::uint64_t seed, std::int64_t count) {
  std::vector<std::uint32_t> masks;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto word = philox(seed, static_cast<std::uint64_t>(i), RngPurpose::kTest, 0);
    masks.push_back(word[0] % 4 == 0 ? 0u : word[0] % 4 == 1 ? word[1] : ~0u);
  }
  return masks;
}

TEST(AttentionKernel, MatchesDoublePrecision) {
  std::uint64_t seed = 500;
  for (const DType element : kElements) {
    for (const float softcap : {0.0f, 4.0f}) {
      seed += 100;
      const std::int64_t dim_k = 20;
      const std::int64_t dim_v = 48;
      const auto blocks = random_blocks(element, dim_k, dim_v, seed, 5);
      const auto masks = random_masks(seed, 5 * 3);
      Queries queries(dim_k, dim_v, 3, seed);
      queries.softcap = softcap;
      queries.segment(isa_level(), blocks, masks);
      for (std::int64_t i = 0; i < 3; ++i) {
        std::vector<double> scores;
        double max = -HUGE_VAL;
        for (std::int64_t j = 0; j < 5 * kKeys; ++j) {
          const Blocks& block = blocks[static_cast<std::size_t>(j / kKeys)];
          double score = 0.0;
          for (std::int64_t d = 0; d < dim_k; ++d) {
            score += static_cast<double>(queries.q[static_cast<std::size_t>(i * dim_k + d)]) *
                     block.key(j % kKeys, d);
          }
          score *= 0.25;
          if (softcap > 0.0f) {
            score = static_cast<double>(softcap) * std::tanh(score / static_cast<double>(softcap));
          }
          const bool seen = masks[static_cast<std::size_t>(j / kKeys * 3 + i)] >> (j % kKeys) & 1u;
          scores.push_back(seen ? score : -HUGE_VAL);
          max = std::max(max, scores.back());
        }
        double sum = 0.0;
        std::vector<double> acc(static_cast<std::size_t>(dim_v), 0.0);
        for (std::int64_t j = 0; j < 5 * kKeys; ++j) {
          const Blocks& block = blocks[static_cast<std::size_t>(j / kKeys)];
          const double p = std::exp(scores[static_cast<std::size_t>(j)] - max);
          sum += p;
          for (std::int64_t d = 0; d < dim_v; ++d) {
            acc[static_cast<std::size_t>(d)] += p * block.value(j % kKeys, d);
          }
        }
        const auto at = static_cast<std::size_t>(i);
        // Wide numbers have steps of 1/16256 of the largest; keys here reach 2 * 3 * 20 / 4.
        const double tolerance = element == DType::kI8 ? 1e-3 : 3e-5;
        EXPECT_NEAR(queries.max[at], max, tolerance * (1.0 + std::fabs(max)));
        EXPECT_NEAR(queries.sum[at] / sum, 1.0, tolerance);
        for (std::int64_t d = 0; d < dim_v; ++d) {
          EXPECT_NEAR(queries.acc[static_cast<std::size_t>(i * dim_v + d)] / sum,
                      acc[static_cast<std::size_t>(d)] / sum, tolerance);
        }
      }
    }
  }
}

TEST(AttentionKernel, LevelsAgreeBitForBit) {
  std::uint64_t seed = 10;
  for (const DType element : kElements) {
    for (const std::int64_t dim_k : {1, 16, 48, 64, 80}) {
      for (const std::int64_t dim_v : {16, 64, 80, 128}) {
        for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
          seed += 100;
          const std::size_t num_tiles = seed / 100 % kSegmentTiles + 1;
          const auto blocks = random_blocks(element, dim_k, dim_v, seed, num_tiles);
          const auto masks = random_masks(seed, static_cast<std::int64_t>(num_tiles) * count);
          std::vector<Queries> results;
          for (const IsaLevel level : test::machine_levels()) {
            Queries queries(dim_k, dim_v, count, seed);
            queries.softcap = seed % 300 == 0 ? 5.0f : 0.0f;
            if (seed % 700 == 0) {
              queries.q[0] = std::numeric_limits<float>::infinity();
            }
            queries.segment(level, blocks, masks);
            results.push_back(queries);
          }
          for (const Queries& queries : results) {
            ASSERT_TRUE(same_bits(queries.acc, results[0].acc))
                << dim_k << " " << dim_v << " " << count;
            ASSERT_TRUE(same_bits(queries.sum, results[0].sum));
            ASSERT_TRUE(same_bits(queries.max, results[0].max));
          }
        }
      }
    }
  }
}

TEST(AttentionKernel, AQueryAloneEqualsTheQueryInABlock) {
  const std::int64_t count = 21;
  for (const DType element : kElements) {
    const auto blocks = random_blocks(element, 48, 80, 20, 4);
    const auto masks = random_masks(40, 4 * count);
    Queries together(48, 80, count, 1);
    together.segment(isa_level(), blocks, masks);
    for (std::int64_t i = 0; i < count; ++i) {
      Queries alone(48, 80, 1, 1);
      std::copy_n(together.q.begin() + i * 48, 48, alone.q.begin());
      std::vector<std::uint32_t> own;
      for (std::int64_t t = 0; t < 4; ++t) {
        own.push_back(masks[static_cast<std::size_t>(t * count + i)]);
      }
      alone.segment(isa_level(), blocks, own);
      const auto from = together.acc.begin() + i * 80;
      EXPECT_TRUE(same_bits(alone.acc, std::vector<float>(from, from + 80))) << i;
      EXPECT_TRUE(same_bits(alone.sum[0], together.sum[static_cast<std::size_t>(i)]));
    }
  }
}

TEST(AttentionKernel, WhatIsNotVisibleCannotChangeAnything) {
  for (const IsaLevel level : test::machine_levels()) {
    const std::vector<std::uint32_t> masks{0x0ff0u, 0xffffffffu, 0x0ff1u};
    auto blocks = random_blocks(DType::kF32, 16, 16, 3, 1);
    Queries clean(16, 16, 3, 2);
    clean.segment(level, blocks, masks);
    // Key 20 is seen by query 1 only.
    const float nan = std::nanf("");
    for (std::int64_t d = 0; d < 16; ++d) {
      std::memcpy(blocks[0].k.data() + (d * kKeys + 20) * 4, &nan, 4);
      std::memcpy(blocks[0].v.data() + (20 * 16 + d) * 4, &nan, 4);
    }
    Queries dirty(16, 16, 3, 2);
    dirty.segment(level, blocks, masks);
    for (std::size_t i = 0; i < 48; ++i) {
      if (i / 16 != 1) {
        EXPECT_TRUE(same_bits(clean.acc[i], dirty.acc[i])) << i;
      } else {
        EXPECT_TRUE(std::isnan(dirty.acc[i]));
      }
    }
  }
}

TEST(AttentionKernel, MergeSkipsWhatSawNothingAndPassesNanOn) {
  for (const IsaLevel level : test::machine_levels()) {
    const auto& table = attention_table(level);
    const std::vector<std::uint32_t> masks{~0u, 0u};
    Queries queries(16, 16, 2, 2);
    queries.segment(level, random_blocks(DType::kF16, 16, 16, 3, 1), masks);
    EXPECT_EQ(queries.sum[1], 0.0f);
    const Queries before = queries;
    // Something takes in nothing, nothing takes in something.
    table.merge(&queries.max[0], &queries.sum[0], queries.acc.data(), before.max[1], before.sum[1],
                before.acc.data() + 16, 16);
    EXPECT_TRUE(same_bits(queries.acc, before.acc));
    table.merge(&queries.max[1], &queries.sum[1], queries.acc.data() + 16, before.max[0],
                before.sum[0], before.acc.data(), 16);
    EXPECT_EQ(queries.sum[1], before.sum[0]);
    EXPECT_EQ(queries.acc[16 + 7], before.acc[7]);
    // Twice the same segment: the same mean.
    table.merge(&queries.max[1], &queries.sum[1], queries.acc.data() + 16, before.max[0],
                before.sum[0], before.acc.data(), 16);
    EXPECT_EQ(queries.sum[1], 2.0f * before.sum[0]);
    EXPECT_EQ(queries.acc[16 + 7], 2.0f * before.acc[7]);
    const std::vector<float> nan(16, std::nanf(""));
    table.merge(&queries.max[1], &queries.sum[1], queries.acc.data() + 16, std::nanf(""),
                std::nanf(""), nan.data(), 16);
    EXPECT_TRUE(std::isnan(queries.sum[1]));
    table.merge(&queries.max[1], &queries.sum[1], queries.acc.data() + 16, before.max[0],
                before.sum[0], before.acc.data(), 16);
    EXPECT_TRUE(std::isnan(queries.acc[16]));
  }
}

}  // namespace
}  // namespace trine::kernels
