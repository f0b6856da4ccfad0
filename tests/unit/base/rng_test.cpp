#include "base/rng.h"

#include <gtest/gtest.h>

namespace trine {
namespace {

// Known answers of Philox4x32-10 from the authors' Random123 distribution (kat_vectors).
TEST(Philox, MatchesPublishedVectors) {
  const std::array<std::uint32_t, 4> zero{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox(0, 0, RngPurpose::kSample, 0), zero);
  const std::array<std::uint32_t, 4> ones{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox(~std::uint64_t{0}, ~std::uint64_t{0}, static_cast<RngPurpose>(0xffffffffu),
                   0xffffffffu),
            ones);
}

TEST(Philox, UniformIsStrictlyInsideTheUnitInterval) {
  EXPECT_GT(uniform_open({0, 0, 0, 0}, 0), 0.0);
  EXPECT_LT(uniform_open({~0u, ~0u, ~0u, ~0u}, 1), 1.0);
}

}  // namespace
}  // namespace trine
