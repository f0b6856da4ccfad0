#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "support/numeric.h"
#include "support/packed_twin.h"

namespace trine::kernels {
namespace {

using test::PackedTwin;
using test::random_floats;
using test::same_bits;

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
    out.push_back({codes, ScaleKind::kSuperI8, 16});
    out.push_back({codes, ScaleKind::kSuperI8, 32});
    out.push_back({codes, ScaleKind::kSuperU8Min, 16});
    out.push_back({codes, ScaleKind::kSuperU8Min, 32});
  }
  return out;
}

// Memory at 64 bytes that ends where it ends, for the address sanitizer.
struct Aligned {
  explicit Aligned(std::size_t bytes)
      : data(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {}

  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;

  ~Aligned() { std::free(data); }

  std::uint8_t* const data;
};

struct Rows {
  std::vector<std::int8_t> codes;
  std::vector<float> scales, scaled_sums;
  std::vector<std::int32_t> sums;
  PackedRows view{};
};

Rows quantize(const PackedTable& table, const PackedScheme& scheme, const std::vector<float>& x,
              std::int64_t num_rows, std::int64_t cols) {
  const std::int64_t padded = packed_padded_cols(cols);
  const std::int64_t group = packed_activation_group(scheme, cols);
  const std::int64_t sum_group = packed_group(scheme, cols);
  const std::int64_t stride = (padded + 63) / 64 * 64 + 64;
  const std::int64_t groups = (padded + group - 1) / group;
  const std::int64_t sums = (padded + sum_group - 1) / sum_group;
  Rows out;
  out.codes.assign(static_cast<std::size_t>(num_rows * stride), 77);
  out.scales.resize(static_cast<std::size_t>(num_rows * groups));
  out.sums.resize(static_cast<std::size_t>(num_rows * sums));
  out.scaled_sums.resize(static_cast<std::size_t>(num_rows * sums));
  for (std::int64_t m = 0; m < num_rows; ++m) {
    table.quantize_row(x.data() + m * cols, cols, group, sum_group, out.codes.data() + m * stride,
                       out.scales.data() + m * groups, out.sums.data() + m * sums,
                       out.scaled_sums.data() + m * sums);
  }
  out.view = {out.codes.data(), stride, out.scales.data(), out.sums.data(), out.scaled_sums.data(),
              groups,           sums,   num_rows};
  return out;
}

std::vector<float> multiply(const PackedTable& table, const PackedMatrix& w, const PackedRows& x,
                            const float* bias) {
  Aligned scratch(static_cast<std::size_t>(kPackedScratchBytes));
  std::vector<float> y(static_cast<std::size_t>(x.num_rows * w.rows), -77.0f);
  const std::int64_t blocks = (w.rows + 31) / 32;
  table.multiply(&w, &x, bias, y.data(), w.rows, 0, blocks / 2, scratch.data);
  table.multiply(&w, &x, bias, y.data(), w.rows, blocks / 2, blocks, scratch.data);
  return y;
}

// packed.h's rule for activations, from its text.
void check_quantized(const Rows& rows, const std::vector<float>& x, std::int64_t num_rows,
                     std::int64_t cols, std::int64_t group, std::int64_t sum_group) {
  for (std::int64_t m = 0; m < num_rows; ++m) {
    for (std::int64_t col = 0; col < packed_padded_cols(cols); ++col) {
      const std::int64_t first = col / group * group;
      float absmax = 0;
      for (std::int64_t k = first; k < std::min(first + group, cols); ++k) {
        absmax = std::max(absmax, std::fabs(x[static_cast<std::size_t>(m * cols + k)]));
      }
      const float scale = absmax / 127.0f;
      ASSERT_EQ(rows.view.scales[m * rows.view.group_stride + col / group], scale);
      const float wanted =
          col < cols
              ? std::nearbyintf(x[static_cast<std::size_t>(m * cols + col)] * (127.0f / absmax))
              : 0.0f;
      ASSERT_EQ(rows.view.codes[m * rows.view.code_stride + col], static_cast<int>(wanted));
    }
    for (std::int64_t g = 0; g * sum_group < packed_padded_cols(cols); ++g) {
      std::int32_t sum = 0;
      for (std::int64_t k = g * sum_group;
           k < std::min((g + 1) * sum_group, packed_padded_cols(cols)); ++k) {
        sum += rows.view.codes[m * rows.view.code_stride + k];
      }
      ASSERT_EQ(rows.view.sums[m * rows.view.sum_stride + g], sum);
      ASSERT_EQ(rows.view.scaled_sums[m * rows.view.sum_stride + g],
                static_cast<float>(sum) *
                    rows.view.scales[m * rows.view.group_stride + g * sum_group / group]);
    }
  }
}

// packed.h's chain of one element, from its text.
float chain(const PackedTwin& twin, const std::uint8_t* data, const PackedRows& x,
            std::int64_t activation_group, std::int64_t row, std::int64_t m) {
  float acc = 0.0f;
  for (std::int64_t first = 0; first < twin.padded(); first += twin.group()) {
    std::int64_t dot = 0;
    std::int32_t sum = 0;
    for (std::int64_t k = first; k < std::min(first + twin.group(), twin.padded()); ++k) {
      const int a = x.codes[m * x.code_stride + k];
      dot += (twin.code(data, row, k) - twin.zero_point()) * a;
      sum += a;
    }
    const float x_scale = x.scales[m * x.group_stride + first / activation_group];
    acc = std::fma(static_cast<float>(dot), twin.scale(data, row, first) * x_scale, acc);
    if (twin.has_min()) {
      acc = std::fma(twin.min(data, row, first), static_cast<float>(sum) * x_scale, acc);
    }
  }
  return acc;
}

struct Case {
  std::int64_t rows, cols;
};

void check_scheme(const PackedScheme& scheme, const Case& c, std::uint64_t seed,
                  const std::vector<std::int64_t>& row_counts) {
  const PackedTwin twin(scheme, c.rows, c.cols);
  const auto bytes = twin.random(seed);
  Aligned packed(bytes.size());
  std::memcpy(packed.data, bytes.data(), bytes.size());
  const PackedMatrix w{scheme, c.rows, c.cols, packed.data};
  const std::int64_t max_rows = row_counts.back();
  const auto x = random_floats(seed + 1, max_rows * c.cols);
  const auto bias = random_floats(seed + 2, c.rows);
  const bool with_bias = seed % 2 == 0;
  const std::int64_t activation_group = packed_activation_group(scheme, c.cols);

  const Rows all = quantize(packed_table(IsaLevel::kScalar), scheme, x, max_rows, c.cols);
  check_quantized(all, x, max_rows, c.cols, activation_group, packed_group(scheme, c.cols));
  std::vector<float> expected;
  for (std::int64_t m = 0; m < max_rows; ++m) {
    for (std::int64_t n = 0; n < c.rows; ++n) {
      const float sum = chain(twin, packed.data, all.view, activation_group, n, m);
      expected.push_back(with_bias ? sum + bias[static_cast<std::size_t>(n)] : sum);
    }
  }
  for (const IsaLevel level : test::machine_levels()) {
    const PackedTable& table = packed_table(level);
    Rows rows = quantize(table, scheme, x, max_rows, c.cols);
    ASSERT_EQ(rows.codes, all.codes) << isa_level_name(level);
    ASSERT_TRUE(same_bits(rows.scales, all.scales)) << isa_level_name(level);
    ASSERT_EQ(rows.sums, all.sums) << isa_level_name(level);
    ASSERT_TRUE(same_bits(rows.scaled_sums, all.scaled_sums)) << isa_level_name(level);
    for (const std::int64_t num_rows : row_counts) {
      rows.view.num_rows = num_rows;
      const auto y = multiply(table, w, rows.view, with_bias ? bias.data() : nullptr);
      const std::vector<float> wanted(expected.begin(), expected.begin() + num_rows * c.rows);
      ASSERT_TRUE(same_bits(y, wanted))
          << isa_level_name(level) << ", M " << num_rows << ", N " << c.rows << ", K " << c.cols
          << ", codes " << static_cast<int>(scheme.codes) << ", scales "
          << static_cast<int>(scheme.scales) << ", group " << scheme.group;
    }
  }
}

// Odd sizes: one row, short last blocks, short last groups.
Case case_of(const PackedScheme& scheme, std::uint64_t seed) {
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
    check_scheme(scheme, case_of(scheme, seed), seed, {1, 2, 7, 19});
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(PackedKernel, EveryRowCountGivesTheSameBits) {
  std::vector<std::int64_t> counts;
  for (std::int64_t m = 1; m <= 41; ++m) {
    counts.push_back(m);
  }
  check_scheme({CodeKind::kU4, ScaleKind::kF16, 64}, {33, 160}, 501, counts);
  check_scheme({CodeKind::kU8, ScaleKind::kF32, 0}, {40, 300}, 502, counts);
  check_scheme({CodeKind::kU6, ScaleKind::kSuperI8, 16}, {33, 256}, 503, counts);
  check_scheme({CodeKind::kU4, ScaleKind::kSuperU8Min, 32}, {32, 256}, 504, counts);
}

// More rows than one pass over a decoded block takes.
TEST(PackedKernel, PassesOverManyRowsGiveTheSameBits) {
  const PackedScheme scheme{CodeKind::kU4, ScaleKind::kF16, 128};
  const Case c{32, 9000};
  check_scheme(scheme, c, 600, {1, 130});
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
    for (const float y : multiply(packed_table(level), w, rows.view, nullptr)) {
      ASSERT_EQ(y, 127.0f * 127.0f * 65536.0f) << isa_level_name(level);
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
