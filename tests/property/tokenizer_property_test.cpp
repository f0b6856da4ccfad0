// Splitters against PCRE2, streams against whole decodes, and round trips, on random Unicode text.
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "text/pattern.h"
#include "text/splitters.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

// Characters that the patterns tell apart, and any others.
char32_t pick(std::uint32_t seed) {
  static const std::u32string interesting =
      U"'''''ssSstTmMdDrReEvVlLſKabcABC   "
      U"\t\n\r\r\n\u00a0\u3000\u2028\u0085\u180e\u200b0123456789²½Ⅷ१٣.,;:!?-_/\\\"()"
      U"[]{}<>@#$%^&*+=|~`"
      U"éÉßǅʰªあア中한कािংกםיאع\u0301\u0303\u20dd😀👍🏽\u200d\ufe0f🇩\U00010400\U0001d7d8\0\u0007";
  if (seed % 8 != 0) {
    return interesting[(seed / 8) % interesting.size()];
  }
  const char32_t c = (seed / 8) % 0x30000;
  return c >= 0xd800 && c < 0xe000 ? U'x' : c;
}

std::string make_text(const std::vector<std::uint32_t>& seeds) {
  std::string out;
  for (const std::uint32_t seed : seeds) {
    // Runs matter: every ninth choice repeats the character.
    for (std::uint32_t n = seed % 9 == 0 ? 1 + seed / 9 % 5 : 1; n > 0; --n) {
      append_utf8(out, pick(seed));
    }
  }
  return out;
}

std::shared_ptr<const Tokenizer> trained(const std::string& name) {
  std::ifstream in(
      std::string(TRINE_SOURCE_DIR) + "/tests/golden/tokenizers/" + name + ".tokenizer.json",
      std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  return Tokenizer::from_json(json, "").value();
}

void splitter_equals_pcre(SplitPattern pattern) {
  const auto regex = Regex::compile(pattern_regex(pattern)).value();
  rc::check([&](const std::vector<std::uint32_t>& seeds) {
    const std::string text = make_text(seeds);
    std::vector<std::size_t> ends;
    for (std::size_t pos = 0; pos < text.size();) {
      const std::size_t end = next_piece(pattern, text, pos);
      RC_ASSERT(end > pos && end <= text.size());
      ends.push_back(end);
      pos = end;
    }
    std::vector<std::size_t> expected;
    std::size_t done = 0;
    const auto matches = regex->find_all(text).value();
    for (const Match& match : matches) {
      RC_ASSERT(match.begin == done);
      expected.push_back(match.end);
      done = match.end;
    }
    RC_ASSERT(ends == expected);
  });
}

TEST(SplitterProperty, Gpt2EqualsPcre) {
  splitter_equals_pcre(SplitPattern::kGpt2);
}

TEST(SplitterProperty, Llama3EqualsPcre) {
  splitter_equals_pcre(SplitPattern::kLlama3);
}

TEST(SplitterProperty, Qwen2EqualsPcre) {
  splitter_equals_pcre(SplitPattern::kQwen2);
}

TEST(SplitterProperty, O200kEqualsPcre) {
  splitter_equals_pcre(SplitPattern::kO200k);
}

TEST(SplitterProperty, TekkenEqualsPcre) {
  splitter_equals_pcre(SplitPattern::kTekken);
}

TEST(SplitterProperty, SpellingsOfOnePatternAgree) {
  // The possessive cl100k spelling is served by Llama 3's splitter.
  const auto regex =
      Regex::compile(
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)")
          .value();
  rc::check([&](const std::vector<std::uint32_t>& seeds) {
    const std::string text = make_text(seeds);
    std::size_t pos = 0;
    const auto matches = regex->find_all(text).value();
    for (const Match& match : matches) {
      RC_ASSERT(match.end == next_piece(SplitPattern::kLlama3, text, pos));
      pos = match.end;
    }
    RC_ASSERT(pos == text.size());
  });
}

TEST(DecodeProperty, StreamConcatenatesToTheWhole) {
  for (const char* name : {"gpt2", "llama2", "llama2-metaspace", "unigram-bytes"}) {
    const auto tokenizer = trained(name);
    rc::check(name, [&](const std::vector<std::uint16_t>& seeds, bool skip_special) {
      std::vector<std::int32_t> ids;
      for (const std::uint16_t seed : seeds) {
        ids.push_back(seed % tokenizer->vocab_size());
      }
      StreamDecoder decoder(tokenizer, skip_special);
      std::string streamed;
      for (const auto id : ids) {
        const std::string text = decoder.push(id).value();
        RC_ASSERT(
            !find_invalid_utf8(text).has_value());  // whole characters only, also piece by piece
        streamed += text;
      }
      streamed += decoder.finish();
      RC_ASSERT(streamed == tokenizer->decode(ids, skip_special).value());
    });
  }
}

TEST(EncodeProperty, ByteLevelRoundTrips) {
  for (const char* name : {"gpt2", "llama3", "o200k", "smollm", "deepseek", "gemma", "llama2"}) {
    const auto tokenizer = trained(name);
    rc::check(name, [&](const std::vector<std::uint32_t>& seeds) {
      const std::string text = make_text(seeds);
      const auto ids = tokenizer->encode(text, {false, false}).value();
      for (const auto id : ids) {
        RC_ASSERT(tokenizer->kind(id) != TokenKind::kControl);
      }
      RC_ASSERT(tokenizer->decode(ids, false).value() == text);
    });
  }
}

// However a text is cut into user and template parts without control tokens in it, the ids are
// those of the whole.
TEST(EncodeProperty, PartBordersDoNotMatter) {
  const auto tokenizer = trained("llama3");
  rc::check([&](const std::vector<std::vector<std::uint32_t>>& seeds, bool user_first) {
    std::vector<TextPart> parts;
    std::string whole;
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      parts.push_back({make_text(seeds[i]), (i % 2 == 0) == user_first});
      whole += parts.back().text;
    }
    RC_ASSERT(tokenizer->encode_parts(parts, true).value() ==
              tokenizer->encode(whole, {true, false}).value());
  });
}

TEST(NormalizeProperty, FormsAreStable) {
  rc::check([](const std::vector<std::uint32_t>& seeds) {
    const std::string text = make_text(seeds);
    const std::string nfc = normalize_utf8(text, NormalForm::kNfc);
    const std::string nfd = normalize_utf8(text, NormalForm::kNfd);
    RC_ASSERT(normalize_utf8(nfd, NormalForm::kNfc) == nfc);
    RC_ASSERT(normalize_utf8(nfc, NormalForm::kNfd) == nfd);
    RC_ASSERT(!find_invalid_utf8(nfc).has_value());
  });
}

}  // namespace
}  // namespace trine::text
