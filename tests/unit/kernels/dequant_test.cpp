// Dequantizers against an independent implementation, and every instruction set against the scalar
// reference.
#include "kernels/dequant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/rng.h"
#include "format/safetensors.h"
#include "kernels/dispatch.h"

namespace trine {
namespace {

std::vector<DType> decodable_types() {
  std::vector<DType> out;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (dtype_info(static_cast<DType>(i)).decodes_to_f32) {
      out.push_back(static_cast<DType>(i));
    }
  }
  return out;
}

std::vector<IsaLevel> usable_levels() {
  std::vector<IsaLevel> out;
  for (const IsaLevel level : kAllIsaLevels) {
    if (missing_feature(level, cpu_features()).empty()) {
      out.push_back(level);
    }
  }
  return out;
}

// Same bits; the payload and sign of a NaN are free (kernels/dequant.h).
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint32_t stream) {
  std::vector<std::byte> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto block = philox(7, i / 16, RngPurpose::kTest, stream);
    out[i] = static_cast<std::byte>(block[i / 4 % 4] >> (8 * (i % 4)));
  }
  return out;
}

TEST(DequantTables, CoverExactlyTheDecodableTypes) {
  for (const IsaLevel level : kAllIsaLevels) {
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto& info = dtype_info(static_cast<DType>(i));
      EXPECT_EQ(kernels::dequant_table(level).row[i] != nullptr, info.decodes_to_f32)
          << isa_level_name(level) << " " << info.name;
    }
  }
}

TEST(Dequant, MatchesTheIndependentDecodersBitForBit) {
  const auto golden =
      open_safetensors(TRINE_SOURCE_DIR "/tests/golden/dequant/dequant.safetensors");
  ASSERT_TRUE(golden.has_value()) << golden.error().message;
  int checked = 0;
  for (const DType type : decodable_types()) {
    const std::string name(dtype_info(type).name);
    const TensorInfo* blocks = golden->find(name + ".blocks");
    if (blocks == nullptr) {
      continue;
    }
    const TensorInfo* values = golden->find(name + ".values");
    ASSERT_NE(values, nullptr) << name;
    const auto count = static_cast<std::size_t>(values->num_elems());
    ASSERT_EQ(dtype_row_bytes(type, values->num_elems()),
              static_cast<std::int64_t>(blocks->data.size()));
    std::vector<float> expected(count);
    std::memcpy(expected.data(), values->data.data(), values->data.size());
    for (const IsaLevel level : usable_levels()) {
      std::vector<float> got(count);
      kernels::dequant_table(level).row[static_cast<std::size_t>(type)](
          blocks->data.data(), got.data(), values->num_elems());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(same(got[i], expected[i]))
            << name << " " << isa_level_name(level) << " element " << i << ": " << got[i] << " vs "
            << expected[i];
      }
    }
    ++checked;
  }
  EXPECT_EQ(checked, 21);
}

TEST(Dequant, PlainTypesMatchTheScalarConversions) {
  const auto bytes = random_bytes(8 * 1000, 1);
  const auto element = [&]<typename T>(std::size_t i, T) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  for (const IsaLevel level : usable_levels()) {
    const auto decode = [&](DType type) {
      std::vector<float> out(1000);
      kernels::dequant_table(level).row[static_cast<std::size_t>(type)](bytes.data(), out.data(),
                                                                        1000);
      return out;
    };
    const auto f32 = decode(DType::kF32);
    const auto f16 = decode(DType::kF16);
    const auto bf16 = decode(DType::kBF16);
    const auto f64 = decode(DType::kF64);
    for (std::size_t i = 0; i < 1000; ++i) {
      ASSERT_TRUE(same(f32[i], element(i, 0.0f)));
      ASSERT_TRUE(same(f16[i], f16_to_f32(element(i, std::uint16_t{}))));
      ASSERT_TRUE(same(bf16[i], bf16_to_f32(element(i, std::uint16_t{}))));
      ASSERT_TRUE(same(f64[i], static_cast<float>(element(i, 0.0))));
    }
  }
}

class DequantLevels : public testing::TestWithParam<DType> {};

// The buffers are exact heap allocations, so the address sanitizer sees a read or write past either
// end.
TEST_P(DequantLevels, GiveTheBitsOfTheReference) {
  const DType type = GetParam();
  const DTypeInfo& info = dtype_info(type);
  const auto row = static_cast<std::size_t>(type);
  for (const int blocks : {0, 1, 2, 3, 7, 200}) {
    const std::int64_t elems = std::int64_t{blocks} * info.block_elems;
    const auto size = static_cast<std::size_t>(dtype_row_bytes(type, elems).value());
    const auto bytes = random_bytes(
        size, static_cast<std::uint32_t>(100 * row) + static_cast<std::uint32_t>(blocks));
    const auto input = std::make_unique<std::byte[]>(size);
    std::ranges::copy(bytes, input.get());
    std::vector<float> expected(static_cast<std::size_t>(elems));
    kernels::kDequantScalar.row[row](input.get(), expected.data(), elems);
    for (const IsaLevel level : usable_levels()) {
      std::vector<float> got(static_cast<std::size_t>(elems), 123.0f);
      kernels::dequant_table(level).row[row](input.get(), got.data(), elems);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(same(got[i], expected[i]))
            << isa_level_name(level) << " " << blocks << " blocks, element " << i << ": " << got[i]
            << " vs " << expected[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DequantLevels, testing::ValuesIn(decodable_types()),
                         [](const auto& param_info) {
                           return std::string(dtype_info(param_info.param).name);
                         });

TEST(Dequant, WritesNothingPastTheRow) {
  const auto bytes = random_bytes(8 * 64, 3);
  for (const DType type :
       {DType::kF16, DType::kBF16, DType::kF64, DType::kF8E4M3, DType::kF8E5M2}) {
    for (const IsaLevel level : usable_levels()) {
      for (std::int64_t elems = 0; elems < 40; ++elems) {
        std::vector<float> got(48, 123.0f);
        kernels::dequant_table(level).row[static_cast<std::size_t>(type)](bytes.data(), got.data(),
                                                                          elems);
        for (std::size_t i = static_cast<std::size_t>(elems); i < got.size(); ++i) {
          ASSERT_EQ(got[i], 123.0f) << dtype_info(type).name << " " << elems;
        }
      }
    }
  }
}

TEST(DequantDeath, RefusesTypesAndCountsThatAreBugs) {
  float out[32];
  const std::byte in[64] = {};
  EXPECT_DEATH(kernels::dequantize_row(DType::kIQ1S, in, out, 0), "row != nullptr");
  EXPECT_DEATH(kernels::dequantize_row(DType::kQ4_0, in, out, 16), "block_elems");
}

}  // namespace
}  // namespace trine
