#include "ops/attention.h"

#include <gtest/gtest.h>

#include "support/attention_case.h"

namespace trine {
namespace {

using test::AttentionCase;
using test::AttentionShape;
using test::same_bits;

std::unique_ptr<ThreadTeam> make_team(int num_threads) {
  return std::move(ThreadTeam::create(num_threads)).value();
}

const AttentionShape kShapes[] = {
    {4, 2, 16, 16, 0, 0.0f, DType::kF32, 70},     {3, 1, 64, 64, 0, 0.0f, DType::kF16, 130},
    {8, 2, 80, 48, 40, 0.0f, DType::kBF16, 101},  {4, 4, 24, 40, 7, 5.0f, DType::kF16, 97},
    {6, 3, 128, 128, 33, 0.0f, DType::kF32, 75},  {1, 1, 1, 3, 0, 2.0f, DType::kF16, 33},
    {5, 1, 32, 32, 32, 0.0f, DType::kF32, 100},   {8, 1, 64, 64, 0, 0.0f, DType::kI8, 300},
    {4, 2, 20, 33, 60, 3.0f, DType::kI8, 150},    {2, 1, 16, 32, 300, 0.0f, DType::kF16, 700},
    {16, 2, 128, 96, 0, 0.0f, DType::kBF16, 290},
};

TEST(Attention, MatchesDoublePrecision) {
  const auto team = make_team(2);
  std::uint64_t seed = 1;
  for (const AttentionShape& shape : kShapes) {
    const AttentionCase c(shape, seed += 10);
    const auto out = c.run(*team, {shape.length}, seed);
    const auto k = c.stored(c.k, shape.head_dim_k);
    const auto v = c.stored(c.v, shape.head_dim_v);
    for (std::int64_t row = 0; row < shape.length; ++row) {
      for (std::int64_t head = 0; head < shape.num_heads; ++head) {
        const auto truth = c.reference(k, v, row, head);
        for (std::size_t d = 0; d < truth.size(); ++d) {
          // Values are below 2; the scores' rounding errors (about 1e-6) move the weights by as
          // much. Beside eight-bit codes queries and weights have steps of 1/16256 of the largest.
          ASSERT_NEAR(
              out[static_cast<std::size_t>(row * c.out_width() + head * shape.head_dim_v) + d],
              truth[d], shape.dtype == DType::kI8 ? 1e-3 : 1e-5)
              << "heads " << shape.num_heads << " row " << row << " head " << head << " d " << d;
        }
      }
    }
  }
}

TEST(Attention, WindowBordersMatchDoublePrecision) {
  const auto team = make_team(1);
  for (const std::int32_t window : {1, 2, 31, 32, 33, 63, 64, 65, 96, 200}) {
    const AttentionCase c({2, 1, 16, 16, window, 0.0f, DType::kF32, 131}, 7);
    const auto out = c.run(*team, {131}, 0);
    const auto k = c.stored(c.k, 16);
    const auto v = c.stored(c.v, 16);
    for (const std::int64_t row : {0, 1, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 97, 130}) {
      const auto truth = c.reference(k, v, row, 1);
      for (std::size_t d = 0; d < truth.size(); ++d) {
        ASSERT_NEAR(out[static_cast<std::size_t>(row * c.out_width() + 16) + d], truth[d], 1e-5)
            << "window " << window << " row " << row;
      }
    }
  }
}

TEST(Attention, ChunksPlacementThreadsAndLevelsDoNotChangeABit) {
  std::uint64_t seed = 100;
  for (const AttentionShape& shape : kShapes) {
    const AttentionCase c(shape, seed += 10);
    const auto expected = c.run(*make_team(1), {shape.length}, 0);
    for (const int num_threads : {1, 2, 3, 5}) {
      const auto team = make_team(num_threads);
      EXPECT_TRUE(same_bits(c.run(*team, {1}, 3), expected)) << "token by token";
      EXPECT_TRUE(same_bits(c.run(*team, {17, 1, 40, 3}, 4), expected)) << "chunks";
      EXPECT_TRUE(same_bits(c.run(*team, {shape.length}, 5), expected)) << "whole";
    }
    const auto team = make_team(2);
    for (const IsaLevel level : test::machine_levels()) {
      const test::ScopedIsaLevel scope(level);
      EXPECT_TRUE(same_bits(c.run(*team, {33, 5}, 6), expected)) << isa_level_name(level);
    }
  }
}

TEST(Attention, SpansOfOneStepDoNotSeeEachOther) {
  const auto team = make_team(2);
  const AttentionShape shape{4, 2, 32, 32, 20, 0.0f, DType::kF16, 90};
  const AttentionCase a(shape, 1);
  const AttentionCase b(shape, 2);
  const auto a_alone = a.run(*team, {90}, 0);
  const auto b_alone = b.run(*team, {90}, 0);
  // One step with the last token of b, then rows 50..89 of a, then nothing of a third sequence.
  ops::Context ctx(*team);
  const test::Pages a_pages(a.geometry(), 90, 5);
  const test::Pages b_pages(b.geometry(), 90, 6);
  ops::AttentionSpan spans[3];
  const auto prefix = [&](const AttentionCase& c, const test::Pages& pages, std::int32_t rows) {
    ops::AttentionSpan span;
    span.pages = pages.span();
    span.num_rows = rows;
    write_kv(ctx, c.geometry(), 1, std::span<const ops::AttentionSpan>(&span, 1), c.k.data(),
             c.k_width(), c.v.data(), c.v_width());
  };
  prefix(a, a_pages, 50);
  prefix(b, b_pages, 89);
  spans[0].pages = b_pages.span();
  spans[0].first_slot = 89;
  spans[0].num_rows = 1;
  spans[0].first_row = 0;
  spans[1].pages = a_pages.span();
  spans[1].first_slot = 50;
  spans[1].num_rows = 40;
  spans[1].first_row = 1;
  spans[2].pages = a_pages.span();
  const auto rows = [](const std::vector<float>& first, const std::vector<float>& second,
                       std::int64_t width) {
    std::vector<float> out(first.begin() + 89 * width, first.begin() + 90 * width);
    out.insert(out.end(), second.begin() + 50 * width, second.begin() + 90 * width);
    return out;
  };
  const auto q = rows(b.q, a.q, a.q_width());
  const auto k = rows(b.k, a.k, a.k_width());
  const auto v = rows(b.v, a.v, a.v_width());
  std::vector<float> out(static_cast<std::size_t>(41 * a.out_width()));
  write_kv(ctx, a.geometry(), 1, spans, k.data(), a.k_width(), v.data(), a.v_width());
  attention(ctx, a.geometry(), a.params(), spans, q.data(), a.q_width(), out.data(), a.out_width());
  EXPECT_TRUE(same_bits(out, rows(b_alone, a_alone, a.out_width())));
}

TEST(Attention, ALaterTokenThatOverflowsDoesNotReachEarlierRows) {
  const auto team = make_team(2);
  AttentionCase c({2, 1, 16, 16, 0, 0.0f, DType::kF16, 70}, 3);
  const auto clean = c.run(*team, {70}, 0);
  for (std::int64_t d = 0; d < 16; ++d) {
    c.v[static_cast<std::size_t>(50 * 16 + d)] = 1e30f;  // infinite in F16
    c.k[static_cast<std::size_t>(50 * 16 + d)] = std::nanf("");
  }
  const auto dirty = c.run(*team, {70}, 0);
  const std::int64_t before = 50 * c.out_width();
  EXPECT_TRUE(same_bits(std::vector<float>(clean.begin(), clean.begin() + before),
                        std::vector<float>(dirty.begin(), dirty.begin() + before)));
  EXPECT_TRUE(std::isnan(dirty[static_cast<std::size_t>(before)]));
}

TEST(Attention, EveryTreePathEqualsItsChain) {
  const std::vector<std::int32_t> parents{-1, -1, 0, 0, 1, 2, 2, 3, 5, 5, 8, 10, 11};
  const auto num_nodes = static_cast<std::int32_t>(parents.size());
  for (const std::int32_t window : {0, 5, 40}) {
    for (const std::int32_t prefix : {0, 29, 60, 64}) {
      const AttentionCase c({4, 2, 32, 48, window, 0.0f, DType::kF16, prefix + num_nodes}, 5);
      for (const int num_threads : {1, 3}) {
        const auto team = make_team(num_threads);
        const auto tree = run_tree(c, *team, prefix, parents, 9);
        for (std::int32_t node = 0; node < num_nodes; ++node) {
          const auto path = test::tree_path(parents, node);
          const auto chain = test::chain_of_path(c, prefix, path);
          const auto out = chain.run(*team, {chain.shape().length}, 0);
          ASSERT_TRUE(same_bits(std::vector<float>(tree.begin() + node * c.out_width(),
                                                   tree.begin() + (node + 1) * c.out_width()),
                                std::vector<float>(out.end() - c.out_width(), out.end())))
              << "window " << window << " prefix " << prefix << " node " << node;
        }
      }
    }
  }
}

TEST(Attention, ASplitContextIsMergedInTheOrderOfAWholeOne) {
  // One row of a long context: split over the team's members; beside 200 others: not.
  const AttentionCase c({4, 1, 32, 32, 0, 0.0f, DType::kF16, 1800}, 11);
  const auto expected = c.run(*make_team(1), {1800}, 0);
  for (const int num_threads : {2, 3, 8}) {
    EXPECT_TRUE(same_bits(c.run(*make_team(num_threads), {1790, 1}, 2), expected)) << num_threads;
    EXPECT_TRUE(same_bits(c.run(*make_team(num_threads), {1500, 200, 30}, 2), expected))
        << num_threads;
  }
}

TEST(Attention, SplitContextsOfSeveralSpansEqualEachAlone) {
  // More members than CPUs: those that come late find their segments taken from the back, by
  // members that were in a later span.
  constexpr std::int32_t kTokens = 2100;
  const AttentionShape shape{4, 1, 32, 32, 0, 0.0f, DType::kF16, kTokens};
  const AttentionCase cases[] = {{shape, 1}, {shape, 2}, {shape, 3}};
  for (const int num_threads : {2, 3, 8}) {
    const auto team = make_team(num_threads);
    ops::Context ctx(*team);
    std::vector<std::unique_ptr<test::Pages>> pages;
    std::vector<ops::AttentionSpan> spans;
    std::vector<float> q, expected;
    for (const AttentionCase& c : cases) {
      pages.push_back(std::make_unique<test::Pages>(c.geometry(), kTokens, 5));
      ops::AttentionSpan span;
      span.pages = pages.back()->span();
      span.num_rows = kTokens;
      write_kv(ctx, c.geometry(), 1, std::span<const ops::AttentionSpan>(&span, 1), c.k.data(),
               c.k_width(), c.v.data(), c.v_width());
      span.first_slot = kTokens - 1;
      span.first_row = static_cast<std::int64_t>(spans.size());
      span.num_rows = 1;
      spans.push_back(span);
      q.insert(q.end(), c.q.end() - c.q_width(), c.q.end());
      const auto alone = c.run(*make_team(1), {kTokens}, 0);
      expected.insert(expected.end(), alone.end() - c.out_width(), alone.end());
    }
    std::vector<float> out(expected.size());
    for (int repeat = 0; repeat < 50; ++repeat) {
      attention(ctx, cases[0].geometry(), cases[0].params(), spans, q.data(), cases[0].q_width(),
                out.data(), cases[0].out_width());
      ASSERT_TRUE(same_bits(out, expected)) << num_threads;
    }
  }
}

TEST(Attention, TreesOnALongPrefixEqualTheirChains) {
  const std::vector<std::int32_t> parents{-1, 0, 0, 1, 1, 3, 2};
  const auto num_nodes = static_cast<std::int32_t>(parents.size());
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    for (const std::int32_t prefix : {254, 600}) {
      const AttentionCase c({4, 2, 32, 32, 0, 0.0f, dtype, prefix + num_nodes}, 6);
      for (const int num_threads : {1, 3}) {
        const auto tree = run_tree(c, *make_team(num_threads), prefix, parents, 9);
        for (std::int32_t node = 0; node < num_nodes; ++node) {
          const auto chain = test::chain_of_path(c, prefix, test::tree_path(parents, node));
          const auto out = chain.run(*make_team(1), {chain.shape().length}, 0);
          ASSERT_TRUE(same_bits(std::vector<float>(tree.begin() + node * c.out_width(),
                                                   tree.begin() + (node + 1) * c.out_width()),
                                std::vector<float>(out.end() - c.out_width(), out.end())))
              << "prefix " << prefix << " node " << node;
        }
      }
    }
  }
}

TEST(WriteKv, StoresRoundedValuesInTheirSlots) {
  const auto team = make_team(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    const AttentionCase c({2, 2, 5, 3, 0, 0.0f, dtype, 80}, 4);
    const KvGeometry geometry = c.geometry();
    const test::Pages pages(geometry, 80, 8);
    ops::Context ctx(*team);
    ops::AttentionSpan span;
    span.pages = pages.span();
    span.num_rows = 80;
    write_kv(ctx, geometry, 1, std::span<const ops::AttentionSpan>(&span, 1), c.k.data(),
             c.k_width(), c.v.data(), c.v_width());
    const auto load = [&](const std::byte* block, std::int64_t element, std::int64_t scale) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, block + element, static_cast<std::size_t>(geometry.element_bytes()));
      std::uint16_t scale_bits = 0;
      std::memcpy(&scale_bits, block + scale, static_cast<std::size_t>(geometry.scale_bytes()));
      return dtype == DType::kF32    ? std::bit_cast<float>(bits)
             : dtype == DType::kF16  ? f16_to_f32(static_cast<std::uint16_t>(bits))
             : dtype == DType::kBF16 ? bf16_to_f32(static_cast<std::uint16_t>(bits))
                                     : f16_to_f32(scale_bits) * (static_cast<float>(bits) - 128.0f);
    };
    const auto k = c.stored(c.k, 5);
    const auto v = c.stored(c.v, 3);
    for (std::int32_t t = 0; t < 80; ++t) {
      const std::int64_t token = t % kPageTokens;
      for (std::int32_t g = 0; g < 2; ++g) {
        const std::byte* page = pages.span()[static_cast<std::size_t>(t / kPageTokens)];
        const std::byte* keys = page + geometry.key_offset(1, g);
        const std::byte* values = page + geometry.value_offset(1, g);
        for (std::int64_t d = 0; d < geometry.padded_dim_k(); ++d) {
          const double expected = d < 5 ? k[static_cast<std::size_t>(t * 10 + g * 5 + d)] : 0.0;
          EXPECT_EQ(load(keys, geometry.key_element(token, d), geometry.key_scale(token)),
                    expected);
        }
        for (std::int64_t d = 0; d < geometry.padded_dim_v(); ++d) {
          const double expected = d < 3 ? v[static_cast<std::size_t>(t * 6 + g * 3 + d)] : 0.0;
          EXPECT_EQ(load(values, geometry.value_element(token, d), geometry.value_scale(token)),
                    expected);
        }
      }
    }
    // Layer 0 was not touched.
    EXPECT_EQ(*(pages.span()[0] + geometry.key_offset(0, 0)), std::byte{0xff});
  }
}

TEST(WriteKv, WhatEightBitsCannotHoldComesBackAsNan) {
  const auto team = make_team(1);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 1e8f}) {
    AttentionCase c({1, 1, 16, 16, 0, 0.0f, DType::kI8, 3}, 4);
    c.v[16 + 5] = bad;  // of token 1
    const auto out = c.run(*team, {3}, 0);
    EXPECT_FALSE(std::isnan(out[0])) << bad;
    EXPECT_TRUE(std::isnan(out[16])) << bad;
    EXPECT_TRUE(std::isnan(out[32])) << bad;
  }
  // A token of zeros has the scale 0.
  AttentionCase zeros({1, 1, 16, 16, 0, 0.0f, DType::kI8, 2}, 4);
  std::fill(zeros.v.begin(), zeros.v.end(), 0.0f);
  for (const float value : zeros.run(*team, {2}, 0)) {
    EXPECT_EQ(value, 0.0f);
  }
}

}  // namespace
}  // namespace trine
