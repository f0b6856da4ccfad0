#include "base/half.h"

#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

namespace trine {
namespace {

TEST(Half, EveryPatternSurvivesARoundTrip) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<std::uint16_t>(h);
    const float value = f16_to_f32(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), bits) << h;
    }
  }
}

TEST(Half, AgreesWithTheCompilersFloat16) {
  for (std::uint32_t h = 0; h < 0x10000; h += 1) {
    const auto bits = static_cast<std::uint16_t>(h);
    const float mine = f16_to_f32(bits);
    const auto theirs = static_cast<float>(std::bit_cast<_Float16>(bits));
    if (!std::isnan(mine)) {
      EXPECT_EQ(mine, theirs);
    } else {
      EXPECT_TRUE(std::isnan(theirs));
    }
  }
  // Rounding, including ties and the subnormal and overflow borders.
  for (std::uint32_t bits = 0x33000000u; bits < 0x47900000u; bits += 0x331u) {
    const float value = std::bit_cast<float>(bits);
    EXPECT_EQ(f32_to_f16(value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)))
        << value;
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie: even below
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie: even above
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(bf16_to_f32(0xc040), -3.0f);
}

}  // namespace
}  // namespace trine
