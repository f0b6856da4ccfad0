#include "base/json.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine {
namespace {

TEST(Json, KeepsKeyOrderAndValues) {
  const auto value = parse_json(R"({"z":1,"a":[true,null,-2.5],"s":"\u00e9"})");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->dump(), "{\"z\":1,\"a\":[true,null,-2.5],\"s\":\"\xc3\xa9\"}");
}

struct BadCase {
  const char* name;
  std::string text;
  const char* part;  // the error must contain this
};

class JsonRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(JsonRefuses, WithAnErrorThatSaysWhy) {
  const auto value = parse_json(GetParam().text);
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(value.error().message.find(GetParam().part), std::string::npos)
      << value.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, JsonRefuses,
    testing::Values(BadCase{"DuplicateKey", R"({"a":1,"b":{"a":1,"a":2}})", "duplicate key \"a\""},
                    BadCase{"Depth", std::string(65, '[') + std::string(65, ']'),
                            "nesting deeper than 64"},
                    BadCase{"Trailing", "{} x", "parse error"},
                    BadCase{"Nan", "[NaN]", "parse error"},
                    BadCase{"HugeNumber", "[1e999]", "number overflow"},
                    BadCase{"LoneSurrogate", R"(["\ud800"])", "surrogate"},
                    BadCase{"BadUtf8", "[\"\xff\"]", "UTF-8"}, BadCase{"Empty", "", "parse error"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Json, AcceptsTheDeepestAllowedNesting) {
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']')).has_value());
}

TEST(Json, KeysInErrorsAreEscapedAndCutBetweenCharacters) {
  const auto twice = parse_json("{\"a\\n\":1,\"a\\n\":2}");
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().message, "JSON: duplicate key \"a\\x0a\"");
  const std::string key = std::string(79, 'k') + "\xc3\xa9";
  const auto big =
      parse_json(R"({")" + key + R"(zz":99999999999999999999})", {.refuse_big_integers = true});
  ASSERT_FALSE(big.has_value());
  EXPECT_EQ(big.error().message.find("JSON: " + key + "... is 9"), 0U) << big.error().message;
}

}  // namespace
}  // namespace trine
