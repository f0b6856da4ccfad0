// Masks against a naive check, rollback, forced text, the cache.
#include "grammar/matcher.h"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/compile.h"
#include "grammar/limits.h"
#include "text/tokenizer.h"

namespace trine::grammar {
namespace {

std::shared_ptr<const text::Tokenizer> docs_tokenizer() {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/assets/models/docs-8m/tokenizer.json",
                   std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  return text::Tokenizer::from_json(json, "").value();
}

bool bit(const std::vector<std::uint64_t>& mask, std::int32_t id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64) & 1) != 0;
}

std::vector<std::uint64_t> mask_of(Matcher& matcher) {
  std::vector<std::uint64_t> mask(matcher.grammar().vocabulary().mask_words());
  EXPECT_TRUE(matcher.mask(mask).has_value());
  return mask;
}

const std::vector<std::pair<Notation, std::string>>& grammars() {
  static const std::vector<std::pair<Notation, std::string>> all = {
      {Notation::kJsonObject, ""},
      {Notation::kRegex, "([a-zé]+ ){1,5}[0-9]{2,4}\\."},
      {Notation::kGbnf, "root ::= \"(\" root \")\" root | [a-z]*"},
      {Notation::kJsonSchema,
       R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":150},)"
       R"("tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3},"more":{"$ref":"#"}},"required":["name"]})"},
  };
  return all;
}

// A random walk along the masks; every mask equals trying each token on a copy.
TEST(Matcher, MaskEqualsTryingEveryToken) {
  const auto trie = TokenTrie::build(*docs_tokenizer());
  std::mt19937 random(7);
  for (const auto& [notation, text] : grammars()) {
    const auto grammar = CompiledGrammar::create(compile(notation, text).value(), trie);
    auto matcher = Matcher::create(grammar).value();
    for (int step = 0; step < 12 && !matcher.is_finished(); ++step) {
      const auto mask = mask_of(matcher);
      std::vector<std::int32_t> allowed;
      for (std::int32_t id = 0; id < trie->vocab_size(); ++id) {
        const bool taken = matcher.accept(id).has_value();
        if (taken) {
          ASSERT_TRUE(matcher.rollback(1).has_value());
          allowed.push_back(id);
        }
        ASSERT_EQ(bit(mask, id), taken) << text << " token " << id;
      }
      EXPECT_EQ(mask_of(matcher), mask) << "rollback";
      ASSERT_FALSE(allowed.empty()) << text;
      ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]).has_value());
    }
  }
}

// Whatever is sampled along the masks is valid JSON when it ends, and never gets stuck.
TEST(Matcher, RandomWalksOfASchemaParse) {
  const auto trie = TokenTrie::build(*docs_tokenizer());
  const auto grammar =
      CompiledGrammar::create(compile(grammars()[3].first, grammars()[3].second).value(), trie);
  std::mt19937 random(11);
  int ended = 0;
  for (int walk = 0; walk < 40; ++walk) {
    auto matcher = Matcher::create(grammar).value();
    std::string out;
    for (int step = 0; step < 400 && !matcher.is_finished(); ++step) {
      const auto mask = mask_of(matcher);
      std::vector<std::int32_t> allowed;
      for (std::int32_t id = 0; id < trie->vocab_size(); ++id) {
        if (bit(mask, id)) {
          allowed.push_back(id);
        }
      }
      ASSERT_FALSE(allowed.empty()) << out;
      const std::int32_t id = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.accept(id).has_value());
      out += trie->bytes(id);
    }
    if (matcher.is_finished()) {
      ++ended;
      const auto value = parse_json(out);
      ASSERT_TRUE(value.has_value()) << out;
      EXPECT_TRUE(value->contains("name")) << out;
    }
  }
  EXPECT_GT(ended, 10);
}

TEST(Matcher, ForcedTextStopTokensAndErrors) {
  const auto trie =
      TokenTrie::build({"a", "b", "ab", "</s>", "", "abab"}, std::vector<std::int32_t>{3});
  auto matcher =
      Matcher::create(CompiledGrammar::create(compile_regex("ababa(x|y)?").value(), trie)).value();
  std::string bytes;
  ASSERT_TRUE(matcher.forced_bytes(100, bytes).has_value());
  EXPECT_EQ(bytes, "ababa");
  std::vector<std::int32_t> tokens;
  ASSERT_TRUE(matcher.forced_tokens(8, tokens).has_value());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{5, 0}));
  EXPECT_FALSE(matcher.accept(3).has_value());
  EXPECT_FALSE(matcher.accept(1).has_value());
  EXPECT_FALSE(matcher.accept(4).has_value());
  EXPECT_FALSE(matcher.accept(99).has_value());
  ASSERT_TRUE(matcher.accept(5).has_value());
  ASSERT_TRUE(matcher.accept(0).has_value());
  EXPECT_TRUE(matcher.is_accepting());
  Matcher copy = matcher;
  ASSERT_TRUE(copy.accept(3).has_value());
  EXPECT_TRUE(copy.is_finished());
  EXPECT_EQ(mask_of(copy), std::vector<std::uint64_t>{0});
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_FALSE(matcher.rollback(3).has_value());
  ASSERT_TRUE(matcher.rollback(2).has_value());
  EXPECT_EQ(mask_of(matcher), std::vector<std::uint64_t>{(1u << 0) | (1u << 2) | (1u << 5)});
}

TEST(Matcher, AmbiguityEndsInAnError) {
  const auto trie = TokenTrie::build({"a", "b", "c"}, {});
  const auto automaton =
      compile_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"").value();
  auto matcher = Matcher::create(CompiledGrammar::create(automaton, trie)).value();
  Status status;
  int steps = 0;
  for (; steps < 100 && status.has_value(); ++steps) {
    status = matcher.accept(0);
  }
  EXPECT_LT(steps, 30);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
}

TEST(GrammarCache, KeepsWhatFits) {
  const auto trie = TokenTrie::build({"a"}, {});
  GrammarCache cache(trie, 2 * kMaskCacheBytes + 4096);
  const auto first = cache.get(Notation::kRegex, "a").value();
  EXPECT_EQ(cache.get(Notation::kRegex, "a").value(), first);
  EXPECT_FALSE(cache.get(Notation::kRegex, "(").has_value());
  ASSERT_TRUE(cache.get(Notation::kRegex, "aa").has_value());
  ASSERT_TRUE(cache.get(Notation::kRegex, "aaa").has_value());
  EXPECT_LE(cache.num_bytes(), 2 * kMaskCacheBytes + 4096);
  EXPECT_NE(cache.get(Notation::kRegex, "a").value(), first);
}

}  // namespace
}  // namespace trine::grammar
