#include "eval/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/leakage.h"

namespace trine::eval {
namespace {

Task task_of(std::string_view fields) {
  const auto tasks = parse_tasks(fmt::format(R"({{"prompt": "p", {}}})", fields), "t.jsonl");
  EXPECT_TRUE(tasks.has_value()) << tasks.error().message;
  return tasks->front();
}

double score(const Task& task, std::string_view answer) {
  const auto out = score_answer(task, answer);
  EXPECT_TRUE(out.has_value());
  return out->value;
}

TEST(Scoring, Exact) {
  const Task plain = task_of(R"("kind": "exact", "answers": ["New York", "NYC"])");
  EXPECT_EQ(score(plain, "New York"), 1.0);
  EXPECT_EQ(score(plain, " New \n York\n"), 1.0);
  EXPECT_EQ(score(plain, "NYC"), 1.0);
  EXPECT_EQ(score(plain, "\xef\xbc\xae\xef\xbc\xb9\xef\xbc\xa3"), 1.0);  // full width: NFKC
  EXPECT_EQ(score(plain, "new york"), 0.0);
  EXPECT_EQ(score(plain, "New York."), 0.0);
  EXPECT_EQ(score(plain, "NewYork"), 0.0);
  const Task loose = task_of(
      R"("kind": "exact", "answer": "New York", "ignore": ["case", "space", "punctuation"])");
  EXPECT_EQ(score(loose, "\"newyork\"."), 1.0);
  EXPECT_EQ(score(loose, "new yorks"), 0.0);
  EXPECT_EQ(score(task_of(R"("kind": "exact", "answer": "")"), " \n"), 1.0);
}

TEST(Scoring, Contains) {
  const std::string fields = R"("kind": "contains", "answers": ["red", "blue"], "match": "{}")";
  const Task any = task_of(fmt::format(fmt::runtime(fields), "any"));
  const Task all = task_of(fmt::format(fmt::runtime(fields), "all"));
  const Task none = task_of(fmt::format(fmt::runtime(fields), "none"));
  EXPECT_EQ(score(any, "a red one"), 1.0);
  EXPECT_EQ(score(all, "a red one"), 0.0);
  EXPECT_EQ(score(all, "blue, then red"), 1.0);
  EXPECT_EQ(score(none, "green"), 1.0);
  EXPECT_EQ(score(none, "a red one"), 0.0);
  EXPECT_EQ(score(any, "Red"), 0.0);
}

TEST(Scoring, Regex) {
  const Task any = task_of(R"("kind": "regex", "answers": ["\\d{4}", "^never$"])");
  EXPECT_EQ(score(any, "in 1999"), 1.0);
  EXPECT_EQ(score(any, "never"), 1.0);
  EXPECT_EQ(score(any, "in 199"), 0.0);
  const Task word = task_of(R"("kind": "regex", "answer": "(?i)\\bsys\\b")");
  EXPECT_EQ(score(word, std::string(600, '-') + " SYS\n"), 1.0);
  EXPECT_EQ(score(word, "system"), 0.0);
  EXPECT_EQ(score(task_of(R"("kind": "regex", "answer": "error", "match": "none")"), "fine"), 1.0);
}

TEST(Scoring, NumericReadsTheLastNumber) {
  const std::pair<std::string_view, double> cases[] = {
      {"The answer is 42.", 42},
      {"1,234,567", 1234567},
      {"12,34", 34},
      {"3-4", 4},
      {"x = -4", -4},
      {"-0.5e-3 m", -0.5e-3},
      {"costs $1,200.50", 1200.5},
      {"part-4", 4},
      {"is .5", 0.5},
      {"1.2.3", 3},
      {"2 then 3e", 3},
      {"(a)-7", 7},
      {"1234,567", 567},
      {"50%", 50},
      {"7E2", 700},
  };
  for (const auto& [text, number] : cases) {
    EXPECT_EQ(last_number(text), number) << text;
  }
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(last_number("1e999 apples"), std::nullopt);
  const Task task = task_of(R"("kind": "numeric", "answers": [10, 1000], "tolerance": 0.5)");
  EXPECT_EQ(score(task, "about 10.5"), 1.0);
  EXPECT_EQ(score(task, "about 10.6"), 0.0);
  EXPECT_EQ(score(task, "1000"), 1.0);
  EXPECT_EQ(score(task, ""), 0.0);
  const Task share = task_of(R"("kind": "numeric", "answer": -200, "relative_tolerance": 0.01)");
  EXPECT_EQ(score(share,
                  "\xe2\x88\x92"
                  "198"),
            1.0);  // Unicode's minus
  EXPECT_EQ(score(share, "\xef\xbc\x8d\xef\xbc\x92\xef\xbc\x90\xef\xbc\x92"), 1.0);  // full width
  EXPECT_EQ(score(share, "-197"), 0.0);
  EXPECT_EQ(score(share, "200"), 0.0);
}

TEST(Scoring, Json) {
  const Task any = task_of(R"("kind": "json")");
  EXPECT_EQ(score(any, " {\"a\": 1}\n"), 1.0);
  EXPECT_EQ(score(any, "```json\n{\"a\": 1}\n```"), 1.0);
  EXPECT_EQ(score(any, "Here it is: {}"), 0.0);
  EXPECT_TRUE(score_answer(any, "{\"a\": }")->invalid_json);
  EXPECT_FALSE(score_answer(any, "[]")->invalid_json);
  const Task fields = task_of(R"("kind": "json", "answer": {"name": "x", "tags": ["a", "b"]})");
  EXPECT_EQ(score(fields, R"({"tags": ["a", "b"], "name": "x"})"), 1.0);
  // Two of three leaves are right, of two and of four.
  EXPECT_DOUBLE_EQ(score(fields, R"({"name": "x", "tags": ["a"]})"), 2.0 * 2 / (3 + 2));
  EXPECT_DOUBLE_EQ(score(fields, R"({"name": "x", "tags": ["b", "b"], "more": 1})"),
                   2.0 * 2 / (3 + 4));
  EXPECT_EQ(score(fields, "{}"), 0.0);
  EXPECT_EQ(json_f1("1", "1.0"), 1.0);
  EXPECT_EQ(json_f1("\"1\"", "1"), 0.0);
  EXPECT_EQ(json_f1("{}", "{}"), 1.0);
  EXPECT_EQ(json_f1("[]", "{}"), 0.0);
}

TEST(Scoring, Label) {
  const Task task =
      task_of(R"("kind": "label", "labels": ["good", "not good", "Bad"], "answer": "not good")");
  const auto read_as = [&](std::string_view answer) { return score_answer(task, answer)->read_as; };
  EXPECT_EQ(read_as("Good"), "good");
  EXPECT_EQ(read_as("bad\n"), "Bad");
  EXPECT_EQ(read_as("It is good."), "good");
  EXPECT_EQ(read_as("It is not good."), "not good");
  EXPECT_EQ(read_as("goodness"), "");
  EXPECT_EQ(read_as("good or bad"), "");
  EXPECT_EQ(read_as(""), "");
  EXPECT_EQ(score(task, "NOT GOOD"), 1.0);
  EXPECT_EQ(score(task, "good"), 0.0);
  // Scripts without blanks have no word ends.
  const std::string good = "\xe5\xa5\xbd";
  const std::string bad = "\xe5\x9d\x8f";
  const Task han = task_of(
      fmt::format(R"("kind": "label", "labels": ["{0}", "{1}"], "answer": "{1}")", good, bad));
  EXPECT_EQ(score_answer(han, "\xe5\xbe\x88" + bad)->read_as, bad);
  EXPECT_EQ(score_answer(han, good + bad)->read_as, "");
}

TEST(Failures, Circles) {
  std::vector<std::int32_t> tokens(10, 5);
  EXPECT_FALSE(runs_in_circles(tokens));
  tokens.assign(24, 5);
  EXPECT_TRUE(runs_in_circles(tokens));
  tokens.push_back(6);
  EXPECT_FALSE(runs_in_circles(tokens));  // it got out
  tokens = {1, 2, 3};
  for (int i = 0; i < 40; ++i) {
    tokens.push_back(10 + i % 10);
  }
  EXPECT_TRUE(runs_in_circles(tokens));
  tokens.pop_back();
  EXPECT_FALSE(runs_in_circles(tokens));  // 39 of 40
  tokens.clear();
  for (int i = 0; i < 300; ++i) {
    tokens.push_back(i % 65);
  }
  EXPECT_FALSE(runs_in_circles(tokens));
  EXPECT_FALSE(runs_in_circles({}));
}

TEST(Failures, LanguageSwitch) {
  const std::string_view chinese =
      "\xe8\xbf\x99\xe6\x98\xaf\xe4\xb8\xad\xe6\x96\x87\xe7\x9a\x84\xe5\x9b\x9e\xe7\xad\x94";
  EXPECT_EQ(main_script("plain English"), "Latin");
  EXPECT_EQ(main_script("short"), "");
  EXPECT_EQ(main_script(std::string(chinese) + std::string(chinese)), "Han");
  const std::string answer = std::string(chinese) + std::string(chinese);
  EXPECT_TRUE(switches_language(answer, "What is the capital of France?"));
  EXPECT_FALSE(switches_language(answer, std::string("Translate: ") + answer));
  EXPECT_FALSE(switches_language("plain English", "What?"));
  EXPECT_FALSE(switches_language(answer, "1 + 1 = ?"));  // asked in no script at all
  EXPECT_FALSE(switches_language("42", "What?"));
}

TEST(Leakage, LongNGramsAndWholes) {
  const std::string calibration =
      "The quick brown fox jumps over the lazy dog and runs far away into the dark forest, where "
      "it meets an owl.";
  const LeakageIndex index({calibration, "Short question?"});
  EXPECT_EQ(index.share(calibration), 1.0);
  EXPECT_EQ(index.share("THE quick - brown fox jumps over the lazy dog and runs far away!"), 1.0);
  EXPECT_EQ(index.share("short QUESTION"), 1.0);
  EXPECT_EQ(index.share("short question here"), 0.0);
  EXPECT_EQ(index.share("The quick brown fox jumps over the lazy dog"), 0.0);  // too short to tell
  EXPECT_EQ(index.share(""), 0.0);
  const double part = index.share(
      "the quick brown fox jumps over the lazy dog and runs far away but never comes back to us");
  EXPECT_DOUBLE_EQ(part, 1.0 / 7.0);
}

TEST(Leakage, CharactersOfScriptsWithoutBlanksAreWords) {
  std::string text;
  for (int i = 0; i < 14; ++i) {
    text += std::string("\xe4\xb8") + static_cast<char>(0x80 + i);
  }
  const LeakageIndex index({"x" + text + "y"});
  EXPECT_EQ(index.share(text), 1.0);
  EXPECT_EQ(index.share(text + text.substr(0, 3)), 2.0 / 3.0);
}

}  // namespace
}  // namespace trine::eval
