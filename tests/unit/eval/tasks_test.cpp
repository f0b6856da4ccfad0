#include "eval/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Task> one(std::string_view line) {
  TRINE_TRY_ASSIGN(std::vector<Task> tasks, parse_tasks(line, "t.jsonl"));
  return std::move(tasks.front());
}

TEST(Tasks, EveryKindIsRead) {
  const auto tasks = parse_tasks(R"({"id": "a", "prompt": "2+2=", "kind": "exact", "answer": "4"}

{"prompt": "p", "kind": "contains", "answers": ["x", "y"], "match": "all", "ignore": ["case"]}
{"id": 7, "prompt": "p", "kind": "regex", "answer": "^\\d+$", "tags": ["t", "u"], "weight": 2.5}
{"prompt": "p", "kind": "numeric", "answers": [1, -2.5e3], "tolerance": 0.5, "max_tokens": 9}
{"prompt": "p", "kind": "json", "answer": {"a": [1]}, "stop": ["\n"]}
{"prompt": "p", "kind": "json"}
{"messages": [{"role": "user", "content": "Which?"}], "kind": "choice", "choices": ["no", "yes"], "answer": "yes", "normalize": "chars"}
{"prompt": "p", "kind": "choice", "choices": ["no", "yes"], "answer": 0}
{"prompt": "p", "kind": "label", "labels": ["good", "bad"], "answer": "bad"}
)",
                                 "t.jsonl");
  ASSERT_TRUE(tasks.has_value()) << tasks.error().message;
  ASSERT_EQ(tasks->size(), 9U);
  const auto& t = *tasks;
  EXPECT_EQ(t[0].id, "a");
  EXPECT_EQ(t[1].id, "line 3");
  EXPECT_EQ(t[1].match, Task::Match::kAll);
  EXPECT_TRUE(t[1].ignored.letter_case);
  EXPECT_EQ(t[2].id, "7");
  EXPECT_EQ(t[2].weight, 2.5);
  EXPECT_THAT(t[2].tags, ElementsAre("t", "u"));
  EXPECT_EQ(t[2].patterns.size(), 1U);
  EXPECT_THAT(t[3].numbers, ElementsAre(1.0, -2500.0));
  EXPECT_EQ(t[3].max_tokens, 9);
  EXPECT_EQ(t[4].json, R"({"a":[1]})");
  EXPECT_THAT(t[4].stop, ElementsAre("\n"));
  EXPECT_EQ(t[5].json, "");
  EXPECT_EQ(t[6].right_choice, 1U);
  EXPECT_EQ(t[6].normalize, Task::Normalize::kChars);
  EXPECT_EQ(asked_text(t[6]), "Which?\n");
  EXPECT_EQ(t[7].right_choice, 0U);
  EXPECT_THAT(t[8].answers, ElementsAre("bad"));
  EXPECT_EQ(t[8].line, 10);
}

