// ModelText from GGUF metadata: what is read, what is refused, what is kept as an error for later.
#include "engine/bundle.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "format/gguf_writer.h"

namespace trine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Pairs = std::vector<GgufMetadata::Pair>;

// A byte-level vocabulary with a control token at each end.
Pairs tokenizer_pairs() {
  std::vector<std::string> tokens = {"<s>", "a", "b", "ab", "</s>"};
  return {{"general.architecture", std::string("llama")},
          {"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", std::string("gpt-2")},
          {"tokenizer.ggml.tokens", GgufArray(tokens)},
          {"tokenizer.ggml.token_type", GgufArray(std::vector<std::int32_t>{3, 1, 1, 1, 3})},
          {"tokenizer.ggml.merges", GgufArray(std::vector<std::string>{"a b"})},
          {"tokenizer.ggml.bos_token_id", std::uint32_t{0}},
          {"tokenizer.ggml.eos_token_id", std::uint32_t{4}}};
}

class BundleGguf : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("trine-bundle-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }

  void TearDown() override { std::filesystem::remove_all(directory_); }

  Result<ModelText> load(const Pairs& pairs) {
    const std::string path = (directory_ / "model.gguf").string();
    const Status written = write_gguf(path, pairs, {});
    EXPECT_TRUE(written.has_value()) << (written.has_value() ? "" : written.error().message);
    return ModelText::load(path);
  }

  // The tokenizer's error after one pair was added or replaced.
  std::string tokenizer_error(std::string key, GgufValue value) {
    Pairs pairs = tokenizer_pairs();
    std::erase_if(pairs, [&](const auto& pair) { return pair.first == key; });
    pairs.emplace_back(std::move(key), std::move(value));
    const auto text = load(pairs);
    EXPECT_TRUE(text.has_value());
    if (!text.has_value() || text->tokenizer().has_value()) {
      return "";
    }
    EXPECT_NE(text->tokenizer().error().code, ErrorCode::kInternal);
    return text->tokenizer().error().message;
  }

  std::filesystem::path directory_;
};

TEST_F(BundleGguf, ReadsTokenizerTemplatesAndSampling) {
  Pairs pairs = tokenizer_pairs();
  pairs.emplace_back("tokenizer.chat_template", std::string("default {{ bos_token }}"));
  pairs.emplace_back("tokenizer.chat_template.tool_use", std::string("tools"));
  pairs.emplace_back("tokenizer.chat_templates",
                     GgufArray(std::vector<std::string>{"default", "tool_use"}));
  pairs.emplace_back("general.sampling.temp", 0.5F);
  pairs.emplace_back("general.sampling.top_k", std::int32_t{20});
  const auto text = load(pairs);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const auto tokenizer = text->tokenizer();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("ab", {.add_special = false, .parse_special = false}).value(),
              ElementsAre(3));
  EXPECT_EQ(text->bos_token(), "<s>");
  EXPECT_EQ(text->eos_token(), "</s>");
  EXPECT_THAT(text->stop_ids(), ElementsAre(4));
  EXPECT_THAT(text->template_names(), testing::UnorderedElementsAre("default", "tool_use"));
  EXPECT_TRUE(text->chat_template(false).has_value());
  EXPECT_NE(text->chat_template(false).value(), text->chat_template(true).value());
  EXPECT_EQ(text->generation().temperature, 0.5);
  EXPECT_EQ(text->generation().top_k, 20);
  EXPECT_FALSE(text->generation().top_p.has_value());
}

TEST_F(BundleGguf, WithoutATokenizerOnlyTheQuestionForItFails) {
  const auto text = load({{"general.architecture", std::string("llama")}});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_FALSE(text->has_tokenizer());
  EXPECT_EQ(text->tokenizer().error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(text->chat_template(false).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(text->stop_ids().empty());
}

TEST_F(BundleGguf, ChecksTypesAndCounts) {
  EXPECT_THAT(
      tokenizer_error("tokenizer.ggml.token_type", GgufArray(std::vector<std::int32_t>{1, 1})),
      HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.scores", GgufArray(std::vector<float>(4))),
              HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.tokens", GgufArray(std::vector<float>(5))),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.merges", std::string("a b")),
              HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.eos_token_id", std::uint32_t{5}),
              testing::AllOf(HasSubstr("tokenizer.ggml.eos_token_id"), HasSubstr("5")));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.add_bos_token", std::uint32_t{1}),
              HasSubstr("add_bos_token"));
  EXPECT_THAT(tokenizer_error("tokenizer.ggml.model", std::string("novel")), HasSubstr("novel"));
}

TEST_F(BundleGguf, ADirectorysEndTokensAreAListAndItsTemplateFileWins) {
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  };
  write("generation_config.json", R"({"eos_token_id": [7, 2, 5]})");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "{% if %}"},
                              {"name": "rag", "template": "x"}]})");
  write("chat_template.jinja", "from the file");
  const auto text = ModelText::load(directory_.string());
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_THAT(text->stop_ids(), ElementsAre(2, 5, 7));
  EXPECT_THAT(text->template_names(), ElementsAre("default", "rag"));
  EXPECT_TRUE(text->chat_template(false).has_value());  // not the broken one
}

TEST_F(BundleGguf, ABrokenTemplateIsReportedWhenItIsNeeded) {
  Pairs pairs = tokenizer_pairs();
  pairs.emplace_back("tokenizer.chat_template", std::string("{% if %}"));
  const auto text = load(pairs);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_TRUE(text->tokenizer().has_value());
  ASSERT_FALSE(text->chat_template(false).has_value());
  EXPECT_THAT(text->chat_template(false).error().message, HasSubstr("tokenizer.chat_template"));
}

TEST_F(BundleGguf, ATemplateOfAnotherTypeIsNotNoTemplate) {
  Pairs pairs = tokenizer_pairs();
  pairs.emplace_back("tokenizer.chat_template", std::uint32_t{5});
  const auto text = load(pairs);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_TRUE(text->tokenizer().has_value());
  EXPECT_EQ(text->chat_template(false).error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(text->chat_template(false).error().message,
              testing::AllOf(HasSubstr("tokenizer.chat_template"), HasSubstr("u32")));
}

}  // namespace
}  // namespace trine
