// Rules of the tokenizers that no golden file covers: errors, control tokens in user text, stop
// ids, hostile sizes, the streaming decoder.
#include "text/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/charsmap.h"
#include "text/normalizer.h"
#include "text/regex.h"
#include "text/splitters.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

std::string read_file(const std::string& path) {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string trained_json(const std::string& name) {
  return read_file("tests/golden/tokenizers/" + name + ".tokenizer.json");
}

TokenizerPtr trained(const std::string& name) {
  return Tokenizer::from_json(trained_json(name), "").value();
}

// A tokenizer.json whose smallest parts a test can change.
Json small_json() {
  return parse_json(R"({
    "added_tokens": [{"id": 5, "content": "<|end|>", "special": true, "normalized": false},
                     {"id": 6, "content": "[u]", "special": false, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": null,
    "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<": 3, "|": 4}, "merges": [["a", "b"]]}
  })")
      .value();
}

std::string error_of(const Json& json, std::string_view config = "") {
  const auto out = Tokenizer::from_json(json.dump(), config);
  return out.has_value() ? "" : out.error().message;
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(TokenizerJson, ReadsAndRefuses) {
  ASSERT_EQ(error_of(small_json()), "");
  const auto with = [](const char* pointer, Json value) {
    Json json = small_json();
    json[Json::json_pointer(pointer)] = std::move(value);
    return error_of(json);
  };
  EXPECT_CONTAINS(with("/model/type", "WordPiece"), "model type \"WordPiece\"");
  EXPECT_CONTAINS(with("/model/vocab/b", 0), "id 0 belongs to both");
  EXPECT_CONTAINS(with("/model/vocab/b", -1), "model.vocab[\"b\"]");
  EXPECT_CONTAINS(with("/model/vocab/b", 16000000), "in a vocabulary of 7 tokens");
  EXPECT_CONTAINS(with("/model/merges/0", Json::array({"a", "c"})),
                  "model.merges[0]: \"a\" + \"c\": the right part");
  EXPECT_CONTAINS(with("/model/merges/0", "ab"), "model.merges[0] is neither");
  EXPECT_CONTAINS(with("/model/dropout", 0.5), "model.dropout");
  EXPECT_CONTAINS(with("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix");
  EXPECT_CONTAINS(with("/model/unk_token", "<unk>"), "model.unk_token");
  EXPECT_CONTAINS(with("/normalizer", {{"type", "BertNormalizer"}}),
                  "normalizer type \"BertNormalizer\"");
  EXPECT_CONTAINS(with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
                  "pre-tokenizer type \"UnicodeScripts\"");
  EXPECT_CONTAINS(with("/post_processor", {{"type", "BertProcessing"}}),
                  "post_processor type \"BertProcessing\"");
  EXPECT_CONTAINS(with("/decoder", {{"type", "WordPiece"}}), "decoder type \"WordPiece\"");
  EXPECT_CONTAINS(with("/added_tokens/0/id", 0), "id 0 belongs to both \"a\"");
  EXPECT_CONTAINS(with("/added_tokens/0/content", ""), "added token 5: 0 bytes");
  EXPECT_CONTAINS(with("/added_tokens/0/content", "ab"), "added token \"ab\" has id 5, but 2");
  EXPECT_CONTAINS(error_of(small_json(), R"({"eos_token": "</s>"})"),
                  "eos_token \"</s>\" is not in the vocabulary");
  EXPECT_CONTAINS(Tokenizer::from_json("{", "").error().message, "tokenizer.json");
}

TEST(TokenizerJson, ConfigNamesBosAndEos) {
  Json json = small_json();
  json["added_tokens"].push_back({{"id", 7}, {"content", "<s>"}, {"special", true}});
  const auto tokenizer = Tokenizer::from_json(
      json.dump(),
      R"({"bos_token": {"content": "<s>"}, "eos_token": "[u]", "add_bos_token": true})");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos(), 7);
  EXPECT_EQ((*tokenizer)->eos(), 6);
  const auto stops = (*tokenizer)->stop_ids();
  EXPECT_EQ(Ids(stops.begin(), stops.end()), (Ids{5, 6}));  // <|end|> by name, [u] by the config
  EXPECT_EQ((*tokenizer)->encode("ab", {true, false}).value(), (Ids{7, 2}));
  EXPECT_EQ((*tokenizer)->encode("ab", {false, false}).value(), (Ids{2}));
  EXPECT_EQ((*tokenizer)->kind(5), TokenKind::kControl);
  EXPECT_EQ((*tokenizer)->kind(6), TokenKind::kUserDefined);
  EXPECT_EQ((*tokenizer)->token_bytes(5), "");
  EXPECT_EQ((*tokenizer)->token_bytes(6), "[u]");
}

// What the reference does with small vocabularies, rule by rule.
TEST(TokenizerJson, UnknownCharactersBecomeOneTokenOrOneEach) {
  Json json = small_json();
  json["model"]["vocab"]["?"] = 7;
  json["model"]["unk_token"] = "?";
  const auto ids = [&](const char* text) {
    return Tokenizer::from_json(json.dump(), "").value()->encode(text, {false, false}).value();
  };
  EXPECT_EQ(ids("xyaz"), (Ids{7, 7, 0, 7}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids("xyaz"), (Ids{7, 0, 7}));
}

TEST(TokenizerJson, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  Json json = small_json();
  json["model"]["vocab"]["aba"] = 7;  // no merge leads to it
  const auto ids = [&] {
    return Tokenizer::from_json(json.dump(), "").value()->encode("aba", {false, false}).value();
  };
  EXPECT_EQ(ids(), (Ids{2, 0}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids(), (Ids{7}));
}

TEST(TokenizerJson, OfARepeatedMergeTheLastRankCounts) {
  Json json = small_json();
  json["model"]["vocab"]["ba"] = 7;
  json["model"]["merges"] = Json::parse(R"([["a", "b"], ["b", "a"], ["a", "b"]])");
  const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
  EXPECT_EQ(tokenizer->encode("aba", {false, false}).value(), (Ids{0, 7}));
}

TEST(TokenizerJson, UnigramPrefersLongPiecesOnATieAndUnknownCharactersLast) {
  const auto ids = [](const char* vocab, const char* text) {
    Json json = small_json();
    json["added_tokens"] = Json::array();
    json["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::parse(vocab)}};
    return Tokenizer::from_json(json.dump(), "").value()->encode(text, {false, false}).value();
  };
  // Unknown: ten below the lowest score, so two rare pieces are better than one unknown character.
  EXPECT_EQ(ids(R"([["?", 0], ["a", -1], ["ab", -1], ["xa", -5], ["b", -5]])", "xab"), (Ids{3, 4}));
  const char* ties = R"([["?", 0], ["a", -1], ["b", -1], ["ab", -2], ["c", -1], ["bc", -2]])";
  EXPECT_EQ(ids(ties, "ab"), (Ids{3}));
  EXPECT_EQ(ids(ties, "abc"), (Ids{1, 5}));
}

TEST(TokenizerJson, ByteFallbackIsAllBytesOrNone) {
  Json json = small_json();
  json["model"]["byte_fallback"] = true;
  json["model"]["unk_token"] = "|";
  json["model"]["vocab"]["<0xC3>"] = 7;
  EXPECT_EQ(
      Tokenizer::from_json(json.dump(), "").value()->encode("a\xc3\xa9", {false, false}).value(),
      (Ids{0, 4}));
  json["model"]["vocab"]["<0xA9>"] = 8;
  EXPECT_EQ(
      Tokenizer::from_json(json.dump(), "").value()->encode("a\xc3\xa9", {false, false}).value(),
      (Ids{0, 7, 8}));
}

TEST(TokenizerJson, TheFirstPrefixIsForTheStartOfAllParts) {
  Json json = small_json();
  json["model"]["vocab"]["\xe2\x96\x81"] = 7;
  json["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\xe2\x96\x81"},
                           {"prepend_scheme", "first"},
                           {"split", true}};
  const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
  const std::vector<TextPart> parts{{"ab", false}, {"<|end|>", false}, {"ab", true}};
  EXPECT_EQ(tokenizer->encode_parts(parts, false).value(), (Ids{7, 2, 5, 2}));
}

TEST(TokenizerJson, InHarmonysFormatAMessagesEndIsNotTheTurns) {
  Json json = small_json();
  json["added_tokens"].push_back({{"id", 7}, {"content", "<|return|>"}, {"special", true}});
  const auto stops = [&] {
    const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
    const auto ids = tokenizer->stop_ids();
    return Ids(ids.begin(), ids.end());
  };
  EXPECT_EQ(stops(), (Ids{5, 7}));
  json["added_tokens"].push_back({{"id", 8}, {"content", "<|call|>"}, {"special", true}});
  EXPECT_EQ(stops(), (Ids{7, 8}));
}

TEST(TokenizerJson, OfTokensThatNormalizeAlikeAControlTokenOrElseTheFirstIsFound) {
  for (const auto& [first_special, second_special, expected] :
       {std::tuple{false, false, 7}, {true, false, 7}, {false, true, 8}, {true, true, 7}}) {
    Json json = small_json();
    json["normalizer"] = {{"type", "Lowercase"}};
    json["added_tokens"].push_back(
        {{"id", 7}, {"content", "[V]"}, {"special", first_special}, {"normalized", true}});
    json["added_tokens"].push_back(
        {{"id", 8}, {"content", "[v]"}, {"special", second_special}, {"normalized", true}});
    const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
    for (const std::string_view text : {"a[v]b", "A[V]B"}) {
      EXPECT_EQ(tokenizer->encode(text, {false, true}).value(), (Ids{0, expected, 1}))
          << text << first_special << second_special;
    }
  }
}

TEST(TokenizerJson, AnAddedTokenDecodesToItsSpelling) {
  Json json = small_json();
  json["decoder"] = {{"type", "ByteFallback"}};
  json["model"]["vocab"]["<0x41>"] = 7;
  json["added_tokens"].push_back({{"id", 8}, {"content", "<0x42>"}, {"special", false}});
  const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
  EXPECT_EQ(tokenizer->decode(Ids{7, 8}, true).value(), "A<0x42>");
}

// As SentencePiece's add_dummy_prefix and remove_extra_whitespaces.
TEST(SpmNormalizer, PrefixAndExtraSpaces) {
  const auto apply = [](bool prefix, bool remove, std::string text) {
    const auto normalizer =
        make_spm_normalizer("", {.add_space_prefix = prefix, .remove_extra_whitespaces = remove});
    EXPECT_TRUE((*normalizer)->apply(text).has_value());
    for (std::size_t at = text.find("\xe2\x96\x81"); at != std::string::npos;
         at = text.find("\xe2\x96\x81")) {
      text.replace(at, 3, "_");
    }
    return text;
  };
  EXPECT_EQ(apply(true, true, "  a  b "), "_a_b");
  EXPECT_EQ(apply(false, true, "  a  b "), "a_b");
  EXPECT_EQ(apply(true, false, "a  b "), "_a__b_");
  EXPECT_EQ(apply(false, false, "a  b "), "a__b_");
}

TEST(Splitters, DigitsOfEachFamily) {
  const std::string_view text = "12345 x";
  EXPECT_EQ(next_piece(SplitPattern::kGpt2, text, 0), 5u);
  EXPECT_EQ(next_piece(SplitPattern::kLlama3, text, 0), 3u);
  EXPECT_EQ(next_piece(SplitPattern::kQwen2, text, 0), 1u);
  EXPECT_EQ(next_piece(SplitPattern::kO200k, text, 0), 3u);
  EXPECT_EQ(next_piece(SplitPattern::kTekken, text, 0), 1u);
}

// The hand-written splitters against their own expressions on PCRE2.
TEST(Splitters, AgreeWithTheirExpressions) {
  for (const SplitPattern pattern :
       {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2, SplitPattern::kO200k,
        SplitPattern::kTekken}) {
    const auto regex = Regex::compile(pattern_regex(pattern)).value();
    for (const std::string text : {"I'S IT'S it's we'LL We'll don'T 'd x'Re 'z", "it'\xc5\xbf 'x",
                                   "12345 6 78a9 \xc2\xb2\xc2\xbd", "a/b//\n ./\r\n/ -- /\n\nx",
                                   "  two  three   \n \n  x \t y  ", "end   ", " \n",
                                   "\xc2\xa0\xc2\xa0x", "ABCdef HTTPServer aB Ab A",
                                   "\xc7\x85\xc7\x85"
                                   "a \xc7\x85 \xca\xb0\xca\xb0"
                                   "A",
                                   "e\xcc\x81"
                                   "A \xcc\x81\xcc\x81 \xe4\xbd\xa0\xe5\xa5\xbd"
                                   "A\xe4\xbd\xa0",
                                   "#tag @me $5.00 (x)!", "\r\n\r\n a"}) {
      std::vector<std::size_t> expected;
      const std::vector<Match> matches = regex->find_all(text).value();
      for (const Match& match : matches) {
        expected.push_back(match.end);
      }
      std::vector<std::size_t> ends;
      for (std::size_t pos = 0; pos < text.size();) {
        pos = next_piece(pattern, text, pos);
        ends.push_back(pos);
      }
      EXPECT_EQ(ends, expected) << pattern_regex(pattern) << "\n" << text;
    }
  }
}

TEST(TokenizerJson, TextNeverMergesIntoAControlToken) {
  Json json = small_json();
  json["model"]["vocab"]["<|"] = 7;  // merges spell a control token; the whole piece is one, too
  json["model"]["merges"].push_back({"<", "|"});
  json["added_tokens"].push_back({{"id", 7}, {"content", "<|"}, {"special", true}});
  json["model"]["ignore_merges"] = true;
  const auto tokenizer = Tokenizer::from_json(json.dump(), "").value();
  EXPECT_EQ(tokenizer->encode("<|", {false, false}).value(), (Ids{3, 4}));
  EXPECT_EQ(tokenizer->encode("<|", {false, true}).value(), (Ids{7}));
}

TEST(Tokenizer, RefusesWhatIsNotUtf8) {
  const auto result = trained("gpt2")->encode("ab\xed\xa0\x80", {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_CONTAINS(result.error().message, "at byte 2");
  const std::vector<TextPart> parts{{"ok", false}, {"\xff", true}};
  EXPECT_CONTAINS(trained("gpt2")->encode_parts(parts, false).error().message, "part 1");
  EXPECT_CONTAINS(trained("gpt2")->decode(Ids{0, 100000}, true).error().message, "token id 100000");
}

// ---- parts ----

TEST(TokenizerParts, ControlTokensComeFromTheTemplateOnly) {
  const auto tokenizer = trained("llama3");
  const std::int32_t bos = tokenizer->find("<|bos|>").value();
  const std::int32_t eos = tokenizer->find("<|eos|>").value();
  const auto encode = [&](std::vector<TextPart> parts) {
    return tokenizer->encode_parts(parts, false).value();
  };
  const auto count = [&](const Ids& ids) {
    return std::count_if(ids.begin(), ids.end(),
                         [&](auto id) { return tokenizer->kind(id) == TokenKind::kControl; });
  };
  EXPECT_EQ(count(encode({{"<|eos|><|bos|>", true}})), 0);
  // Neither across a border, from either side, nor by cutting the template's own token.
  EXPECT_EQ(count(encode({{"<|eo", false}, {"s|>", true}})), 0);
  EXPECT_EQ(count(encode({{"<|eo", true}, {"s|>", false}})), 0);
  EXPECT_EQ(count(encode({{"<|eo", false}, {"s", true}, {"|>", false}})), 0);
  const Ids cut = encode({{"<|eos", true}, {"<|eos|>", false}, {"|>", true}});
  EXPECT_EQ(count(cut), 1);
  EXPECT_EQ(std::count(cut.begin(), cut.end(), eos), 1);
  // Two template parts are one text.
  EXPECT_EQ(encode({{"<|eo", false}, {"", true}, {"s|>", false}}), (Ids{eos}));
  // Otherwise as one text, and with the control tokens of encode().
  EXPECT_EQ(encode({{"Hel", true}, {"lo wor", false}, {"ld", true}}),
            tokenizer->encode("Hello world", {false, false}).value());
  const std::string text = "<|bos|>The model's text<|eos|> \n<|bos|>";
  EXPECT_EQ(encode({{text, false}}), tokenizer->encode(text, {false, true}).value());
  EXPECT_EQ(tokenizer->encode_parts(std::vector<TextPart>{{"x", true}}, true).value().front(), bos);
  // User-defined tokens stay on in user text.
  EXPECT_EQ(encode({{"USERTOKEN", true}}), (Ids{tokenizer->find("USERTOKEN").value()}));
}

// ---- GGUF arrays ----

GgufTokenizerData small_gguf() {
  GgufTokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>",
                 "<s>",
                 "</s>",
                 "a",
                 "b",
                 "ab",
                 "\xe2\x96\x81",
                 "\xe2\x96\x81"
                 "ab"};
  data.scores = {0, 0, 0, -3, -4, -1, -5, -2};
  data.kinds = {2, 3, 3, 1, 1, 1, 1, 1};
  data.bos = 1;
  data.eos = 2;
  data.unk = 0;
  return data;
}

TEST(TokenizerGguf, SpmDefaults) {
  const auto tokenizer = Tokenizer::from_gguf(small_gguf()).value();
  EXPECT_EQ(tokenizer->encode("ab ab", {}).value(), (Ids{1, 7, 7}));
  EXPECT_EQ(tokenizer->encode("x", {false, false}).value(), (Ids{6, 0}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 7, 7}, true).value(), "ab ab");
  EXPECT_EQ(tokenizer->description(), "SentencePiece BPE");
  EXPECT_EQ(tokenizer->encode("</s>", {false, false}).value(), (Ids{6, 0, 0, 0, 0}));
}

TEST(TokenizerGguf, ThePreTokenizersNameDecidesAboutTheBeginToken) {
  for (const auto& [pre, expected] : std::vector<std::pair<std::string, Ids>>{{"llama-bpe", {0, 2}},
                                                                              {"tekken", {0, 2}},
                                                                              {"gpt-2", {2}},
                                                                              {"qwen2", {2}},
                                                                              {"dbrx", {2}}}) {
    GgufTokenizerData data;
    data.model = "gpt2";
    data.pre = pre;
    data.tokens = {"<s>", "a", "b"};
    data.kinds = {3, 1, 1};
    data.merges = {};
    data.bos = 0;
    EXPECT_EQ(Tokenizer::from_gguf(data).value()->encode("b", {}).value(), expected) << pre;
    data.add_bos = false;  // the file's own word counts more
    EXPECT_EQ(Tokenizer::from_gguf(data).value()->encode("b", {}).value(), Ids{2}) << pre;
  }
}

TEST(TokenizerGguf, EachErrorNamesItsKey) {
  const auto error = [](const auto& change) {
    GgufTokenizerData data = small_gguf();
    change(data);
    const auto out = Tokenizer::from_gguf(std::move(data));
    return out.has_value() ? std::string() : out.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_CONTAINS(error([](auto& d) { d.model = "rwkv"; }), "tokenizer.ggml.model \"rwkv\"");
  EXPECT_CONTAINS(error([](auto& d) { d.tokens.clear(); }), "tokenizer.ggml.tokens");
  EXPECT_CONTAINS(error([](auto& d) { d.tokens[4] = "\xc3"; }), "tokenizer.ggml.tokens[4]");
  EXPECT_CONTAINS(error([](auto& d) { d.tokens[4] = "a"; }), "tokens 3 and 4 are both \"a\"");
  EXPECT_CONTAINS(error([](auto& d) { d.scores.pop_back(); }), "tokenizer.ggml.scores has 7");
  EXPECT_CONTAINS(error([](auto& d) { d.scores.clear(); }), "tokenizer.ggml.scores is missing");
  EXPECT_CONTAINS(error([](auto& d) { d.scores[2] = std::numeric_limits<float>::infinity(); }),
                  "tokenizer.ggml.scores[2]");
  EXPECT_CONTAINS(error([](auto& d) { d.kinds[1] = 7; }), "tokenizer.ggml.token_type[1] is 7");
  EXPECT_CONTAINS(error([](auto& d) { d.kinds.push_back(1); }), "tokenizer.ggml.token_type has 9");
  EXPECT_CONTAINS(error([](auto& d) { d.bos = 8; }), "tokenizer.ggml.bos_token_id is 8");
  EXPECT_CONTAINS(error([](auto& d) { d.pad = -2; }), "tokenizer.ggml.padding_token_id is -2");
  EXPECT_CONTAINS(error([](auto& d) { d.kinds[3] = 6; }), "byte token 3 is spelled \"a\"");
  for (const char* bad : {"<0x+1>", "<0xG0>", "<0x 1>", "<0x1>"}) {
    EXPECT_CONTAINS(error([&](auto& d) { d.kinds[3] = 6, d.tokens[3] = bad; }), "byte token 3");
  }
  const auto gpt2 = [](auto& d) {
    d.model = "gpt2";
    d.pre = "gpt-2";
  };
  // Splitters of families that are not here: refused by name, never split in some other way.
  for (const std::string pre : {"viking", "deepseek-llm", "deepseek-coder", "falcon"}) {
    EXPECT_CONTAINS(error([&](auto& d) { gpt2(d), d.pre = pre; }),
                    "tokenizer.ggml.pre \"" + pre + "\" is not supported; known are");
  }
  EXPECT_CONTAINS(error([&](auto& d) {
                    gpt2(d), d.merges = {"a b", "ab"};
                  }),
                  "tokenizer.ggml.merges[1]");
  EXPECT_CONTAINS(error([&](auto& d) { gpt2(d), d.merges = {"b a"}; }),
                  "tokenizer.ggml.merges[0]: \"b\" + \"a\": the result");
}

// ---- hostile sizes: each of these is one piece or one run, and must end within the test's time
// limit ----

TEST(TokenizerHostile, LongRunsOfOneThing) {
  constexpr std::size_t kBytes = std::size_t{1} << 18;  // 6e10 steps where time is quadratic
  std::string marks;
  while (marks.size() < kBytes) {
    marks += "\xcc\x81\xcc\xa3";
  }
  std::string specials;
  while (specials.size() < kBytes) {
    specials += " <|lstrip|><|single|>";
  }
  for (const char* name :
       {"gpt2", "llama3", "qwen2", "o200k", "deepseek", "llama2", "gemma", "unigram"}) {
    const auto tokenizer = trained(name);
    for (const std::string& text :
         {std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kBytes, '\n'),
          std::string(kBytes, '\'') + "s", marks, specials}) {
      SCOPED_TRACE(std::string(name) + ": " + text.substr(0, 8));
      const auto ids = tokenizer->encode(text, {false, true});
      ASSERT_TRUE(ids.has_value()) << ids.error().message;
      EXPECT_LE(ids->size(), text.size() + 1);
    }
  }
}

TEST(TokenizerHostile, OnePieceOfFourMegabytes) {
  for (const char* name : {"llama3", "llama2", "unigram"}) {
    const auto ids = trained(name)->encode(std::string(std::size_t{4} << 20, 'e'), {false, false});
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
  }
}

TEST(TokenizerHostile, CostlyPatternGivesUpWithAnError) {
  const auto regex = Regex::compile("(?:a|a|aa)+[bc]").value();
  const auto result = regex->find_all(std::string(4000, 'a'));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
}

// Each attempt alone is within the limits; all together are not.
TEST(TokenizerRegex, TheWorkOnATextIsBoundedAsAWhole) {
  for (const char* pattern : {
           "[a-z]+[0-9]",              // every attempt runs to the end of the letters
           "a(?=[a-z]*[0-9])",         // the same in a lookahead
           "(?:[a-f]|[a-z]){2,200}7",  // both
       }) {
    const auto regex = Regex::compile(pattern).value();
    const std::string text(400'000, 'a');
    const auto result = regex->find_all(text);
    ASSERT_FALSE(result.has_value()) << pattern;
    EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
    EXPECT_CONTAINS(result.error().message, "gave up at byte");
    EXPECT_TRUE(regex->find_all(text.substr(0, 300)).has_value()) << pattern;
  }
  // Short attempts are linear as they are.
  const auto found =
      Regex::compile("(?:a?b?){2}[0-9]").value()->find_all(std::string(400'000, 'a'));
  EXPECT_TRUE(found.has_value());
}

// Runs longer than the window, matches at its borders, and looks behind and ahead across them.
TEST(TokenizerRegex, LongTextsMatchAsShortOnes) {
  const auto count = [](const char* pattern, const std::string& text) {
    const auto found = Regex::compile(pattern).value()->find_all(text);
    EXPECT_TRUE(found.has_value()) << pattern;
    return found.value_or(std::vector<Match>{}).size();
  };
  for (const std::size_t size : {1U, 510U, 511U, 512U, 513U, 1023U, 1024U, 1025U, 300'000U}) {
    const std::string a(size, 'a');
    EXPECT_EQ(count("a+", a), 1u) << size;
    EXPECT_EQ(count("a+$", a), 1u) << size;
    EXPECT_EQ(count("a", a), size);
    EXPECT_EQ(count("a(?!a)", a), 1u) << size;
    EXPECT_EQ(count("(?<=a)b", a + "b"), 1u) << size;
    EXPECT_EQ(count("b", a + "b" + a), 1u) << size;
    EXPECT_EQ(count("\\s+(?!\\S)|\\s+|\\S+", a + std::string(size, ' ') + a), size == 1 ? 3u : 4u);
    EXPECT_EQ(count("x*", a), size + 1);
    std::string accents;
    for (std::size_t i = 0; i < size; ++i) {
      accents += "\xc3\xa9";
    }
    EXPECT_EQ(count("\\p{L}+", accents), 1u) << size;
    EXPECT_EQ(count("\\p{L}{1,3}", accents), (size + 2) / 3) << size;
  }
}

TEST(TokenizerRegex, RefusesWhatPcreReadsDifferently) {
  for (const char* pattern :
       {"[a&&b]", "[a[bc]]", "[[:alpha:]]", "\\h",          "\\R",           "\\K", "(*ACCEPT)",
        "(?R)",   "(?<n>a)", "a{,3}",       "\\p{N}{1,3}+", "\\p{Nonsense}", "[a",  "(a",
        "\\1",    "\\xff",   "\\b",         "[\\W]",        "(?s).",         "{a"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupported) << pattern;
    EXPECT_CONTAINS(regex.error().message, "regular expression");
  }
}

// ---- bytes and streams ----

TEST(Utf8, FindsTheFirstBadByte) {
  for (const auto& [text, pos] :
       std::vector<std::pair<std::string, std::size_t>>{{"ab\x80", 2},
                                                        {"\xc0\xaf", 0},
                                                        {"a\xe0\x80\x80", 1},
                                                        {"\xed\xa0\x80", 0},
                                                        {"\xf4\x90\x80\x80", 0},
                                                        {"x\xe2\x82", 1},
                                                        {"\xf8", 0}}) {
    EXPECT_EQ(find_invalid_utf8(text), pos) << text;
  }
  EXPECT_EQ(find_invalid_utf8("\xf4\x8f\xbf\xbf \xef\xbf\xbf \xed\x9f\xbf a"), std::nullopt);
}

TEST(Utf8, LossyReplacesEachMaximalPart) {
  const auto lossy = [](std::string_view bytes) {
    Utf8Lossy decoder;
    std::string out;
    decoder.push(bytes, out);
    decoder.finish(out);
    return out;
  };
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(lossy("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(lossy("\xf0\x9f\x98"
                  "a"),
            r + "a");
  EXPECT_EQ(lossy("\xe2\x82"), r);
  EXPECT_EQ(lossy("\xc0\xaf"), r + r);
  EXPECT_EQ(lossy("\xed\xa0\x80"), r + r + r);
  EXPECT_EQ(lossy("\xf0\xf0\x9f\x98\x80"), r + "\xf0\x9f\x98\x80");
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  const auto tokenizer = trained("llama2");
  const Ids ids{tokenizer->find("<0xF0>").value(), tokenizer->find("<0x9F>").value(),
                tokenizer->find("<0x98>").value(), tokenizer->find("<0x80>").value(),
                tokenizer->find("<0xE2>").value()};
  StreamDecoder decoder(tokenizer, true);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decoder.push(ids[i]).value(), "");
  }
  EXPECT_EQ(decoder.push(ids[3]).value(), "\xf0\x9f\x98\x80");
  EXPECT_EQ(decoder.push(ids[4]).value(), "");
  EXPECT_EQ(decoder.finish(), "\xef\xbf\xbd");
  EXPECT_FALSE(decoder.push(-1).has_value());
}

TEST(StreamDecoder, StripsTheFirstSpaceOnly) {
  const auto tokenizer = trained("llama2");
  const Ids ids = tokenizer->encode("a  b", {true, false}).value();
  StreamDecoder decoder(tokenizer, true);
  std::string out;
  for (const auto id : ids) {
    out += decoder.push(id).value();
  }
  EXPECT_EQ(out + decoder.finish(), "a  b");
}

// A character map in the layout of SentencePiece: every node's children are in 256 units of its
// own.
std::string charsmap_bytes(const std::vector<std::pair<std::string, std::string>>& entries) {
  struct Node {
    std::map<unsigned char, std::size_t> next;
    std::optional<std::size_t> value;
  };

  std::vector<Node> nodes(1);
  std::string replacements;
  for (const auto& [from, to] : entries) {
    std::size_t at = 0;
    for (const char c : from) {
      const auto [it, fresh] =
          nodes[at].next.try_emplace(static_cast<unsigned char>(c), nodes.size());
      at = it->second;
      if (fresh) {
        nodes.emplace_back();
      }
    }
    nodes[at].value = replacements.size();
    replacements += to + '\0';
  }
  std::vector<std::uint32_t> units(256 * (nodes.size() + 1));
  std::vector<std::size_t> place(nodes.size());  // parents come before their children
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const std::size_t base = 256 * (n + 1);
    units[place[n]] |= static_cast<std::uint32_t>((place[n] ^ base) << 10);
    if (nodes[n].value.has_value()) {
      units[place[n]] |= 1U << 8;
      units[base] = (1U << 31) | static_cast<std::uint32_t>(*nodes[n].value);
    }
    for (const auto& [byte, child] : nodes[n].next) {
      place[child] = base ^ byte;
      units[place[child]] |= byte;
    }
  }
  std::string out;
  const auto put = [&out](std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      out.push_back(static_cast<char>(value >> shift));
    }
  };
  put(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) {
    put(unit);
  }
  return out + replacements;
}

TEST(CharsMap, ShortestAndLongestPrefix) {
  const std::string bytes = charsmap_bytes({{"a", "1"}, {"ab", "2"}, {"abcd", "3"}, {"b", "4"}});
  const CharsMap map = CharsMap::parse(bytes).value();
  const auto check = [&](std::string_view text, std::string_view shortest,
                         std::string_view longest) {
    const auto first = map.shortest(text);
    const auto last = map.longest(text);
    EXPECT_EQ(first ? first->replacement : "none", shortest) << text;
    EXPECT_EQ(last ? last->replacement : "none", longest) << text;
  };
  check("a", "1", "1");
  check("abc", "1", "2");
  check("abcd!", "1", "3");
  check("ba", "4", "4");
  check("ca", "none", "none");
  EXPECT_EQ(map.shortest("abcd")->size, 1U);
  EXPECT_EQ(map.longest("abc")->size, 2U);
  EXPECT_EQ(map.longest("abcd")->size, 4U);

  // SentencePiece's own normalizer takes the longest.
  const auto spm = make_spm_normalizer(bytes, {.add_space_prefix = false}).value();
  std::string text = "abcabcda";
  ASSERT_TRUE(spm->apply(text).has_value());
  EXPECT_EQ(text, "2c31");
}

TEST(CharsMap, RefusesDamage) {
  EXPECT_FALSE(CharsMap::parse("").has_value());
  EXPECT_FALSE(CharsMap::parse(std::string("\x08\0\0\0abcd", 8)).has_value());
  EXPECT_FALSE(CharsMap::parse(std::string("\x03\0\0\0abcd", 8)).has_value());
}

}  // namespace
}  // namespace trine::text
