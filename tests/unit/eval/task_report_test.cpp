#include "eval/task_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Task task(TaskKind kind, double weight, std::vector<std::string> tags) {
  Task out;
  out.kind = kind;
  out.weight = weight;
  out.tags = std::move(tags);
  return out;
}

std::vector<TaskAnswer> scores(const std::vector<double>& values) {
  std::vector<TaskAnswer> out;
  for (const double value : values) {
    out.emplace_back();
    out.back().score = value;
  }
  return out;
}

TEST(TaskReport, PairsAnswers) {
  const std::vector<Task> tasks = {
      task(TaskKind::kExact, 1.0, {"a"}), task(TaskKind::kJson, 2.0, {"a", "b"}),
      task(TaskKind::kExact, 1.0, {"b", "b"}), task(TaskKind::kExact, 4.0, {})};
  const auto report = report_tasks(tasks, scores({1, 0.5, 0, 0}), scores({1, 0.25, 1, 0}), 1);
  const TaskGroup& all = report.all;
  EXPECT_EQ(all.tasks, 4);
  EXPECT_DOUBLE_EQ(all.accuracy.value, (1 + 2 * 0.5) / 8.0);
  EXPECT_DOUBLE_EQ(all.paired->accuracy.value, (1 + 2 * 0.25 + 1) / 8.0);
  EXPECT_DOUBLE_EQ(all.paired->difference.value, (2 * 0.25 - 1) / 8.0);
  EXPECT_LE(all.accuracy.interval.low, all.accuracy.value);
  EXPECT_GE(all.accuracy.interval.high, all.accuracy.value);
  EXPECT_EQ(all.paired->wins, 1);
  EXPECT_EQ(all.paired->losses, 1);
  EXPECT_EQ(all.paired->ties, 2);
  EXPECT_EQ(all.paired->mcnemar, 1.0);
  EXPECT_EQ(all.paired->detectable, 1.0);  // four tasks show nothing
  EXPECT_THAT(all.paired->flips, ElementsAre(1, 2));
  EXPECT_THAT(report.outcomes,
              ElementsAre(Outcome::kTie, Outcome::kWin, Outcome::kLoss, Outcome::kTie));
  ASSERT_EQ(report.tags.size(), 2U);
  EXPECT_EQ(report.tags[1].name, "b");
  EXPECT_EQ(report.tags[1].tasks, 2);
  EXPECT_DOUBLE_EQ(report.tags[1].accuracy.value, 2 * 0.5 / 3.0);
  ASSERT_EQ(report.kinds.size(), 2U);
  EXPECT_EQ(report.kinds[0].name, "exact");
  EXPECT_EQ(report.kinds[0].tasks, 3);
}

TEST(TaskReport, WithoutAReference) {
  const std::vector<Task> tasks = {task(TaskKind::kExact, 1.0, {})};
  const auto report = report_tasks(tasks, scores({1}), {}, 1);
  EXPECT_EQ(report.all.accuracy.value, 1.0);
  EXPECT_FALSE(report.all.paired.has_value());
  EXPECT_TRUE(report.outcomes.empty());
}

TEST(TaskReport, FailureRatesAreOfGeneratedAnswers) {
  const std::vector<Task> tasks = {task(TaskKind::kExact, 1, {}), task(TaskKind::kJson, 1, {}),
                                   task(TaskKind::kJson, 1, {}), task(TaskKind::kExact, 1, {}),
                                   task(TaskKind::kChoice, 1, {})};
  std::vector<TaskAnswer> answers = scores({0, 0, 0, 0, 0});
  answers[0].empty = true;
  answers[1].invalid_json = true;
  answers[2].circles = true;
  answers[2].cut = true;
  answers[3].switched_language = true;
  const auto report = report_tasks(tasks, answers, scores({0, 0, 0, 0, 0}), 1);
  EXPECT_EQ(report.all.failures.empty, 0.25);
  EXPECT_EQ(report.all.failures.circles, 0.25);
  EXPECT_EQ(report.all.failures.cut, 0.25);
  EXPECT_EQ(report.all.failures.switched_language, 0.25);
  EXPECT_EQ(report.all.failures.invalid_json, 0.5);
  EXPECT_EQ(report.all.paired->failures.empty, 0.0);
}

TEST(TaskReport, ConfusionOfLabels) {
  std::vector<Task> tasks(4);
  for (Task& one : tasks) {
    one.kind = TaskKind::kLabel;
    one.labels = {"x", "y"};
    one.answers = {"x"};
  }
  tasks[2].answers = {"y"};
  tasks[3].labels = {"x", "y", "z"};
  std::vector<TaskAnswer> answers = scores({1, 0, 1, 0});
  answers[0].read_as = "x";
  answers[1].read_as = "y";
  answers[2].read_as = "y";
  const auto report = report_tasks(tasks, answers, answers, 1);
  ASSERT_EQ(report.confusions.size(), 2U);
  EXPECT_THAT(report.confusions[0].model, ElementsAre(ElementsAre(1, 1, 0), ElementsAre(0, 1, 0)));
  EXPECT_EQ(report.confusions[0].reference, report.confusions[0].model);
  EXPECT_DOUBLE_EQ(report.confusions[0].model_f1, 2.0 / 3.0);
  EXPECT_EQ(report.confusions[1].model[0][3], 1);  // no label
}

TEST(TaskReport, WarnsWhereTasksMoveAndPerplexityDoesNot) {
  const std::vector<Task> tasks(100, task(TaskKind::kExact, 1.0, {}));
  std::vector<double> good(100, 1.0);
  const auto with_losses = [&](int losses) {
    std::vector<double> values = good;
    std::fill_n(values.begin(), losses, 0.0);
    return report_tasks(tasks, scores(values), scores(good), 1).all;
  };
  EXPECT_EQ(hidden_change_warning(0.001, with_losses(0)), "");
  EXPECT_EQ(hidden_change_warning(0.001, with_losses(1)), "");
  EXPECT_THAT(hidden_change_warning(0.001, with_losses(9)),
              HasSubstr("+0.10 %, but 9.0 % of the tasks flipped (0 won, 9 lost; accuracy -9.0"));
  EXPECT_EQ(hidden_change_warning(0.05, with_losses(9)), "");  // perplexity says so itself
  // As many won as lost: accuracy is the same, and every eighth answer is another one.
  std::vector<double> a = good;
  std::vector<double> b = good;
  std::fill_n(a.begin(), 6, 0.0);
  std::fill_n(b.begin() + 6, 6, 0.0);
  const TaskGroup swapped = report_tasks(tasks, scores(a), scores(b), 1).all;
  EXPECT_EQ(swapped.paired->difference.value, 0.0);
  EXPECT_THAT(hidden_change_warning(-0.002, swapped), HasSubstr("12.0 % of the tasks flipped"));
  EXPECT_EQ(hidden_change_warning(0.0, report_tasks(tasks, scores(a), {}, 1).all), "");
}

}  // namespace
}  // namespace trine::eval
