#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/dispatch.h"
#include "support/numeric.h"

namespace trine::kernels {
namespace {

TEST(ConvertKernel, EveryHalfPatternWidensAlike) {
  std::vector<std::uint16_t> in(0x10000);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<std::uint16_t>(i);
  }
  for (const IsaLevel level : test::machine_levels()) {
    std::vector<float> f16(in.size());
    std::vector<float> bf16(in.size());
    convert_table(level).f16_to_f32(in.data(), f16.data(), static_cast<std::int64_t>(in.size()));
    convert_table(level).bf16_to_f32(in.data(), bf16.data(), static_cast<std::int64_t>(in.size()));
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(f16[i]),
                std::bit_cast<std::uint32_t>(f16_to_f32(in[i])))
          << isa_level_name(level) << " " << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(bf16[i]),
                std::bit_cast<std::uint32_t>(bf16_to_f32(in[i])))
          << isa_level_name(level) << " " << i;
    }
  }
}

TEST(ConvertKernel, NarrowingRoundsAlike) {
  std::vector<float> in;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu;
       bits += 0x3a7fu) {  // all signs, exponents, NaNs
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (std::uint32_t bits = 0x38000000u; bits < 0x38a00000u; bits += 0x800u) {  // ties near 2^-14
    in.push_back(std::bit_cast<float>(bits));
  }
  for (const IsaLevel level : test::machine_levels()) {
    std::vector<std::uint16_t> f16(in.size());
    std::vector<std::uint16_t> bf16(in.size());
    convert_table(level).f32_to_f16(in.data(), f16.data(), static_cast<std::int64_t>(in.size()));
    convert_table(level).f32_to_bf16(in.data(), bf16.data(), static_cast<std::int64_t>(in.size()));
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(f16[i], f32_to_f16(in[i])) << isa_level_name(level) << " " << in[i];
      ASSERT_EQ(bf16[i], f32_to_bf16(in[i])) << isa_level_name(level) << " " << in[i];
    }
  }
}

TEST(ConvertKernel, ShortAndUnalignedRowsStayInBounds) {
  for (const IsaLevel level : test::machine_levels()) {
    for (std::int64_t n = 0; n < 40; ++n) {
      const auto values = test::random_floats(5, n);
      const auto bytes = static_cast<std::size_t>(2 * n);
      std::vector<std::byte> packed(bytes + 1,
                                    std::byte{0x55});  // odd address: no alignment assumed
      convert_table(level).f32_to_f16(values.data(), packed.data() + 1, n);
      EXPECT_EQ(packed[0], std::byte{0x55});
      std::vector<float> back(values.size());
      convert_table(level).f16_to_f32(packed.data() + 1, back.data(), n);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(back[i], f16_to_f32(f32_to_f16(values[i])));
      }
    }
  }
}

}  // namespace
}  // namespace trine::kernels
