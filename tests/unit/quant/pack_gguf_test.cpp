#include "quant/pack_gguf.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/dequant.h"
#include "kernels/dispatch.h"
#include "support/numeric.h"
#include "support/packed_twin.h"

namespace trine {
namespace {

using test::PackedTwin;
using test::random_int;

const std::vector<DType> kPackable = {DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,
                                      DType::kQ8_0, DType::kIQ4NL, DType::kMXFP4, DType::kQ2K,
                                      DType::kQ3K,  DType::kQ4K,   DType::kQ5K,   DType::kQ6K,
                                      DType::kIQ4XS};

// Random blocks; where an f16 scale could be infinite or NaN its exponent is cut.
std::vector<std::byte> random_rows(DType type, std::int64_t rows, std::int64_t cols,
                                   std::uint64_t seed) {
  const DTypeInfo& info = dtype_info(type);
  std::vector<std::byte> out(static_cast<std::size_t>(rows * *dtype_row_bytes(type, cols)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(random_int(seed, i, 0, 255));
  }
  std::vector<std::int64_t> halves;
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      halves = {0, 2};
      break;
    case DType::kQ2K:
      halves = {80, 82};
      break;
    case DType::kQ3K:
      halves = {108};
      break;
    case DType::kQ6K:
      halves = {208};
      break;
    case DType::kMXFP4:
      break;
    default:
      halves = {0};
  }
  const auto block = static_cast<std::size_t>(info.block_bytes);
  for (std::size_t at = 0; at < out.size(); at += block) {
    for (const std::int64_t half : halves) {
      out[at + static_cast<std::size_t>(half) + 1] &= std::byte{0xBF};
    }
    if (type == DType::kMXFP4) {
      out[at] = static_cast<std::byte>(random_int(seed + 1, at, 100, 140));
    }
  }
  return out;
}

// Each packed weight is the weight of the file, to the bit.
TEST(PackGguf, KeepsEveryWeight) {
  std::uint64_t seed = 40;
  for (const DType type : kPackable) {
    for (const std::int64_t rows : {1, 31, 32, 65}) {
      for (const std::int64_t blocks : {1, 3}) {
        ++seed;
        const std::int64_t cols = blocks * dtype_info(type).block_elems;
        const auto data = random_rows(type, rows, cols, seed);
        const auto scheme = packed_scheme_of(type);
        ASSERT_TRUE(scheme.has_value());
        const PackedTwin twin(*scheme, rows, cols);
        std::vector<std::uint8_t> packed(static_cast<std::size_t>(twin.bytes()), 0xA5);
        const std::int64_t row_bytes = *dtype_row_bytes(type, cols);
        for (std::int64_t b = 0; b < twin.num_blocks(); ++b) {
          pack_block(type, data.data(), row_bytes, rows, cols, b,
                     packed.data() + b * kernels::packed_block_bytes(*scheme, cols));
        }
        std::vector<float> wanted(static_cast<std::size_t>(cols));
        for (std::int64_t row = 0; row < rows; ++row) {
          kernels::dequant_table(IsaLevel::kScalar)
              .row[static_cast<std::size_t>(type)](data.data() + row * row_bytes, wanted.data(),
                                                   cols);
          for (std::int64_t col = 0; col < cols; ++col) {
            const auto code =
                static_cast<float>(twin.code(packed.data(), row, col) - twin.zero_point());
            const float product = twin.scale(packed.data(), row, col) * code;
            const float value =
                twin.has_min() ? product + twin.min(packed.data(), row, col) : product;
            ASSERT_EQ(value, wanted[static_cast<std::size_t>(col)])
                << dtype_info(type).name << " row " << row << " col " << col;
          }
        }
      }
    }
  }
}

TEST(PackGguf, OtherTypesStayInTheirFile) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kNVFP4, DType::kTQ1_0,
                           DType::kTQ2_0, DType::kQ1_0, DType::kQ2_0, DType::kQ8_1}) {
    EXPECT_FALSE(packed_scheme_of(type).has_value()) << dtype_info(type).name;
  }
}

}  // namespace
}  // namespace trine
