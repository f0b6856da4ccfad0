#include "platform/cpu.h"

#include <string>

#include <gtest/gtest.h>

namespace trine {
namespace {

CpuFeatures all_features() {
  CpuFeatures f;
  f.avx2 = f.fma = f.f16c = f.os_avx = true;
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = f.os_avx512 = true;
  return f;
}

TEST(IsaLevel, TheBestCompleteLevelIsChosen) {
  EXPECT_EQ(choose_isa_level("", CpuFeatures{}).value(), IsaLevel::kScalar);
  EXPECT_EQ(choose_isa_level("", all_features()).value(), IsaLevel::kAvx512);
  CpuFeatures f = all_features();
  f.avx512dq = false;
  EXPECT_EQ(choose_isa_level("", f).value(), IsaLevel::kAvx2);
  f.fma = false;
  EXPECT_EQ(choose_isa_level("", f).value(), IsaLevel::kScalar);
}

TEST(IsaLevel, RegistersTheSystemDoesNotSaveAreNotUsed) {
  CpuFeatures f = all_features();
  f.os_avx512 = false;
  EXPECT_EQ(choose_isa_level("", f).value(), IsaLevel::kAvx2);
  f.os_avx = false;
  EXPECT_EQ(choose_isa_level("", f).value(), IsaLevel::kScalar);
}

TEST(IsaLevel, AnyLevelUpToTheBestCanBeForced) {
  EXPECT_EQ(choose_isa_level("scalar", all_features()).value(), IsaLevel::kScalar);
  EXPECT_EQ(choose_isa_level("avx2", all_features()).value(), IsaLevel::kAvx2);
  EXPECT_EQ(choose_isa_level("avx512", all_features()).value(), IsaLevel::kAvx512);
}

TEST(IsaLevel, ForcingWhatTheMachineLacksNamesLevelAndFeature) {
  CpuFeatures f = all_features();
  f.avx512bw = false;
  const auto level = choose_isa_level("avx512", f);
  ASSERT_FALSE(level.has_value());
  EXPECT_EQ(level.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(level.error().message.find("avx512"), std::string::npos);
  EXPECT_NE(level.error().message.find("AVX512BW"), std::string::npos);
  f.f16c = false;
  EXPECT_NE(choose_isa_level("avx2", f).error().message.find("F16C"), std::string::npos);
}

TEST(IsaLevel, UnknownNamesAreRefused) {
  for (const char* name : {"avx", "AVX2", "avx512 ", "neon"}) {
    const auto level = choose_isa_level(name, all_features());
    ASSERT_FALSE(level.has_value()) << name;
    EXPECT_NE(level.error().message.find(name), std::string::npos);
  }
}

TEST(IsaLevel, TheLevelInUseIsOneTheMachineHas) {
  EXPECT_EQ(missing_feature(isa_level(), cpu_features()), "");
  EXPECT_EQ(isa_level_name(IsaLevel::kAvx2), "avx2");
}

}  // namespace
}  // namespace trine
