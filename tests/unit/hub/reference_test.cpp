#include "hub/reference.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::hub {
namespace {

using testing::HasSubstr;

TEST(ReferenceTest, KindBySpelling) {
  EXPECT_EQ(reference_kind("smollm2-135m"), ReferenceKind::kName);
  EXPECT_EQ(reference_kind("org--repo@v1"), ReferenceKind::kName);
  EXPECT_EQ(reference_kind("hf:org/repo"), ReferenceKind::kHub);
  EXPECT_EQ(reference_kind("hf:"), ReferenceKind::kHub);
  for (const char* path : {"./m", "../m", "m/", "/m", "~/m", "~", "m.gguf", ".", "a/b"}) {
    EXPECT_EQ(reference_kind(path), ReferenceKind::kPath) << path;
  }
}

TEST(ReferenceTest, PartsOfAHubReference) {
  const HubReference plain = parse_hub_reference("hf:Qwen/Qwen3-0.6B").value();
  EXPECT_EQ(plain.repo, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain.revision, "main");
  EXPECT_EQ(plain.file, "");
  const HubReference full = parse_hub_reference("hf:a/b@refs/pr/1:dir/m-Q8@0:x.gguf").value();
  EXPECT_EQ(full.repo, "a/b");
  EXPECT_EQ(full.revision, "refs/pr/1");
  EXPECT_EQ(full.file, "dir/m-Q8@0:x.gguf");
}

TEST(ReferenceTest, CanonicalParsesBack) {
  for (const char* text : {"hf:a/b", "hf:a/b@v1", "hf:a/b:m.gguf", "hf:a/b@0123abc:d/m.gguf"}) {
    EXPECT_EQ(parse_hub_reference(text)->canonical(), text);
  }
  EXPECT_EQ(parse_hub_reference("hf:a/b@main")->canonical(), "hf:a/b");
}

TEST(ReferenceTest, DefaultNamesAreValid) {
  EXPECT_EQ(parse_hub_reference("hf:a/b")->default_name(), "a--b");
  EXPECT_EQ(parse_hub_reference("hf:a/b@v1:m-Q4_K.gguf")->default_name(), "a--b@v1--m-Q4_K");
  EXPECT_EQ(parse_hub_reference("hf:a/b@refs/pr/1:d e/m.gguf")->default_name(),
            "a--b@refs-pr-1--d-e-m");
  EXPECT_TRUE(
      check_model_name(parse_hub_reference("hf:a/b:x.gguf.gguf")->default_name()).has_value());
}

TEST(ReferenceTest, BadReferencesSayTheGrammar) {
  for (const char* text :
       {"hf:",        "hf:repo",  "hf:/repo",    "hf:org/",   "hf:a/b/c",    "hf:../x",
        "hf:a/..",    "hf:-a/b",  "hf:a/b c",    "hf:a/b@",   "hf:a/b@-x",   "hf:a/b@a..b",
        "hf:a/b@x/",  "hf:a/b:",  "hf:a/b:../x", "hf:a/b:/x", "hf:a/b:x\ny", "hf:a--b/c",
        "hf:a/b?x=1", "hf:a/b#c", "org/repo"}) {
    const Result<HubReference> parsed = parse_hub_reference(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("hf:ORG/REPO[@REVISION][:FILE]"));
  }
}

TEST(ModelNameTest, Rules) {
  for (const char* name : {"a", "smollm2-135m", "a--b@v1", "7b.x_y"}) {
    EXPECT_TRUE(check_model_name(name).has_value()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("-a"), std::string("a/b"),
        std::string("a b"), std::string("a\0", 2), std::string(201, 'a'), std::string("a.gguf"),
        std::string("\xC3\xA9")}) {
    EXPECT_FALSE(check_model_name(name).has_value()) << name;
  }
}

TEST(ModelNameTest, SanitizeAlwaysGivesAValidName) {
  for (const std::string& text :
       {std::string(), std::string("../../x"), std::string("My Model (1)"), std::string("..."),
        std::string(500, 'x'), std::string("\xC3\xA9"), std::string("a.gguf.gguf"),
        std::string(".gguf"), std::string("--yes"), std::string(195, 'x') + ".gguf-y"}) {
    EXPECT_TRUE(check_model_name(sanitize_model_name(text)).has_value())
        << sanitize_model_name(text);
  }
  EXPECT_EQ(sanitize_model_name("My Model"), "My-Model");
  EXPECT_EQ(sanitize_model_name("///"), "model");
}

}  // namespace
}  // namespace trine::hub
