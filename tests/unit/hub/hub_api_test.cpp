#include "hub/hub_api.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSha = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

HubRepo repo_of(const std::vector<std::string>& names) {
  HubRepo repo;
  for (const std::string& name : names) {
    repo.files.push_back({name, 10, ""});
  }
  return repo;
}

std::vector<std::string> names_of(const HubSelection& selection) {
  std::vector<std::string> out;
  for (const HubFile& file : selection.files) {
    out.push_back(file.name);
  }
  return out;
}

TEST(HubAnswerTest, ReadsFilesCommitAndLicence) {
  const HubRepo repo =
      parse_hub_repo(
          std::string(R"({"sha": "0a1b", "cardData": {"license": "apache-2.0"}, "siblings": [
      {"rfilename": "config.json", "size": 12, "blobId": "x"},
      {"rfilename": "m.safetensors", "size": 99, "lfs": {"sha256": ")") +
          kSha + R"(", "size": 99}},
      {"rfilename": "x"}, {"rfilename": "y", "lfs": null, "size": null}]})")
          .value();
  EXPECT_EQ(repo.commit, "0a1b");
  EXPECT_EQ(repo.license, "apache-2.0");
  ASSERT_EQ(repo.files.size(), 4U);
  EXPECT_EQ(repo.files[0].size, 12U);
  EXPECT_EQ(repo.files[0].sha256, "");
  EXPECT_EQ(repo.files[1].sha256, kSha);
  EXPECT_FALSE(repo.files[2].size.has_value());
  EXPECT_EQ(parse_hub_repo(R"({"siblings": [], "tags": ["x", "license:mit"]})")->license, "mit");
}

TEST(HubAnswerTest, BadAnswersAreRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"siblings": {}})", R"({"siblings": [5]})", R"({"siblings": [{}]})",
        R"({"siblings": [{"rfilename": 5}]})", R"({"siblings": [{"rfilename": "../x"}]})",
        R"({"siblings": [{"rfilename": "a\u0000b"}]})",
        R"({"siblings": [{"rfilename": "a", "size": -1}]})",
        R"({"siblings": [{"rfilename": "a", "size": 1.5}]})",
        R"({"siblings": [{"rfilename": "a", "size": "1"}]})",
        R"({"siblings": [{"rfilename": "a", "size": 9223372036854775807}]})",
        R"({"siblings": [{"rfilename": "a", "lfs": []}]})",
        R"({"siblings": [{"rfilename": "a", "lfs": {"sha256": "xyz"}}]})",
        R"({"siblings": [{"rfilename": "a", "size": 1, "lfs": {"size": 2}}]})",
        R"({"siblings": [{"rfilename": "a"}, {"rfilename": "a"}]})",
        R"({"sha": "../x", "siblings": []})", R"({"sha": "", "siblings": []})"}) {
    const Result<HubRepo> repo = parse_hub_repo(text);
    ASSERT_FALSE(repo.has_value()) << text;
    EXPECT_EQ(repo.error().code, ErrorCode::kCorruptData) << text;
  }
}

TEST(SelectTest, ChoosesWhatTheLoadersRead) {
  const HubRepo repo = repo_of(
      {"README.md", "config.json", "generation_config.json", "tokenizer.json",
       "tokenizer_config.json", "tokenizer.model", "chat_template.jinja", "model.safetensors",
       "consolidated.safetensors", "pytorch_model.bin", "onnx/config.json", "x.gguf"});
  const HubSelection selection = select_files(repo, "").value();
  EXPECT_THAT(names_of(selection),
              ElementsAre("config.json", "generation_config.json", "tokenizer.json",
                          "tokenizer_config.json", "chat_template.jinja", "model.safetensors"));
  EXPECT_EQ(selection.entry, ".");
  EXPECT_EQ(selection.format, "safetensors");
  EXPECT_EQ(selection.index, "");
}

TEST(SelectTest, IndexDecidesAboutShards) {
  const HubRepo repo =
      repo_of({"config.json", "model.safetensors.index.json", "a.safetensors", "b.safetensors"});
  HubSelection selection = select_files(repo, "").value();
  EXPECT_EQ(selection.index, "model.safetensors.index.json");
  EXPECT_THAT(names_of(selection), ElementsAre("config.json", "model.safetensors.index.json"));
  const auto shards =
      shards_of_index(R"({"weight_map": {"x": "b.safetensors", "y": "b.safetensors"}})").value();
  EXPECT_THAT(shards, ElementsAre("b.safetensors"));
  ASSERT_TRUE(add_shards(repo, shards, selection).has_value());
  EXPECT_EQ(selection.files.back().name, "b.safetensors");
  EXPECT_THAT(add_shards(repo, {"c.safetensors"}, selection).error().message,
              HasSubstr("c.safetensors"));
}

TEST(SelectTest, BadIndexes) {
  for (const char* text :
       {"", "{}", R"({"weight_map": {}})", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "../x.safetensors"}})",
        R"({"weight_map": {"a": "/x.safetensors"}})", R"({"weight_map": {"a": "x.bin"}})"}) {
    EXPECT_EQ(shards_of_index(text).error().code, ErrorCode::kCorruptData) << text;
  }
}

TEST(SelectTest, GgufOnlyRepositoriesNeedAFile) {
  const HubRepo repo = repo_of({"README.md", "m-Q4.gguf", "m-Q8.gguf"});
  const Error error = select_files(repo, "").error();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("m-Q4.gguf (10 B), m-Q8.gguf (10 B)"));
  const HubSelection one = select_files(repo, "m-Q8.gguf").value();
  EXPECT_THAT(names_of(one), ElementsAre("m-Q8.gguf"));
  EXPECT_EQ(one.entry, "m-Q8.gguf");
  EXPECT_EQ(select_files(repo, "m-Q5.gguf").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(select_files(repo, "README.md").error().code, ErrorCode::kInvalidArgument);
}

TEST(SelectTest, NothingToRun) {
  EXPECT_EQ(select_files(repo_of({"README.md", "pytorch_model.bin"}), "").error().code,
            ErrorCode::kNotFound);
  EXPECT_THAT(select_files(repo_of({"model.safetensors"}), "").error().message,
              HasSubstr("config.json"));
  EXPECT_EQ(select_files(repo_of({}), "").error().code, ErrorCode::kNotFound);
}

TEST(SelectTest, SplitGguf) {
  EXPECT_TRUE(is_split_gguf("m-00001-of-00003.gguf"));
  EXPECT_TRUE(is_split_gguf("d/m-00003-of-00003.gguf"));
  EXPECT_FALSE(is_split_gguf("m-00001-of-00003.safetensors"));
  EXPECT_FALSE(is_split_gguf("m-0001-of-00003.gguf"));
  EXPECT_FALSE(is_split_gguf("of.gguf"));
  EXPECT_EQ(select_files(repo_of({"m-00001-of-00002.gguf"}), "m-00001-of-00002.gguf").error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trine::hub
