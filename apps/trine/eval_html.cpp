#include <algorithm>

#include "apps/trine/eval_output.h"
#include "report/html.h"

namespace trine::app {

namespace {

using report::Table;

constexpr double kPercent = 100.0;

std::string interval_text(const eval::Interval& interval, double scale) {
  return fmt::format("{:.6g} to {:.6g}", interval.low * scale, interval.high * scale);
}

void add_row(Table& table, std::string name, const eval::Figure& figure, double scale,
             std::string_view unit) {
  table.rows.push_back({std::move(name), fmt::format("{:.6g}{}", figure.value * scale, unit),
                        interval_text(figure.interval, scale)});
}

void add_comparison(const eval::TextComparison& c, Table& table) {
  add_row(table, "PPL of the reference", c.ppl, 1.0, "");
  add_row(table, "PPL change", c.ppl_change, kPercent, " %");
  table.rows.push_back(
      {"KL mean", fmt::format("{:.6g}", c.kl.mean), interval_text(c.kl_interval, 1.0)});
  for (const auto& [name, value] : {std::pair("KL median", c.kl.median),
                                    {"KL p99", c.kl.p99},
                                    {"KL p99.9", c.kl.p999},
                                    {"KL max", c.kl.max}}) {
    table.rows.push_back({name, fmt::format("{:.6g}", value)});
  }
  add_row(table, "same top-1", c.top1, kPercent, " %");
  add_row(table, "top-5 overlap", c.top5, kPercent, " %");
  table.rows.push_back(
      {"p(token) change", fmt::format("mean {:.6g}, rms {:.6g}", c.dp_mean, c.dp_rms)});
  if (!c.greedy.same_tokens.empty()) {
    table.rows.push_back({"greedy agreement", fmt::format("{:.1f} of {} tokens", c.greedy.mean(),
                                                          c.greedy.num_tokens)});
  }
}

void add_charts(const eval::TextComparison& c, report::Document& page) {
  report::Histogram histogram{.title = "Positions by KL divergence",
                              .x_label = "KL in nats; the first bar also holds less, the last more",
                              .edges = {0.0},
                              .counts = {c.kl_decades.begin(), c.kl_decades.end()}};
  double edge = 1e-8;
  for (std::size_t i = 0; i < c.kl_decades.size(); ++i, edge *= 10.0) {
    histogram.edges.push_back(edge);
  }
  page.add(histogram);
  report::BarChart by_position{
      .title = "Mean KL by position, early to late in a window", .unit = "nats", .series = {"KL"}};
  for (std::size_t i = 0; i < c.kl_by_position.size(); ++i) {
    by_position.bars.push_back(
        {fmt::format("part {} of {}", i + 1, c.kl_by_position.size()), {c.kl_by_position[i]}});
  }
  page.add(by_position);
  if (c.kl_of_windows.size() > 1) {
    report::LineChart windows{.title = "Mean KL of each window",
                              .x_label = "window",
                              .y_label = "nats",
                              .series = {{"KL", c.kl_of_windows}}};
    for (std::size_t i = 0; i < c.kl_of_windows.size(); ++i) {
      windows.x.push_back(static_cast<double>(i + 1));
    }
    page.add(windows);
  }
}

void add_text(const TextReport& text, report::Document& page) {
  page.section("Text");
  page.paragraph(text.protocol);
  Table table{.caption = "Measured; KL in nats; 95 % intervals, windows drawn anew",
              .columns = {"figure", "value", "interval"}};
  add_row(table, "PPL", text.result.ppl, 1.0, "");
  if (text.result.comparison.has_value()) {
    add_comparison(*text.result.comparison, table);
  }
  page.add(table);
  if (text.result.comparison.has_value()) {
    add_charts(*text.result.comparison, page);
  }
}

void add_groups(const TaskRun& run, report::Document& page) {
  const bool paired = run.report.all.paired.has_value();
  Table table{.caption = "Measured; 95 % intervals, tasks drawn anew",
              .columns = {"tasks", "number", "score", "failures"}};
  report::BarChart chart{.title = "Score", .unit = "%", .series = {"model"}};
  if (paired) {
    table.columns.insert(table.columns.end(), {"reference", "difference", "won", "lost", "p"});
    chart.series.emplace_back("reference");
  }
  const auto add = [&](const eval::TaskGroup& group, const std::string& name) {
    table.rows.push_back(
        {name, fmt::format("{}", group.tasks), share_text(group.accuracy), failures_text(group)});
    chart.bars.push_back({name, {group.accuracy.value * kPercent}});
    if (paired) {
      const eval::PairedTasks& p = *group.paired;
      auto& row = table.rows.back();
      row.insert(row.end(), {share_text(p.accuracy),
                             fmt::format("{:+.2f} points", p.difference.value * kPercent),
                             fmt::format("{}", p.wins), fmt::format("{}", p.losses),
                             fmt::format("{:.4g}", p.mcnemar)});
      chart.bars.back().second.push_back(p.accuracy.value * kPercent);
    }
  };
  add(run.report.all, "all");
  for (const eval::TaskGroup& group : run.report.kinds) {
    add(group, group.name);
  }
  for (const eval::TaskGroup& group : run.report.tags) {
    add(group, fmt::format("#{}", group.name));
  }
  page.add(table);
  page.add(chart);
}

void add_confusion(const eval::Confusion& confusion, report::Document& page) {
  report::Matrix matrix{.title = fmt::format("Labels, model: macro-F1 {:.4f}", confusion.model_f1),
                        .row_label = "expected",
                        .column_label = "answered",
                        .rows = confusion.labels,
                        .columns = confusion.labels,
                        .counts = confusion.model};
  matrix.columns.emplace_back("no label");
  page.add(matrix);
  if (!confusion.reference.empty()) {
    matrix.title = fmt::format("Labels, reference: macro-F1 {:.4f}", confusion.reference_f1);
    matrix.counts = confusion.reference;
    page.add(matrix);
  }
}

void add_flips(const TaskRun& run, report::Document& page) {
  page.section("Tasks that flipped");
  for (const std::size_t i : run.report.all.paired->flips) {
    const eval::Task& task = run.tasks[i];
    page.paragraph(fmt::format("{}: task {} (line {}), {}: {:.2f}, reference {:.2f}",
                               run.report.outcomes[i] == eval::Outcome::kWin ? "Won" : "Lost",
                               task.id, task.line, eval::task_kind_name(task.kind),
                               run.answers[i].score, run.reference[i].score));
    page.add(Table{.columns = {"asked", "model", "reference"},
                   .rows = {{eval::asked_text(task), run.answers[i].text, run.reference[i].text}}});
  }
}

void add_tasks(const TaskRun& run, report::Document& page) {
  page.section("Tasks");
  page.paragraph(run.protocol);
  const eval::TaskGroup& all = run.report.all;
  if (all.paired.has_value()) {
    page.paragraph(fmt::format(
        "Of {} tasks {} were won, {} lost and {} tied; were both models "
        "equally good, a split at least as uneven would come with "
        "probability {:.4g} (McNemar, exact).",
        all.tasks, all.paired->wins, all.paired->losses, all.paired->ties, all.paired->mcnemar));
    page.paragraph("What so many tasks can show: " + detectable_text(all) + ".");
  }
  add_groups(run, page);
  for (const eval::Confusion& confusion : run.report.confusions) {
    add_confusion(confusion, page);
  }
  if (all.paired.has_value() && !all.paired->flips.empty()) {
    add_flips(run, page);
  }
}

}  // namespace

std::string eval_html(const EvalReport& report) {
  const EvalSides& sides = *report.sides;
  report::Document page(fmt::format("Evaluation of {}", sides.model.name));
  if (sides.reference.has_value()) {
    page.paragraph(
        fmt::format("Reference: {}. Differs in: {}.", sides.reference->name, sides.mode()));
  }
  if (sides.prefill.has_value()) {
    page.paragraph(fmt::format("Keys and values of the first half of each window by {}.",
                               sides.prefill->name));
  }
  for (const std::string& warning : report.warnings) {
    page.warning("Warning: " + warning);
  }
  for (const EvalFloor& floor : report.floors) {
    if (floor.met) {
      page.paragraph(floor_text(floor));
    } else {
      page.warning(floor_text(floor));
    }
  }
  if (report.text.has_value()) {
    add_text(*report.text, page);
  }
  if (report.tasks.has_value()) {
    add_tasks(*report.tasks, page);
  }
  return page.html();
}

}  // namespace trine::app
