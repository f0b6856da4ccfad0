#include "apps/trine/eval_output.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kPercent = 100.0;

// The figure and where it lies; of one window or task nothing can be drawn anew.
std::string with_interval(const eval::Figure& figure, double scale, int digits,
                          std::string_view unit) {
  const std::string value = fmt::format("{:.{}f}{}", figure.value * scale, digits, unit);
  if (figure.interval.low == figure.interval.high) {
    return value;
  }
  return fmt::format("{}  [{:.{}f}, {:.{}f}]", value, figure.interval.low * scale, digits,
                     figure.interval.high * scale, digits);
}

void append_comparison(const eval::TextComparison& c, std::string& out) {
  out += fmt::format("reference PPL     {}\n", with_interval(c.ppl, 1.0, 4, ""));
  out += fmt::format("PPL change        {}\n", with_interval(c.ppl_change, kPercent, 3, " %"));
  out += fmt::format("KL mean           {}\n",
                     with_interval({.value = c.kl.mean, .interval = c.kl_interval}, 1.0, 6, ""));
  out += fmt::format("KL median         {:.6f}\n", c.kl.median);
  out += fmt::format("KL p99            {:.6f}\n", c.kl.p99);
  out += fmt::format("KL p99.9          {:.6f}\n", c.kl.p999);
  out += fmt::format("KL max            {:.6f}\n", c.kl.max);
  out += fmt::format("KL, early to late {:.6f}\n", fmt::join(c.kl_by_position, " "));
  out += fmt::format("same top-1        {}\n", with_interval(c.top1, kPercent, 2, " %"));
  out += fmt::format("top-5 overlap     {}\n", with_interval(c.top5, kPercent, 2, " %"));
  out += fmt::format("p(token) change   mean {:+.5f}, rms {:.5f}\n", c.dp_mean, c.dp_rms);
  if (!c.greedy.same_tokens.empty()) {
    out += fmt::format("greedy agreement  {:.1f} of {} tokens, {:.0f} % of {} prompts to the end\n",
                       c.greedy.mean(), c.greedy.num_tokens,
                       kPercent * c.greedy.share_same(c.greedy.num_tokens),
                       c.greedy.same_tokens.size());
  }
}

void append_group(const eval::TaskGroup& group, std::string_view name, std::string& out) {
  out += fmt::format("{:<18}{:>4} tasks  {}", name, group.tasks, share_text(group.accuracy));
  if (group.paired.has_value()) {
    const eval::PairedTasks& paired = *group.paired;
    out += fmt::format("  reference {}  won {} lost {}", share_text(paired.accuracy), paired.wins,
                       paired.losses);
  }
  out += "\n";
}

void append_flips(const TaskRun& run, std::string& out) {
  constexpr std::size_t kMost = 20;
  constexpr std::size_t kLongest = 200;  // bytes of an answer
  const std::vector<std::size_t>& flips = run.report.all.paired->flips;
  for (std::size_t k = 0; k < std::min(flips.size(), kMost); ++k) {
    const std::size_t i = flips[k];
    out += fmt::format(
        "  {} task {} (line {}): {:.2f}, reference {:.2f}\n    model      {}\n"
        "    reference  {}\n",
        run.report.outcomes[i] == eval::Outcome::kWin ? "won " : "lost", printable(run.tasks[i].id),
        run.tasks[i].line, run.answers[i].score, run.reference[i].score,
        printable(run.answers[i].text, kLongest), printable(run.reference[i].text, kLongest));
  }
  if (flips.size() > kMost) {
    out += fmt::format("  and {} more: --json and --html have all\n", flips.size() - kMost);
  }
}

