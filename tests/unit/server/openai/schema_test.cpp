#include "server/openai/schema.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "unit/server/openai/parse_any.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// A value as text, because not every one of them is JSON that a library would write.
struct Probe {
  std::string text;
  std::uint8_t kinds = 0;  // 0: no field takes it, whatever its kind
  double number = 0.0;     // or length
};

std::vector<Probe> probes() {
  const std::string deep(64, '[');
  return {{"-1", kInt | kNumber, -1.0},
          {"0", kInt | kNumber, 0.0},
          {"2147483648", kInt | kNumber, 2147483648.0},
          {"9223372036854775808", 0},
          {"-9223372036854775809", 0},
          {"1e400", 0},
          {"NaN", 0},
          {"0.5", kNumber, 0.5},
          {"\"\"", kString, 0.0},
          {"[]", kArray, 0.0},
          {"{}", kObject, 0.0},
          {"true", kBool, 0.0},
          {"\"\\ud800\"", 0},
          {deep + std::string(64, ']'), 0},
          {"[[[[0]]]]", kArray, 1.0},
          {"[null]", kArray, 1.0},
          {"{\"a\": null}", kObject, 1.0}};
}

// The body whose object of the field's shape has this value under the field's name.
std::string body_with(const Place& place, std::string_view name, std::string_view value) {
  Json object = place.smallest;
  object.erase(std::string(name));
  constexpr std::string_view kMark = "<here>";
  object[std::string(name)] = kMark;
  Json body = place.body;
  body[place.hole] = object;
  std::string text = body.dump();
  const std::string quoted = "\"" + std::string(kMark) + "\"";
  text.replace(text.find(quoted), quoted.size(), value);
  return text;
}

bool is_neutral(const Field& field, const std::string& value) {
  std::stringstream all{std::string(field.neutral)};
  std::string one;
  while (std::getline(all, one, ';')) {
    if (Json::parse(one) == Json::parse(value, nullptr, false)) {
      return true;
    }
  }
  return false;
}

// What the table alone says must be refused.
bool must_fail(const Field& field, const Probe& probe) {
  if (probe.kinds == 0) {
    return true;
  }
  if (field.state == FieldState::kRefused) {
    return !is_neutral(field, probe.text);
  }
  if ((field.kinds & probe.kinds) == 0 || !field.choices.empty()) {
    return true;
  }
  return field.min && probe.kinds != kBool &&
         (probe.number < *field.min || probe.number > field.max.value_or(1e300) ||
          (field.above_min && probe.number == *field.min));
}

TEST(Schema, EveryFieldSurvivesHostileValues) {
  int refused = 0;
  int passed = 0;
  for (const Field& field : field_table()) {
    const Place place = place_of(field.shape);
    const Field& canonical =
        field.alias_of.empty() ? field : *find_field(field.shape, field.alias_of);
    Place without = place;
    without.smallest.erase(std::string(canonical.name));
    for (const Probe& probe : probes()) {
      const std::string body = body_with(without, field.name, probe.text);
      const ApiStatus status = parse_any(place.endpoint, body);
      if (must_fail(canonical, probe)) {
        EXPECT_FALSE(status.has_value()) << body;
      }
      if (status.has_value()) {
        ++passed;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error().status, 400) << body;
      EXPECT_EQ(status.error().type, "invalid_request_error") << body;
      EXPECT_FALSE(status.error().message.empty()) << body;
      // A value that is no JSON for us has no field yet; everything else is named.
      if (probe.kinds != 0) {
        ASSERT_TRUE(status.error().param.has_value()) << body;
        EXPECT_THAT(status.error().message, HasSubstr(*status.error().param)) << body;
      }
      if (probe.kinds != 0 && must_fail(canonical, probe)) {
        EXPECT_THAT(*status.error().param, HasSubstr(std::string(field.name))) << body;
      }
    }
  }
  EXPECT_GT(refused, 4000);
  EXPECT_GT(passed, 300);
}

// The field is named, and what it may be, as for every other wrong value.
TEST(Schema, NumbersThatCannotBeReadNameTheirField) {
  for (const Field& field : field_table()) {
    Place place = place_of(field.shape);
    place.smallest.erase(field.alias_of.empty() ? field.name : field.alias_of);
    const Field& canonical =
        field.alias_of.empty() ? field : *find_field(field.shape, field.alias_of);
    for (const char* text : {"9223372036854775808", "-9223372036854775809", "184467440737095516150",
                             "1e400", "-1e400", "[1e999]", "{\"a\": [18446744073709551616]}"}) {
      const std::string body = body_with(place, field.name, text);
      const ApiStatus status = parse_any(place.endpoint, body);
      ASSERT_FALSE(status.has_value()) << body;
      const ApiError& error = status.error();
      EXPECT_EQ(error.status, 400) << body;
      ASSERT_TRUE(error.param.has_value()) << body << error.message;
      EXPECT_THAT(*error.param, HasSubstr(std::string(field.name))) << body;
      EXPECT_TRUE(error.message.starts_with(*error.param)) << error.message;
      EXPECT_FALSE(error.code.has_value()) << error.message;
      const bool whole = field.shape == place.endpoint && *text != '[' && *text != '{';
      if (whole && canonical.state == FieldState::kHonoured &&
          (canonical.kinds & (kInt | kNumber)) != 0) {
        EXPECT_EQ(error.message,
                  fmt::format("{} is {}, must be in {}", field.name, text, range_text(canonical)));
      }
    }
  }
  const auto unknown = parse_any(Shape::kCompletions, R"({"prompt": "a", "sead": 1e400})");
  EXPECT_EQ(unknown.error().message, "sead is not a field of /v1/completions; did you mean seed?");
  // A text that is no JSON has no field, and neither has a number alone.
  for (const char* body : {"1e400", "9223372036854775808", "[1e400"}) {
    const auto none = parse_any(Shape::kCompletions, body);
    EXPECT_EQ(none.error().status, 400);
  }
}

