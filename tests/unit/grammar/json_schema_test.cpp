// JSON objects and JSON Schema: accepted and rejected texts, and the texts of errors.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/compile.h"
#include "grammar_text.h"

namespace trine::grammar {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchema, Languages) {
  const std::vector<LanguageCase> cases = {
      {R"({"type":"integer","minimum":-12,"maximum":105})",
       {"-12", "-1", "0", "9", "10", "105"},
       {"-13", "106", "-0", "01", "1.0"}},
      {R"({"type":"integer","minimum":98})", {"98", "100", "12345"}, {"97", "9", "-98"}},
      {R"({"type":"number"})", {"0", "-1.5e+10", "12"}, {"01", ".5", "1.", "+1"}},
      {R"({"enum":["a",1,null,{"k":[true]}]})",
       {"\"a\"", "1", "null", "{\"k\": [true]}"},
       {"2", "\"b\""}},
      {R"({"const":"q\"\n"})", {R"("q\"\n")"}, {R"("q")"}},
      {R"({"type":["string","null"],"maxLength":2})",
       {"\"\"", "\"é😀\"", R"("\ud83d\ude00x")", "null"},
       {"\"abc\"", R"("\ud83d")", R"("\ude00")"}},
      {R"({"type":"string","pattern":"^a.b$"})",
       {"\"axb\"", R"("a\"b")", "\"aéb\""},
       {"\"a\"b\"", "\"ab\"", "\"xaxb\""}},
      {R"({"type":"string","pattern":"b"})", {"\"b\"", "\"abc\""}, {"\"ac\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-28\""},
       {"\"2024-02-30\"", "\"2024-13-01\""}},
      {R"({"type":"string","format":"ipv4"})",
       {"\"192.168.0.255\""},
       {"\"256.1.1.1\"", "\"1.2.3\""}},
      {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})",
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]", "[1]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false})",
       {"[]", "[1]", "[1,2]"},
       {"[2]", "[1,2,3]"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"const":1},"c":{"const":2}},"required":["b"]})",
       {R"({"b":1})", R"({"a":null,"b":1})", R"({"a": null, "b": 1, "c": 2})"},
       {"{}", R"({"a":null})", R"({"c":2,"b":1})", R"({"b":1,})"}},
      {R"({"type":"object","properties":{"ab":{"const":1}},"additionalProperties":{"const":2}})",
       {"{}", R"({"ab":1,"x":2})", R"({"a":2,"abc":2})", R"({"":2})"},
       {R"({"ab":2})", R"({"x":1})"}},
      {R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["n"]}}})",
       {R"({"n":null})", R"({"n":{"n":{"n":null}}})"},
       {R"({"n":1})", R"({"n":{}})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":2}}}]})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"b":2})"}},
      {"true", {"1", "[{}]", "\"x\""}, {"", "tru"}},
  };
  expect_languages(compile_json_schema, cases);
}

TEST(JsonSchema, ErrorsNameThePointer) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"object","properties":{"a/b":{"not":{}}}})",
       "schema #/properties/a~1b/not: keyword \"not\" is not supported"},
      {R"({"type":"number","minimum":1})",
       "schema #/minimum: \"minimum\" is supported for integers only"},
      {R"({"$ref":"#/$defs/x"})", "schema #/$ref: \"#/$defs/x\" points at nothing"},
      {R"({"$ref":"http://x/y"})", "only references inside this schema"},
      {R"({"$ref":"#"})", "rule \"#\""},
      {R"({"type":"string","maxLength":20000})", "schema #/maxLength: 20000, at most 10000"},
      {R"({"type":"string","format":"iri"})", "schema #/format: format \"iri\" is not supported"},
      {R"x({"type":"string","pattern":"a(?!b)"})x", "schema #/pattern offset 1: look-around"},
      {R"({"type":"strin"})", "unknown type \"strin\""},
      {R"({"type":"object","required":["a"]})", "schema #/required"},
      {R"({"type":"object","properties":{"n":{"$ref":"#"}},"required":["n"]})",
       "matches no finite text"},
      {R"({"properties":{"a":true},"required":"a"})",
       "schema #/required: a list of names expected"},
      {R"({"properties":{"a":true},"required":[1]})",
       "schema #/required: a list of names expected"},
      {R"({"type":"string","nullable":1})", "schema #/nullable: true or false expected"},
      {"[", "parse error"},
  };
  for (const auto& [schema, text] : cases) {
    EXPECT_THAT(error_of(compile_json_schema(schema)), HasSubstr(text)) << schema;
  }
}

TEST(JsonObject, AnyObjectUpToItsDepth) {
  const auto made = compile_json_object();
  ASSERT_TRUE(made.has_value());
  for (const std::string text :
       {R"({})", R"({"a":1,"b":[{},[],"\u00e9\ud83d\ude00",-0.5e3,null]})"}) {
    EXPECT_TRUE(matches(*made, text)) << text;
  }
  for (const std::string text : {R"([])", R"({a:1})", R"({"a":1,})", R"({"\ud800":1})",
                                 "{\"\x01\":1}", "{\"\xff\":1}", "{} "}) {
    EXPECT_FALSE(matches(*made, text)) << text;
  }
}

}  // namespace
}  // namespace trine::grammar
