// Languages against other implementations: jsonschema and Python's re
// (tests/golden/grammar/PROVENANCE.md).
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/compile.h"
#include "grammar_text.h"

namespace trine::grammar {
namespace {

using Json = nlohmann::ordered_json;

Json cases(const char* kind) {
  std::ifstream file(std::string(TRINE_SOURCE_DIR) + "/tests/golden/grammar/cases.json");
  EXPECT_TRUE(file.good());
  return Json::parse(file)[kind];
}

void expect_golden(const Json& golden, const char* source,
                   Result<AutomatonPtr> (*compile_one)(std::string_view)) {
  std::vector<LanguageCase> out;
  for (const Json& one : golden) {
    out.push_back({.source = one[source].get<std::string>(),
                   .yes = one["accepted"].get<std::vector<std::string>>(),
                   .no = one["rejected"].get<std::vector<std::string>>()});
  }
  expect_languages(compile_one, out);
}

TEST(GrammarGolden, SchemasAsJsonschemaReadsThem) {
  const Json golden = cases("schemas");
  ASSERT_GE(golden.size(), 20u);
  expect_golden(golden, "schema", compile_json_schema);
}

TEST(GrammarGolden, RegularExpressionsAsPythonReadsThem) {
  const Json golden = cases("regexes");
  ASSERT_GE(golden.size(), 25u);
  expect_golden(golden, "pattern", compile_regex);
}

}  // namespace
}  // namespace trine::grammar