TEST(Schema, NullIsAsGoodAsNothing) {
  for (const Field& field : field_table()) {
    const Place place = place_of(field.shape);
    const bool needed = place.smallest.contains(field.name);
    const ApiStatus status = parse_any(place.endpoint, body_with(place, field.name, "null"));
    EXPECT_EQ(status.has_value(), !needed) << shape_name(field.shape) << " " << field.name << " "
                                           << (status.has_value() ? "" : status.error().message);
  }
}

TEST(Schema, RefusedFieldsSayWhy) {
  for (const Field& field : field_table()) {
    if (field.state != FieldState::kRefused) {
      continue;
    }
    const Place place = place_of(field.shape);
    const ApiStatus status =
        parse_any(place.endpoint, body_with(place, field.name, "\"asks for something\""));
    ASSERT_FALSE(status.has_value()) << field.name;
    EXPECT_THAT(status.error().message, HasSubstr(std::string(field.note)));
    EXPECT_THAT(status.error().message, HasSubstr(std::string(field.name)));
    std::stringstream all{std::string(field.neutral)};
    std::string one;
    while (std::getline(all, one, ';')) {
      const ApiStatus neutral = parse_any(place.endpoint, body_with(place, field.name, one));
      EXPECT_TRUE(neutral.has_value()) << field.name << " " << one;
    }
  }
}

TEST(Schema, IgnoredFieldsGiveAWarning) {
  for (const Field& field : field_table()) {
    if (field.state != FieldState::kIgnored) {
      continue;
    }
    Json object = place_of(field.shape).smallest;
    object[std::string(field.name)] = (field.kinds & kString) != 0   ? Json("x")
                                      : (field.kinds & kArray) != 0  ? Json::array()
                                      : (field.kinds & kObject) != 0 ? Json::object()
                                                                     : Json(1);
    std::vector<std::string> warnings;
    ASSERT_TRUE(check_object(field.shape, "here", object, warnings).has_value()) << field.name;
    ASSERT_EQ(warnings.size(), 1u) << field.name;
    EXPECT_THAT(warnings[0], HasSubstr("here." + std::string(field.name)));
    EXPECT_FALSE(object.contains(field.name));
  }
}

TEST(Schema, UnknownFieldsAreRefusedWithTheNearestName) {
  const auto status = parse_any(
      Shape::kChat, R"({"messages": [{"role": "user", "content": "a"}], "temprature": 1})");
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message,
            "temprature is not a field of /v1/chat/completions; did you mean temperature?");
  EXPECT_EQ(status.error().param, "temprature");
  for (int i = 0; i < kNumShapes; ++i) {
    const Place place = place_of(static_cast<Shape>(i));
    const auto other = parse_any(place.endpoint, body_with(place, "qqqqqq\x01", "1"));
    ASSERT_FALSE(other.has_value());
    EXPECT_THAT(other.error().message, HasSubstr("qqqqqq\\x01 is not a field of"));
  }
}

TEST(Schema, TheTableIsConsistent) {
  std::set<std::pair<Shape, std::string_view>> seen;
  for (const Field& field : field_table()) {
    EXPECT_TRUE(seen.emplace(field.shape, field.name).second) << field.name << " is there twice";
    if (!field.alias_of.empty()) {
      const Field* of = find_field(field.shape, field.alias_of);
      ASSERT_NE(of, nullptr) << field.name;
      EXPECT_TRUE(of->alias_of.empty()) << field.name;
    }
    EXPECT_TRUE(field.state == FieldState::kRefused || field.neutral.empty()) << field.name;
  }
  // The smallest bodies are taken as they are.
  for (int i = 0; i < kNumShapes; ++i) {
    const Place place = place_of(static_cast<Shape>(i));
    Json body = place.body;
    body[place.hole] = place.smallest;
    EXPECT_TRUE(parse_any(place.endpoint, body.dump()).has_value()) << body.dump();
  }
}

TEST(Schema, TheDocumentationPageIsCurrent) {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/docs/api.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), api_markdown())
      << "write it anew: build/release/trine api-page > docs/api.md";
}

}  // namespace
}  // namespace trine::server::openai
