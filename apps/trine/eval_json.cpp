#include <nlohmann/json.hpp>

#include "apps/trine/eval_output.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

Json interval_json(const eval::Interval& interval) {
  return Json::array({interval.low, interval.high});
}

void add_text(const TextReport& text, Json& out) {
  const eval::TextResult& r = text.result;
  out["ppl"] = r.ppl.value;
  out["ppl_interval"] = interval_json(r.ppl.interval);
  if (r.comparison.has_value()) {
    const eval::TextComparison& c = *r.comparison;
    out["ppl_ref"] = c.ppl.value;
    out["ppl_change"] = c.ppl_change.value;
    out["ppl_change_interval"] = interval_json(c.ppl_change.interval);
    out["kl_mean"] = c.kl.mean;
    out["kl_mean_interval"] = interval_json(c.kl_interval);
    out["kl_median"] = c.kl.median;
    out["kl_p99"] = c.kl.p99;
    out["kl_p999"] = c.kl.p999;
    out["kl_max"] = c.kl.max;
    out["kl_by_position"] = c.kl_by_position;
    out["top1"] = c.top1.value;
    out["top1_interval"] = interval_json(c.top1.interval);
    out["top5"] = c.top5.value;
    out["dp_mean"] = c.dp_mean;
    out["dp_rms"] = c.dp_rms;
    if (!c.greedy.same_tokens.empty()) {
      constexpr std::int32_t kShort = 32;
      out["greedy_len"] = c.greedy.mean();
      out["greedy"] = {
          {"protocol", text.greedy_protocol},
          {"tokens", c.greedy.num_tokens},
          {"same_tokens", c.greedy.same_tokens},
          {"same_at_32",
           c.greedy.num_tokens >= kShort ? Json(c.greedy.share_same(kShort)) : Json(nullptr)},
          {"same_to_the_end", c.greedy.share_same(c.greedy.num_tokens)}};
    }
  }
  out["leaked_share"] = text.leaked;
  out["tokens"] = r.tokens;
  out["protocol"] = text.protocol;
}

Json failures_json(const eval::FailureRates& rates) {
  return {{"empty", rates.empty},
          {"circles", rates.circles},
          {"invalid_json", rates.invalid_json},
          {"language_switch", rates.switched_language},
          {"cut", rates.cut}};
}

Json group_json(const eval::TaskGroup& group) {
  Json out = {{"name", group.name},
              {"tasks", group.tasks},
              {"accuracy", group.accuracy.value},
              {"accuracy_interval", interval_json(group.accuracy.interval)},
              {"failures", failures_json(group.failures)}};
  if (group.paired.has_value()) {
    const eval::PairedTasks& paired = *group.paired;
    out["accuracy_ref"] = paired.accuracy.value;
    out["accuracy_ref_interval"] = interval_json(paired.accuracy.interval);
    out["difference"] = paired.difference.value;
    out["difference_interval"] = interval_json(paired.difference.interval);
    out["wins"] = paired.wins;
    out["losses"] = paired.losses;
    out["ties"] = paired.ties;
    out["mcnemar_p"] = paired.mcnemar;
    out["detectable_difference"] = paired.detectable;
    out["failures_ref"] = failures_json(paired.failures);
  }
  return out;
}

void add_answer(const eval::TaskAnswer& answer, const std::string& suffix, Json& out) {
  const auto key = [&suffix](std::string name) { return name + suffix; };
  out[key("score")] = answer.score;
  out[key("answer")] = answer.text;
  if (!answer.read_as.empty()) {
    out[key("read_as")] = answer.read_as;
  }
  if (!answer.choices.empty()) {
    out[key("choices")] = answer.choices;
    return;
  }
  out[key("tokens")] = answer.tokens;
  Json failures = Json::array();
  const auto add = [&failures](bool failed, const char* name) {
    if (failed) {
      failures.push_back(name);
    }
  };
  add(answer.empty, "empty");
  add(answer.circles, "circles");
  add(answer.invalid_json, "invalid_json");
  add(answer.switched_language, "language_switch");
  add(answer.cut, "cut");
  out[key("failures")] = std::move(failures);
}

Json groups_json(const std::vector<eval::TaskGroup>& groups) {
  Json out = Json::array();
  for (const eval::TaskGroup& group : groups) {
    out.push_back(group_json(group));
  }
  return out;
}

void add_tasks(const TaskRun& run, Json& out) {
  Json tasks = Json::array();
  for (std::size_t i = 0; i < run.tasks.size(); ++i) {
    const eval::Task& task = run.tasks[i];
    Json one = {{"id", task.id},
                {"line", task.line},
                {"kind", eval::task_kind_name(task.kind)},
                {"weight", task.weight},
                {"tags", task.tags}};
    if (task.ignored.letter_case || task.ignored.space || task.ignored.punctuation) {
      Json ignored = Json::array();
      for (const auto& [is_set, name] :
           {std::pair(task.ignored.letter_case, "case"), std::pair(task.ignored.space, "space"),
            std::pair(task.ignored.punctuation, "punctuation")}) {
        if (is_set) {
          ignored.push_back(name);
        }
      }
      one["ignored"] = std::move(ignored);
    }
    add_answer(run.answers[i], "", one);
    if (!run.reference.empty()) {
      add_answer(run.reference[i], "_ref", one);
      one["outcome"] = eval::outcome_name(run.report.outcomes[i]);
    }
    if (!run.leaked.empty()) {
      one["leaked"] = static_cast<bool>(run.leaked[i]);
    }
    tasks.push_back(std::move(one));
  }
  Json confusions = Json::array();
  for (const eval::Confusion& confusion : run.report.confusions) {
    Json one = {{"labels", confusion.labels},
                {"counts", confusion.model},
                {"macro_f1", confusion.model_f1}};
    if (!confusion.reference.empty()) {
      one["counts_ref"] = confusion.reference;
      one["macro_f1_ref"] = confusion.reference_f1;
    }
    confusions.push_back(std::move(one));
  }
  out["tasks_protocol"] = run.protocol;
  out["tasks_summary"] = group_json(run.report.all);
  out["tasks_by_kind"] = groups_json(run.report.kinds);
  out["tasks_by_tag"] = groups_json(run.report.tags);
  out["confusions"] = std::move(confusions);
  out["tasks"] = std::move(tasks);
}

}  // namespace

Json eval_json(const EvalReport& report) {
  const EvalSides& sides = *report.sides;
  Json out = {{"model", sides.model.name}};
  if (sides.reference.has_value()) {
    out["reference"] = sides.reference->name;
    out["mode"] = sides.mode();
  }
  if (sides.prefill.has_value()) {
    out["prefill"] = sides.prefill->name;
  }
  if (report.text.has_value()) {
    add_text(*report.text, out);
  }
  if (report.tasks.has_value()) {
    add_tasks(*report.tasks, out);
  }
  Json floors = Json::array();
  for (const EvalFloor& floor : report.floors) {
    floors.push_back({{"option", floor.option},
                      {"limit", floor.limit},
                      {"value", floor.value},
                      {"met", floor.met}});
  }
  out["floors"] = std::move(floors);
  out["warnings"] = report.warnings;
  out["kind"] = "measured";
  return out;
}

}  // namespace trine::app
