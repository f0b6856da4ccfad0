// Ids and decoded text equal to the Hugging Face `tokenizers` package, for small trained tokenizers
// of every kind (tests/golden/tokenizers, made by tools/golden/tokenizers.py).
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_to_gguf.h"

namespace trine::text {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

std::string read_golden(const std::string& name) {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/tests/golden/tokenizers/" + name,
                   std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

Json parse_golden(const std::string& name) {
  auto json = parse_json(read_golden(name));
  EXPECT_TRUE(json.has_value()) << name << ": " << json.error().message;
  return json.has_value() ? std::move(*json) : Json();
}

Ids unpack(const std::string& text) {
  std::istringstream in(text);
  Ids out;
  for (std::int32_t id = 0; in >> id;) {
    out.push_back(id);
  }
  return out;
}

// Every line of the corpus, in both modes, and back.
void expect_golden(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& golden,
                   bool ids_only) {
  const Json corpus = parse_golden("corpus.json");
  ASSERT_EQ(golden["special"].size(), corpus.size());
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    const std::string text = corpus[i].get<std::string>();
    SCOPED_TRACE("line " + std::to_string(i) + ": " + corpus[i].dump());
    // Differences on purpose (tokenizer_test.cpp, docs/tokenizers.md), and a single_word token,
    // which GGUF cannot say.
    if (golden["special"][i].is_boolean() ||
        (ids_only && text.find("\u043c\u0430\u0439") != std::string::npos)) {
      continue;
    }
    const Ids expected = unpack(golden["special"][i].get<std::string>());
    const auto special = tokenizer->encode(text, {true, true});
    ASSERT_TRUE(special.has_value()) << special.error().message;
    if (!ids_only) {  // GGUF files name their BOS themselves
      EXPECT_EQ(*special, expected);
    }
    const auto plain = tokenizer->encode(text, {false, false});
    ASSERT_TRUE(plain.has_value()) << plain.error().message;
    EXPECT_EQ(*plain, unpack(golden["plain"][i].get<std::string>()));
    const std::vector<TextPart> parts{{text, true}};
    EXPECT_EQ(tokenizer->encode_parts(parts, false).value(), *plain);

    const std::string decoded =
        golden["decoded"][i].is_null() ? text : golden["decoded"][i].get<std::string>();
    EXPECT_EQ(tokenizer->decode(expected, true).value(), decoded);
    const Json& all = golden["decoded_all"][i];
    EXPECT_EQ(tokenizer->decode(expected, false).value(),
              all.is_null() ? decoded : all.get<std::string>());
  }
}

// The arrays a GGUF converter would write for a trained tokenizer.json.
GgufTokenizerData to_gguf(const Json& root, const Json& how) {
  GgufTokenizerData data;
  data.model = how["model"].get<std::string>();
  data.pre = how.value("pre", "default");
  std::size_t size = root["model"]["vocab"].size();
  for (const Json& token : root["added_tokens"]) {
    size = std::max(size, token["id"].get<std::size_t>() + 1);
  }
  data.tokens.resize(size);
  data.kinds.assign(size, 1);
  data.scores.assign(data.model == "llama" ? size : 0, -1000.0F);
  for (const auto& [piece, id] : root["model"]["vocab"].items()) {
    data.tokens[id.get<std::size_t>()] = piece;
    const bool byte = data.model == "llama" && piece.size() == 6 && piece.starts_with("<0x");
    data.kinds[id.get<std::size_t>()] = byte ? 6 : 1;
  }
  for (const Json& token : root["added_tokens"]) {
    const auto id = token["id"].get<std::size_t>();
    data.tokens[id] = token["content"].get<std::string>();
    data.kinds[id] = token["special"].get<bool>() ? 3 : 4;
  }
  for (const Json& merge : root["model"]["merges"]) {
    data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  if (how.contains("scores")) {
    for (std::size_t i = 0; i < how["scores"].size(); ++i) {
      data.scores[i] = how["scores"][i].get<float>();
    }
    data.add_space_prefix = how["add_space_prefix"].get<bool>();
    data.kinds[0] = 2;
    data.unk = 0;
    data.merges.clear();
  }
  return data;
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

class TokenizerGguf : public testing::TestWithParam<const char*> {};

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST_P(TokenizerGolden, JsonRouteEqualsTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::from_json(read_golden(name + ".tokenizer.json"), "");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  expect_golden(*tokenizer, parse_golden(name + ".golden.json"), false);
}

TEST_P(TokenizerGguf, GgufRouteEqualsTheReference) {
  const std::string name = GetParam();
  const Json golden = parse_golden(name + ".golden.json");
  const auto tokenizer =
      Tokenizer::from_gguf(to_gguf(parse_golden(name + ".tokenizer.json"), golden["gguf"]));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  expect_golden(*tokenizer, golden, true);
}

// The converter finds what the golden says that a file would say, and loses nothing.
TEST_P(TokenizerGguf, ConvertedRouteEqualsTheReference) {
  const std::string name = GetParam();
  const std::string text = read_golden(name + ".tokenizer.json");
  const Json golden = parse_golden(name + ".golden.json");
  const auto direct = Tokenizer::from_json(text, "");
  ASSERT_TRUE(direct.has_value());
  const std::int32_t rows = (*direct)->vocab_size() + 3;
  const auto made = gguf_tokenizer(text, "", rows);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(made->data.model, golden["gguf"]["model"]);
  EXPECT_EQ(made->data.pre, golden["gguf"].value("pre", "default"));
  ASSERT_EQ(made->data.tokens.size(), static_cast<std::size_t>(rows));
  EXPECT_EQ(made->data.tokens.back(), "[PAD" + std::to_string(rows - 1) + "]");
  EXPECT_EQ(made->data.kinds.back(), 5);
  const auto tokenizer = Tokenizer::from_gguf(made->data);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  expect_golden(*tokenizer, golden, true);
  const auto encode = [](const Tokenizer& t, bool special) {
    return t.encode("one two", {special, false}).value();
  };
  EXPECT_EQ(encode(**tokenizer, true), encode(**direct, true));
  EXPECT_EQ(encode(**tokenizer, false), encode(**direct, false));
}

// What GGUF arrays cannot say is refused by name, or noted where files exist that leave it out.
TEST(TokenizerToGguf, SaysWhatIsLost) {
  const auto message = [](const std::string& name) {
    const auto made = gguf_tokenizer(read_golden(name + ".tokenizer.json"), "", 1000);
    return made.has_value() ? std::string("no error") : made.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message("gpt2-prefix"), HasSubstr("ByteLevel with add_prefix_space"));
  EXPECT_THAT(message("unigram"), HasSubstr("unigram tokenizer"));
  const auto made = gguf_tokenizer(read_golden("qwen2.tokenizer.json"), "", 1000);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(made->data.pre, "qwen2");
  EXPECT_THAT(made->notes, ::testing::Contains(HasSubstr("composes characters (NFC)")));
  EXPECT_THAT(made->notes, ::testing::Contains(HasSubstr("(<|lstrip|>, ...) strip white space")));
  const auto cl100k = gguf_tokenizer(read_golden("cl100k.tokenizer.json"), "", 1000);
  ASSERT_TRUE(cl100k.has_value()) << cl100k.error().message;
  EXPECT_EQ(cl100k->data.pre, "smaug-bpe");
}

Json changed(const std::string& name, const std::string& pointer, const Json& value) {
  Json root = parse_golden(name + ".tokenizer.json");
  root[Json::json_pointer(pointer)] = value;
  return root;
}

TEST(TokenizerToGguf, RefusesByName) {
  const auto message = [](const Json& root, std::string_view config = "",
                          std::int64_t rows = 1000) {
    const auto made = gguf_tokenizer(root.dump(), config, rows);
    return made.has_value() ? std::string("no error") : made.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(parse_golden("gpt2.tokenizer.json"), "", 100),
              HasSubstr("tokens, the model rows for 100"));
  EXPECT_THAT(message(changed("gpt2", "/normalizer", {{"type", "Lowercase"}})),
              HasSubstr("normalizer Lowercase"));
  EXPECT_THAT(message(changed("smollm", "/pre_tokenizer/pretokenizers/0/individual_digits", false)),
              HasSubstr("which no known GGUF splitter does"));
  EXPECT_THAT(
      message(changed("llama2", "/normalizer",
                      {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}})),
      HasSubstr("normalizer Replace"));
  // What the arrays would say is tried on the vocabulary: this piece can be made by no merge, and
  // the name that fits the splitter takes whole pieces.
  Json whole = parse_golden("tekken.tokenizer.json");
  whole["model"]["ignore_merges"] = false;
  whole["model"]["vocab"]["ABCDEFGH"] = 900;
  EXPECT_THAT(message(whole), HasSubstr("the text \"ABCDEFGH\" has the tokens"));
  const char* const both = R"({"bos_token": "<|bos|>", "add_bos_token": true})";
  EXPECT_EQ(message(parse_golden("gpt2.tokenizer.json"), both), "no error");
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values("gpt2", "gpt2-prefix", "llama3", "cl100k", "qwen2",
                                         "qwen2-plain", "o200k", "tekken", "smollm", "deepseek",
                                         "default", "llama2", "llama2-metaspace", "gemma",
                                         "unigram", "unigram-bytes", "unigram-map"),
                         test_name);
// Those without parts that GGUF arrays cannot say.
INSTANTIATE_TEST_SUITE_P(All, TokenizerGguf,
                         testing::Values("gpt2", "llama3", "qwen2-plain", "o200k", "tekken",
                                         "smollm", "deepseek", "default", "llama2", "gemma"),
                         test_name);

TEST(TokenizerComponents, NormalizersEqualTheReference) {
  const Json golden = parse_golden("components.json");
  for (const Json& entry : golden["normalizers"]) {
    SCOPED_TRACE(entry["json"].dump().substr(0, 200));
    const auto normalizer = normalizer_from_json(entry["json"]);
    ASSERT_TRUE(normalizer.has_value()) << normalizer.error().message;
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      std::string text = golden["texts"][i].get<std::string>();
      SCOPED_TRACE(text);
      ASSERT_TRUE((*normalizer)->apply(text).has_value());
      EXPECT_EQ(text, entry["out"][i].get<std::string>());
    }
  }
}

TEST(TokenizerComponents, PreTokenizersEqualTheReference) {
  const Json golden = parse_golden("components.json");
  for (const Json& entry : golden["pre_tokenizers"]) {
    SCOPED_TRACE(entry["json"].dump());
    const auto pretokenizer = pretokenizer_from_json(entry["json"]);
    ASSERT_TRUE(pretokenizer.has_value()) << pretokenizer.error().message;
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      PieceList list;
      list.text = golden["texts"][i].get<std::string>();
      if (list.text.empty()) {
        continue;  // never reaches a pre-tokenizer
      }
      SCOPED_TRACE(list.text);
      list.pieces.push_back({0, list.text.size()});
      list.at_origin = true;
      ASSERT_TRUE((*pretokenizer)->apply(list).has_value());
      std::vector<std::string> pieces;
      for (const Piece& piece : list.pieces) {
        if (piece.end > piece.begin) {
          pieces.emplace_back(list.view(piece));
        }
      }
      std::vector<std::string> expected = entry["out"][i].get<std::vector<std::string>>();
      std::erase(expected, "");
      EXPECT_EQ(pieces, expected);
    }
  }
}

}  // namespace
}  // namespace trine::text