TEST(Tasks, ErrorsNameLineAndField) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "t.jsonl: no tasks"},
      {"\n\n", "t.jsonl: no tasks"},
      {"[]", "t.jsonl:1: a JSON object is expected"},
      {"\n{\"kind\"", "t.jsonl:2: "},
      {R"({"prompt": "p"})", R"("kind" is missing)"},
      {R"({"prompt": "p", "kind": "essay"})", R"("kind" is "essay", expected one of exact)"},
      {R"({"prompt": "p", "kind": "exact"})", R"(neither "answer" and "answers")"},
      {R"({"prompt": "p", "kind": "exact", "answer": "a", "answers": ["b"]})", R"(both "answer")"},
      {R"({"prompt": "p", "kind": "exact", "answer": 4})", R"("answer" is 4, expected a text)"},
      {R"({"prompt": "p", "kind": "exact", "answers": []})", R"("answers" is [])"},
      {R"({"prompt": "p", "kind": "contains", "answer": ""})", R"("answer" is "")"},
      {R"({"kind": "json"})", R"(neither "prompt" and "messages")"},
      {R"({"prompt": "", "kind": "json"})", R"("prompt" is "")"},
      {R"({"prompt": "p", "messages": [], "kind": "json"})", R"(both "prompt" and "messages")"},
      {R"({"messages": [], "kind": "json"})", R"("messages" is [])"},
      {R"({"messages": [{"role": "user"}], "kind": "json"})", R"("messages" is [{"role":"user"}])"},
      {R"({"prompt": "p", "kind": "json", "labels": ["a"]})",
       R"("labels" is no field of a task of kind json)"},
      {R"({"prompt": "p", "kind": "json", "colour": 1})", R"("colour" is no field)"},
      {R"({"prompt": "p", "kind": "json", "id": ""})", R"("id" is "")"},
      {R"({"prompt": "p", "kind": "json", "weight": 0})", R"("weight" is 0)"},
      {R"({"prompt": "p", "kind": "json", "weight": -1})", R"("weight" is -1)"},
      {R"({"prompt": "p", "kind": "json", "weight": "2"})", R"("weight" is "2")"},
      {R"({"prompt": "p", "kind": "json", "max_tokens": 0})", R"("max_tokens" is 0)"},
      {R"({"prompt": "p", "kind": "json", "max_tokens": 1.5})", R"("max_tokens" is 1.5)"},
      {R"({"prompt": "p", "kind": "json", "stop": [""]})", R"("stop" is [""])"},
      {R"({"prompt": "p", "kind": "json", "tags": "a"})", R"("tags" is "a")"},
      {R"({"prompt": "p", "kind": "exact", "answer": "a", "ignore": ["accents"]})",
       R"("ignore" is ["accents"], expected a list of case, space, punctuation)"},
      {R"({"prompt": "p", "kind": "contains", "answer": "a", "match": "some"})",
       R"("match" is "some")"},
      {R"({"prompt": "p", "kind": "regex", "answer": "("})", R"("answer": )"},
      {R"({"prompt": "p", "kind": "numeric", "answer": "4"})", R"("answer" is "4")"},
      {R"({"prompt": "p", "kind": "numeric", "answers": [1, "x"]})", R"("answers" is [1,"x"])"},
      {R"({"prompt": "p", "kind": "numeric", "answer": 1, "tolerance": -1})",
       R"("tolerance" is -1)"},
      {R"({"prompt": "p", "kind": "numeric", "answer": 1, "relative_tolerance": 2})",
       R"("relative_tolerance" is 2, expected a number from 0 to 1)"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a"], "answer": 0})",
       R"("choices": 1 different texts)"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "a"], "answer": 0})",
       R"("choices": 1 different texts)"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "b"], "answer": 2})",
       R"("answer" is 2, expected a choice, or its index from 0 to 1)"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "b"], "answer": "c"})",
       R"("answer" is "c", expected one of "choices")"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "b"]})", R"("answer" is missing)"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "b"], "answer": 0, "normalize": "x"})",
       R"("normalize" is "x")"},
      {R"({"prompt": "p", "kind": "choice", "choices": ["a", "b"], "answer": 0, "max_tokens": 4})",
       R"("max_tokens" is no field of a task of kind choice)"},
      {R"({"prompt": "p", "kind": "label", "labels": ["a"], "answer": "a"})",
       R"("labels": expected two or more)"},
      {R"({"prompt": "p", "kind": "label", "labels": ["a", "b"], "answer": "c"})",
       R"("answer" is "c", expected one of "labels")"},
      {R"({"prompt": "p", "kind": "label", "labels": ["a", "b"]})", R"("answer" is missing)"},
  };
  for (const auto& [line, message] : cases) {
    const auto task = one(line);
    ASSERT_FALSE(task.has_value()) << line;
    EXPECT_EQ(task.error().code, ErrorCode::kInvalidArgument) << line;
    EXPECT_THAT(task.error().message, HasSubstr(message)) << line;
  }
  EXPECT_THAT(parse_tasks("{\"id\": \"line 2\", \"prompt\": \"p\", \"kind\": \"json\"}\n"
                          "{\"prompt\": \"p\", \"kind\": \"json\"}",
                          "t.jsonl")
                  .error()
                  .message,
              HasSubstr("t.jsonl:2: \"id\" is 'line 2', as in line 1"));
}

}  // namespace
}  // namespace trine::eval
