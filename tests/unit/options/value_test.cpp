#include "options/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::options {
namespace {

using testing::HasSubstr;

Option row(Type type) {
  Option option;
  option.name = "x";
  option.type = type;
  return option;
}

TEST(ParseSize, SmallLettersAreThousandsAndCapitalsPowersOfTwo) {
  EXPECT_EQ(parse_size("32k").value(), 32000);
  EXPECT_EQ(parse_size("32K").value(), 32768);
  EXPECT_EQ(parse_size("32KiB").value(), 32768);
  EXPECT_EQ(parse_size("2m").value(), 2000000);
  EXPECT_EQ(parse_size("2M").value(), 2097152);
  EXPECT_EQ(parse_size("1g").value(), 1000000000);
  EXPECT_EQ(parse_size("1GiB").value(), 1073741824);
  EXPECT_EQ(parse_size("0").value(), 0);
  EXPECT_EQ(parse_size("9223372036854775807").value(), INT64_MAX);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"", "k", "-1", "+1", " 1", "1 ", "1.5k", "1kb", "1kK", "0x10", "1e3",
                           "9223372036854775808", "9007199254740993G"}) {
    EXPECT_FALSE(parse_size(text).has_value()) << text;
  }
}

TEST(ParseValue, ChecksTypeAndNamesThePlace) {
  const auto bad = parse_value(row(Type::kInteger), "12x", "--x");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bad.error().message, HasSubstr("--x"));
  EXPECT_THAT(bad.error().message, HasSubstr("'12x'"));
  EXPECT_FALSE(parse_value(row(Type::kNumber), "", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kNumber), "nan", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kNumber), "inf", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kNumber), "1e999", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kUnsigned), "-1", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kUnsigned), "18446744073709551616", "--x").has_value());
  EXPECT_FALSE(parse_value(row(Type::kBool), "maybe", "--x").has_value());
  EXPECT_EQ(std::get<std::uint64_t>(
                parse_value(row(Type::kUnsigned), "18446744073709551615", "--x").value()),
            UINT64_MAX);
  EXPECT_EQ(std::get<double>(parse_value(row(Type::kNumber), "0.25", "--x").value()), 0.25);
}

TEST(ParseValue, ChecksRangesAtTheirBorders) {
  Option option = row(Type::kNumber);
  option.min = 0;
  option.max = 1;
  EXPECT_TRUE(parse_value(option, "0", "x").has_value());
  EXPECT_TRUE(parse_value(option, "1", "x").has_value());
  EXPECT_FALSE(parse_value(option, "-0.001", "x").has_value());
  EXPECT_FALSE(parse_value(option, "1.001", "x").has_value());
  option.min_exclusive = true;
  const auto zero = parse_value(option, "0", "x");
  ASSERT_FALSE(zero.has_value());
  EXPECT_THAT(zero.error().message, HasSubstr("above 0 to 1"));
}

TEST(ParseValue, ChoicesMatchWholeWords) {
  Option option = row(Type::kChoice);
  option.choices = "f16|bf16|f32";
  EXPECT_TRUE(parse_value(option, "bf16", "x").has_value());
  EXPECT_TRUE(parse_value(option, "f32", "x").has_value());
  for (const char* text : {"", "f", "f1", "16", "f16|bf16", "F16"}) {
    EXPECT_FALSE(parse_value(option, text, "x").has_value()) << text;
  }
}

TEST(ParseValue, LongValuesAreShortenedInMessages) {
  const auto bad = parse_value(row(Type::kInteger), std::string(100000, 'z'), "--x");
  ASSERT_FALSE(bad.has_value());
  EXPECT_LT(bad.error().message.size(), 300u);
  EXPECT_THAT(bad.error().message, HasSubstr("100000 bytes"));
}

}  // namespace
}  // namespace trine::options
