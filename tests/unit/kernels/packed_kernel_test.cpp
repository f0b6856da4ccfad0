#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "support/numeric.h"
#include "support/packed_check.h"

namespace trine::kernels {
namespace {

using test::Aligned;
using test::multiply;
using test::PackedShape;
using test::quantize;
using test::Rows;
using test::scheme_fault;

// Every combination that a packer makes, and the ones that only the layout allows.
std::vector<PackedScheme> all_schemes() {
  std::vector<PackedScheme> out;
  for (const CodeKind codes : {CodeKind::kU2, CodeKind::kU3, CodeKind::kU4, CodeKind::kU5,
                               CodeKind::kU6, CodeKind::kU8, CodeKind::kIq4Nl, CodeKind::kE2M1}) {
    for (const std::int32_t group : {32, 64, 128, 256, 0}) {
      out.push_back({codes, ScaleKind::kF16, group});
    }
    out.push_back({codes, ScaleKind::kF32, 32});
    out.push_back({codes, ScaleKind::kF32, 0});
    out.push_back({codes, ScaleKind::kF16Min, 32});
    out.push_back({codes, ScaleKind::kF16Min, 128});
    out.push_back({codes, ScaleKind::kF16Zero, 64});
    out.push_back({codes, ScaleKind::kF16Zero, 256});
    out.push_back({codes, ScaleKind::kF32Zero, 128});
    out.push_back({codes, ScaleKind::kF32Zero, 0});
    out.push_back({codes, ScaleKind::kSuperI8, 16});
    out.push_back({codes, ScaleKind::kSuperI8, 32});
    out.push_back({codes, ScaleKind::kSuperU8Min, 16});
    out.push_back({codes, ScaleKind::kSuperU8Min, 32});
  }
  return out;
}

// Odd sizes: one row, short last blocks, short last groups.
PackedShape case_of(const PackedScheme& scheme, std::uint64_t seed) {
  const std::int64_t rows = test::random_int(seed, 0, 1, 70);
  if (packed_is_super(scheme)) {
    return {rows, 256 * test::random_int(seed, 1, 1, 2)};
  }
  return {rows, test::random_int(seed, 1, 1, 400)};
}

TEST(PackedKernel, EveryLevelFollowsTheChain) {
  std::uint64_t seed = 10;
  for (const PackedScheme& scheme : all_schemes()) {
    ++seed;
    ASSERT_EQ(scheme_fault(scheme, case_of(scheme, seed), seed, {1, 2, 7, 19}), "");
  }
}

TEST(PackedKernel, EveryRowCountGivesTheSameBits) {
  std::vector<std::int64_t> counts;
  for (std::int64_t m = 1; m <= 41; ++m) {
    counts.push_back(m);
  }
  EXPECT_EQ(scheme_fault({CodeKind::kU4, ScaleKind::kF16, 64}, {33, 160}, 501, counts), "");
  EXPECT_EQ(scheme_fault({CodeKind::kU8, ScaleKind::kF32, 0}, {40, 300}, 502, counts), "");
  EXPECT_EQ(scheme_fault({CodeKind::kU6, ScaleKind::kSuperI8, 16}, {33, 256}, 503, counts), "");
  EXPECT_EQ(scheme_fault({CodeKind::kU4, ScaleKind::kSuperU8Min, 32}, {32, 256}, 504, counts), "");
}

// More rows than one pass over a decoded block takes.
TEST(PackedKernel, PassesOverManyRowsGiveTheSameBits) {
  const PackedScheme scheme{CodeKind::kU4, ScaleKind::kF16, 128};
  const PackedShape c{32, 9000};
  EXPECT_EQ(scheme_fault(scheme, c, 600, {1, 130}), "");
}

TEST(PackedKernel, TheLargestCodesDoNotOverflow) {
  for (const IsaLevel level : test::machine_levels()) {
    const PackedScheme scheme{CodeKind::kU8, ScaleKind::kF32, 0};
    const std::int64_t cols = kMaxPackedCols;
    const std::int64_t bytes = packed_block_bytes(scheme, cols);
    Aligned packed(static_cast<std::size_t>(bytes));
    std::memset(packed.data, 255, static_cast<std::size_t>(bytes));
    for (int n = 0; n < 32; ++n) {
      const float one = 1.0f;
      std::memcpy(packed.data + 4 * n, &one, 4);
    }
    const std::vector<float> x(static_cast<std::size_t>(3 * cols), 127.0f);
    const Rows rows = quantize(packed_table(level), scheme, x, 3, cols);
    const PackedMatrix w{scheme, 32, cols, packed.data};
    for (const std::int64_t direct_rows : {0, 3}) {
      for (const float y : multiply(packed_table(level), w, rows.view, nullptr, direct_rows)) {
        ASSERT_EQ(y, 127.0f * 127.0f * 65536.0f) << isa_level_name(level);
      }
    }
  }
}

TEST(PackedKernel, BadActivationsReachTheResultAndTinyOnesAreZero) {
  for (const IsaLevel level : test::machine_levels()) {
    const PackedTable& table = packed_table(level);
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t at : {0, 5, 31, 33}) {
        std::vector<float> x(34, 1.0f);
        x[static_cast<std::size_t>(at)] = bad;
        const Rows rows = quantize(table, {CodeKind::kU4, ScaleKind::kF16, 32}, x, 1, 34);
        const std::size_t group = static_cast<std::size_t>(at / 32);
        EXPECT_TRUE(std::isnan(rows.scales[group]));
        EXPECT_FALSE(std::isnan(rows.scales[1 - group]));
        EXPECT_EQ(rows.codes[static_cast<std::size_t>(at)], 0);
      }
    }
    const std::vector<float> tiny(32, 0x1p-101f);
    const Rows rows = quantize(table, {CodeKind::kU4, ScaleKind::kF16, 32}, tiny, 1, 32);
    EXPECT_EQ(rows.scales[0], 0.0f);
    EXPECT_EQ(rows.codes[0], 0);
    const std::vector<float> huge(32, -std::numeric_limits<float>::max());
    const Rows most = quantize(table, {CodeKind::kU4, ScaleKind::kF16, 32}, huge, 1, 32);
    EXPECT_EQ(most.codes[7], -127);
  }
}

}  // namespace
}  // namespace trine::kernels
