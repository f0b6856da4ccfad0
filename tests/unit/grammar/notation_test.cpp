// GBNF, regular expressions and choices: accepted and rejected texts, and the texts of errors.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/compile.h"
#include "grammar_text.h"

namespace trine::grammar {
namespace {

using ::testing::HasSubstr;

TEST(Regex, Languages) {
  const std::vector<LanguageCase> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"^a|b$", {"a", "b"}, {"ab", ""}},
      {"a*", {"", "a", "aaa"}, {"b"}},
      {"(?:ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
      {"[^a-c]", {"d", "é", "😀"}, {"a", "b", "", "dd"}},
      {"\\d{3}-\\w+\\s", {"123-a_Z ", "000-9\t"}, {"12-a ", "123- "}},
      {".", {"x", "é", "€", "😀"}, {"\n", "\xff", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"}},
      {"[\\u00e9-\\u20ac]", {"é", "€"}, {"e", "ß", "₭"}},
      {"(x?)*y", {"y", "xxxy"}, {"x"}},
      {"(a|aa)+", {"a", "aaaaaaaaaaaaaaaaaaaaaaaa"}, {"", "b"}},
      {"\\x41\\.\\{", {"A.{"}, {"AB{"}},
      {"(?<n>a)(?P<m>b)", {"ab"}, {"a"}},
      {"a+?b", {"ab", "aab"}, {"b"}},
  };
  expect_languages(compile_regex, cases);
}

TEST(Regex, ErrorsNameConstructAndOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(?=b)", "regex offset 1: look-around is not supported"},
      {"(a)\\1", "regex offset 3: a backreference is not supported"},
      {"a\\b", "regex offset 1: a word boundary"},
      {"(a", "regex offset 0: '(' without ')'"},
      {"a)", "regex offset 1: ')' without '('"},
      {"[a", "regex offset 0: '[' without ']'"},
      {"*a", "regex offset 0: nothing to repeat"},
      {"a{2,1}", "{2,1} is empty"},
      {"a{99999}", "at most 10000"},
      {"a++", "possessive"},
      {"a^", "anchor"},
      {"\\p{L}", "Unicode property"},
      {"\\ud800", "U+D800 is not a character"},
      {"\\u12g4", "4 hexadecimal digits expected"},
      {"a{", "a number is missing"},
      {"(?i)a", "inline flag"},
      {std::string(40, '(') + "a" + std::string(40, ')'), "groups nested deeper than 32"},
      {"((((a{1000}){1000}){1000}b{9000}c{9000}){9})" + std::string(3, 'x') + "(aaa){10000}{2}",
       "a quantifier after"},
  };
  for (const auto& [pattern, text] : cases) {
    EXPECT_THAT(error_of(compile_regex(pattern)), HasSubstr(text)) << pattern;
  }
}

// Nested repetitions add up instead of multiplying.
TEST(Regex, NestedRepetitionsStaySmall) {
  const auto made = compile_regex("(((a{1000}){1000}){1000}){1000}");
  ASSERT_TRUE(made.has_value()) << error_of(made);
  EXPECT_LT((*made)->num_states(), 10000u);
  std::string many;
  for (int i = 0; i < 40; ++i) {
    many += "(?:x{10000}y)";
  }
  EXPECT_THAT(error_of(compile_regex(many)), HasSubstr("automaton states, at most 262144"));
}

TEST(Gbnf, Languages) {
  const std::vector<LanguageCase> cases = {
      {"root ::= \"a\" b?\nb ::= [0-9]+ # digits\n", {"a", "a12"}, {"", "ab", "12"}},
      {"root ::= (\"a\" |\n  \"b\")* end\nend ::= \".\"",
       {".", "ab."},
       {"ab",
        "."
        "."}},
      {"root ::= \"x\"{2,3}\n  | \"y\"{2}\n", {"xx", "xxx", "yy"}, {"x", "xxxx", "y"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()"}},
      {"root ::= [^\"\\\\\\n] .", {"a\n", "é€"}, {"\"a", "a"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\"", {"Aé😀"}, {"A"}},
      {"root ::= item*\nitem ::= \"a\" | \"b\" item", {"", "abba"}, {"c"}},
  };
  expect_languages(compile_gbnf, cases);
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"root ::= \"a\"\nb := \"c\"", "grammar 2:3: '::=' expected"},
      {"root ::= missing", "grammar 1:10: rule \"missing\" is not defined"},
      {"x ::= \"a\"", "no rule \"root\""},
      {"root ::= a\na ::= \"x\"? a \"y\" | \"\"", "rule \"a\" is left-recursive"},
      {"root ::= \"a\" root", "rule \"root\" matches no finite text"},
      {"root ::= \"a\nb\"", "'\"' without an end"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar 2:1: rule \"root\" is defined twice"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\U00110000\"", "U+110000 is not a character"},
      {"root ::= \"a\"{x}", "grammar 1:14: a number is missing"},
      {"root ::= \"a\"{10001}", "grammar 1:14: 10001 repetitions or more, at most 10000"},
      {"root ::= " + std::string(40, '(') + "\"a\"" + std::string(40, ')'),
       "groups nested deeper than 32"},
  };
  for (const auto& [grammar, text] : cases) {
    EXPECT_THAT(error_of(compile_gbnf(grammar)), HasSubstr(text)) << grammar;
  }
}

TEST(Gbnf, DepthEndsWhereItCanBeClosed) {
  const auto made = compile_gbnf("root ::= \"(\" root \")\" | \"\"");
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(matches(*made, std::string(100, '(') + std::string(100, ')')));
  EXPECT_FALSE(matches(*made, std::string(1000, '(') + std::string(1000, ')')));
  // A list by right recursion opens no rules.
  const auto list = compile_gbnf("root ::= \"a\" root | \"b\"");
  EXPECT_TRUE(matches(*list, std::string(5000, 'a') + "b"));
}

TEST(Choice, Languages) {
  const auto made = compile(Notation::kChoice, R"(["yes","no","yes, but"])");
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(matches(*made, "yes"));
  EXPECT_TRUE(matches(*made, "yes, but"));
  EXPECT_FALSE(matches(*made, "yes, "));
  EXPECT_THAT(error_of(compile(Notation::kChoice, "[]")), HasSubstr("no alternative"));
}

}  // namespace
}  // namespace trine::grammar
