// packed.h's contract from its text, and a check of every level against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/dispatch.h"
#include "kernels/tuning.h"
#include "support/numeric.h"
#include "support/packed_twin.h"

namespace trine::test {

using kernels::kPackedScratchBytes;
using kernels::packed_activation_group;
using kernels::packed_group;
using kernels::packed_padded_cols;
using kernels::packed_table;
using kernels::PackedMatrix;
using kernels::PackedRows;
using kernels::PackedScheme;
using kernels::PackedTable;

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

inline Rows quantize(const PackedTable& table, const PackedScheme& scheme,
                     const std::vector<float>& x, std::int64_t num_rows, std::int64_t cols) {
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

// Which way the products are formed: from registers for up to `direct_rows` rows.
inline std::vector<float> multiply(const PackedTable& table, const PackedMatrix& w,
                                   const PackedRows& x, const float* bias,
                                   std::int64_t direct_rows) {
  Aligned scratch(static_cast<std::size_t>(kPackedScratchBytes));
  std::vector<float> y(static_cast<std::size_t>(x.num_rows * w.rows), -77.0f);
  const std::int64_t blocks = (w.rows + 31) / 32;
  // A pass as small as there is, then one as on a real machine.
  const kernels::Tuning small{64, 64, direct_rows, 0};
  const kernels::Tuning usual{6144, 8192, direct_rows, std::int64_t{512} * 1024};
  table.multiply(&w, &x, bias, y.data(), w.rows, 0, blocks / 2, scratch.data, &small);
  table.multiply(&w, &x, bias, y.data(), w.rows, blocks / 2, blocks, scratch.data, &usual);
  return y;
}

// packed.h's rule for activations, from its text.
inline bool follows_activation_rule(const Rows& rows, const std::vector<float>& x,
                                    std::int64_t num_rows, std::int64_t cols, std::int64_t group,
                                    std::int64_t sum_group) {
  bool good = true;
  for (std::int64_t m = 0; m < num_rows; ++m) {
    for (std::int64_t col = 0; col < packed_padded_cols(cols); ++col) {
      const std::int64_t first = col / group * group;
      float absmax = 0;
      for (std::int64_t k = first; k < std::min(first + group, cols); ++k) {
        absmax = std::max(absmax, std::fabs(x[static_cast<std::size_t>(m * cols + k)]));
      }
      const float scale = absmax / 127.0f;
      good = good && rows.view.scales[m * rows.view.group_stride + col / group] == scale;
      const float wanted =
          col < cols
              ? std::nearbyintf(x[static_cast<std::size_t>(m * cols + col)] * (127.0f / absmax))
              : 0.0f;
      good = good && rows.view.codes[m * rows.view.code_stride + col] == static_cast<int>(wanted);
    }
    for (std::int64_t g = 0; g * sum_group < packed_padded_cols(cols); ++g) {
      std::int32_t sum = 0;
      for (std::int64_t k = g * sum_group;
           k < std::min((g + 1) * sum_group, packed_padded_cols(cols)); ++k) {
        sum += rows.view.codes[m * rows.view.code_stride + k];
      }
      good = good && rows.view.sums[m * rows.view.sum_stride + g] == sum;
      good = good && rows.view.scaled_sums[m * rows.view.sum_stride + g] ==
                         static_cast<float>(sum) *
                             rows.view.scales[m * rows.view.group_stride + g * sum_group / group];
    }
  }
  return good;
}

// packed.h's chain of one element, from its text.
inline float chain(const PackedTwin& twin, const std::uint8_t* data, const PackedRows& x,
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

struct PackedShape {
  std::int64_t rows, cols;
};

// Empty, or the first way in which some level breaks packed.h for random weights and activations of
// this scheme and shape, and these numbers of rows (ascending).
inline std::string scheme_fault(const PackedScheme& scheme, const PackedShape& c,
                                std::uint64_t seed, const std::vector<std::int64_t>& row_counts) {
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
  if (!follows_activation_rule(all, x, max_rows, c.cols, activation_group,
                               packed_group(scheme, c.cols))) {
    return "the scalar level breaks the rule for activations";
  }
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
    if (rows.codes != all.codes || !same_bits(rows.scales, all.scales) || rows.sums != all.sums ||
        !same_bits(rows.scaled_sums, all.scaled_sums)) {
      return fmt::format("{}: activations differ from the scalar level", isa_level_name(level));
    }
    for (const std::int64_t num_rows : row_counts) {
      rows.view.num_rows = num_rows;
      const std::vector<float> wanted(expected.begin(), expected.begin() + num_rows * c.rows);
      for (const std::int64_t direct_rows : {0, 1000}) {
        const auto y =
            multiply(table, w, rows.view, with_bias ? bias.data() : nullptr, direct_rows);
        if (!same_bits(y, wanted)) {
          return fmt::format(
              "{}: M {} ({}), N {}, K {}, codes {}, scales {}, group {}", isa_level_name(level),
              num_rows, direct_rows > 0 ? "direct" : "decoded", c.rows, c.cols,
              static_cast<int>(scheme.codes), static_cast<int>(scheme.scales), scheme.group);
        }
      }
    }
  }
  return {};
}

}  // namespace trine::test
