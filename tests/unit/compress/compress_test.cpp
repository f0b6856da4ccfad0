#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "compress/block_result.h"
#include "compress/checkpoint_layout.h"
#include "compress/options.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

TEST(Options, PatternsMatchWholeNames) {
  EXPECT_TRUE(pattern_matches("*", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(pattern_matches("*.mlp.*_proj", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(pattern_matches("model.layers.?.mlp*", "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(pattern_matches("model.layers.?.mlp*", "model.layers.10.mlp.up_proj"));
  EXPECT_FALSE(pattern_matches("up_proj", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(pattern_matches("**b", "aab"));
  EXPECT_FALSE(pattern_matches("", "a"));
  EXPECT_TRUE(pattern_matches("", ""));
}

TEST(Float8, EveryNumberIsItsOwnNearestAndTiesGoToEven) {
  for (unsigned b = 0; b < 256; ++b) {
    const auto bits = static_cast<std::uint8_t>(b);
    if ((b & 0x7fU) != 0x7fU) {
      EXPECT_EQ(f32_to_f8_e4m3(f8_e4m3_to_f32(bits)), bits);
    }
  }
  EXPECT_EQ(f8_e4m3_to_f32(0x7e), 448.0F);
  EXPECT_EQ(f8_e4m3_to_f32(0x01), 0x1p-9F);
  EXPECT_EQ(f8_e4m3_to_f32(0x08), 0x1p-6F);
  for (unsigned b = 0; b < 0x7e; ++b) {
    const float low = f8_e4m3_to_f32(static_cast<std::uint8_t>(b));
    const float high = f8_e4m3_to_f32(static_cast<std::uint8_t>(b + 1));
    EXPECT_EQ(f32_to_f8_e4m3((low + high) / 2), b % 2 == 0 ? b : b + 1);
  }
  EXPECT_EQ(f32_to_f8_e4m3(1e9F), 0x7e);
}

TEST(BlockResult, BitsArePackedWithoutGaps) {
  std::vector<std::uint8_t> codes;
  for (unsigned i = 0; i < 101; ++i) {
    codes.push_back(static_cast<std::uint8_t>(i * 37U % 251U));
  }
  for (const int bits : {2, 3, 4, 8}) {
    std::vector<std::uint8_t> small = codes;
    for (std::uint8_t& code : small) {
      code = static_cast<std::uint8_t>(code & ((1U << bits) - 1U));
    }
    const std::vector<std::uint8_t> packed = pack_bits(small, bits);
    EXPECT_EQ(packed.size(), (101U * static_cast<unsigned>(bits) + 7) / 8);
    EXPECT_EQ(unpack_bits(std::as_bytes(std::span(packed)), bits, 101), small);
  }
}

TEST(BlockResult, WhatIsWrittenIsReadBackAndNothingElse) {
  const std::string bytes = trine::testing::read_file(std::string(TRINE_SOURCE_DIR) +
                                                      "/tests/fuzz/corpus/fuzz_block_result/one");
  const auto parse = [](const std::string& text, const std::string& identity) {
    return parse_block_result(std::as_bytes(std::span(text)), "block", identity);
  };
  const auto good = parse(bytes, "identity");
  ASSERT_TRUE(good.has_value()) << good.error().message;
  ASSERT_TRUE(good->linears.at(0).quantized.has_value());
  EXPECT_EQ(good->linears[0].quantized->codes[3], 0);
  EXPECT_EQ(good->linears[0].quantized->codes[2], 1);
  EXPECT_EQ(good->folded.at(0).second.size(), 2U);
  EXPECT_EQ(parse(bytes, "other").error().code, ErrorCode::kInvalidArgument);
  // Sizes that the file cannot hold are refused before anything of that size is made.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{R"(\"rows\": 2)", R"(\"rows\": 9999999)"},
                                                        {R"(\"kind\": 1)", R"(\"kind\": 9)"},
                                                        {R"(\"bits\": 4)", R"(\"bits\": 8)"},
                                                        {R"(\"kept\": true)", R"(\"kept\": 77)"}}) {
    std::string changed = bytes;
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    // The header's length follows.
    const std::uint64_t size = static_cast<unsigned char>(bytes[0]) +
                               256U * static_cast<unsigned char>(bytes[1]) + to.size() -
                               from.size();
    changed[0] = static_cast<char>(size & 0xffU);
    changed[1] = static_cast<char>(size >> 8);
    EXPECT_EQ(parse(changed, "identity").error().code, ErrorCode::kCorruptData) << to;
  }
}

TEST(CheckpointLayout, FollowsThePublishedPlacesOfCodes) {
  QuantizedWeights q({4, 32, GridKind::kZeroPoint}, 8, 64);
  q.codes[3 * 64 + 9] = 11;  // row 3, input 9
  q.zeros[3 * 2 + 1] = 5;    // row 3, group 1
  q.scales[3 * 2 + 1] = f32_to_f16(0.25F);
  const auto word = [](const LayoutTensor& t, std::size_t at) {
    std::uint32_t out = 0;
    std::memcpy(&out, t.data.data() + 4 * at, 4);
    return out;
  };
  const auto gptq = gptq_layout(q);
  EXPECT_THAT(gptq[0].shape, ::testing::ElementsAre(8, 8));
  EXPECT_EQ(word(gptq[0], 1 * 8 + 3), 11U << 4);  // word row 9 / 8, output 3, second nibble
  EXPECT_EQ(word(gptq[1], 1 * 1 + 0), 5U << 12);  // group 1, output 3
  EXPECT_EQ(gptq[2].data[2 * (1 * 8 + 3) + 1], std::byte{0x34});
  EXPECT_EQ(word(gptq[3], 40), 1U);
  const auto awq = awq_layout(q);
  EXPECT_EQ(word(awq[0], 9), 11U << 20);  // output 3 is nibble 5
  EXPECT_EQ(word(awq[1], 1), 5U << 20);
  const auto packed = compressed_layout(q, false);
  EXPECT_EQ(word(packed[0], 3 * 8 + 1), 11U << 4);
  EXPECT_EQ(word(packed[3], 0 * 2 + 1), 5U << 12);
}

}  // namespace
}  // namespace trine