void append_tasks(const TaskRun& run, std::string& out) {
  const eval::TaskGroup& all = run.report.all;
  out += fmt::format("protocol          {}\n", run.protocol);
  out += fmt::format("score             {}\n", share_text(all.accuracy));
  if (all.paired.has_value()) {
    const eval::PairedTasks& paired = *all.paired;
    out += fmt::format("reference score   {}\n", share_text(paired.accuracy));
    out += fmt::format("difference        {}\n",
                       with_interval(paired.difference, kPercent, 2, " points"));
    out += fmt::format("won, lost, tied   {}, {}, {}  (McNemar, exact: p = {:.4g})\n", paired.wins,
                       paired.losses, paired.ties, paired.mcnemar);
    out += fmt::format("can be shown      {}\n", detectable_text(all));
  }
  out += fmt::format("failures          {}\n", failures_text(all));
  for (const eval::TaskGroup& group : run.report.kinds) {
    append_group(group, "  " + group.name, out);
  }
  for (const eval::TaskGroup& group : run.report.tags) {
    append_group(group, "  #" + printable(group.name), out);
  }
  for (const eval::Confusion& confusion : run.report.confusions) {
    out += fmt::format("macro-F1          {:.4f}", confusion.model_f1);
    if (!confusion.reference.empty()) {
      out += fmt::format("  reference {:.4f}", confusion.reference_f1);
    }
    out += fmt::format("  ({} labels)\n", confusion.labels.size());
  }
  const auto leaked = std::count(run.leaked.begin(), run.leaked.end(), true);
  if (!run.leaked.empty()) {
    out += fmt::format("in --calib        {} of {} prompts\n", leaked, run.tasks.size());
  }
  if (all.paired.has_value()) {
    append_flips(run, out);
  }
  out += "(measured; 95 % intervals, tasks drawn anew)\n";
}

}  // namespace

std::string share_text(const eval::Figure& figure) {
  return with_interval(figure, kPercent, 2, " %");
}

std::string failures_text(const eval::TaskGroup& group) {
  const eval::FailureRates none;
  const eval::FailureRates& other = group.paired.has_value() ? group.paired->failures : none;
  std::string out;
  const auto add = [&](std::string_view name, double rate, double reference) {
    if (rate == 0.0 && reference == 0.0) {
      return;
    }
    out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", name, rate * kPercent);
    if (group.paired.has_value()) {
      out += fmt::format(" (reference {:.1f} %)", reference * kPercent);
    }
  };
  const eval::FailureRates& mine = group.failures;
  add("empty", mine.empty, other.empty);
  add("running in circles", mine.circles, other.circles);
  add("invalid JSON", mine.invalid_json, other.invalid_json);
  add("another language", mine.switched_language, other.switched_language);
  add("cut at max_tokens", mine.cut, other.cut);
  return out.empty() ? "none" : out;
}

std::string detectable_text(const eval::TaskGroup& group) {
  constexpr std::int64_t kFew = 100;
  const double least = group.paired->detectable;
  if (least >= 1.0) {
    return fmt::format("nothing: {} tasks are too few to tell any loss from chance", group.tasks);
  }
  return fmt::format(
      "differences of {:.1f} points or more, with 80 % power at the 5 % level{}", least * kPercent,
      group.tasks < kFew ? "; fewer than 100 tasks: smaller losses stay unseen" : "");
}

std::string floor_text(const EvalFloor& floor) {
  return fmt::format("--{} {:g}: {:.6g}, {}", floor.option, floor.limit, floor.value,
                     floor.met ? "met" : "NOT met");
}

std::string eval_text(const EvalReport& report) {
  const EvalSides& sides = *report.sides;
  std::string out = fmt::format("model             {}\n", sides.model.name);
  if (sides.reference.has_value()) {
    out += fmt::format("reference         {}\n", sides.reference->name);
    out += fmt::format("differs in        {}\n", sides.mode());
  }
  if (sides.prefill.has_value()) {
    out += fmt::format("prefill           {}\n", sides.prefill->name);
  }
  if (report.text.has_value()) {
    const eval::TextResult& r = report.text->result;
    out += fmt::format("protocol          {}\n", report.text->protocol);
    out += fmt::format("PPL               {}\n", with_interval(r.ppl, 1.0, 4, ""));
    if (r.comparison.has_value()) {
      append_comparison(*r.comparison, out);
    }
    if (report.text->leaked > 0.0) {
      out +=
          fmt::format("in --calib        {:.1f} % of the text\n", report.text->leaked * kPercent);
    }
    out += "(measured; KL in nats; 95 % intervals, windows drawn anew)\n";
  }
  if (report.tasks.has_value()) {
    append_tasks(*report.tasks, out);
  }
  for (const EvalFloor& floor : report.floors) {
    out += fmt::format("floor             {}\n", floor_text(floor));
  }
  return out;
}

}  // namespace trine::app
