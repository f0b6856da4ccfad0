#include "eval/task_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace trine::eval {
namespace {

Outcome outcome_of(const TaskAnswer& model, const TaskAnswer& reference) {
  return model.score > reference.score   ? Outcome::kWin
         : model.score < reference.score ? Outcome::kLoss
                                         : Outcome::kTie;
}

class Reporter {
 public:
  Reporter(const std::vector<Task>& tasks, const std::vector<TaskAnswer>& model,
           const std::vector<TaskAnswer>& reference, std::uint64_t seed)
      : tasks_(tasks), model_(model), reference_(reference), seed_(seed) {
    TRINE_CHECK(model.size() == tasks.size());
    TRINE_CHECK(reference.empty() || reference.size() == tasks.size());
  }

  TaskReport report() const {
    TaskReport out;
    std::vector<std::size_t> all;
    std::map<TaskKind, std::vector<std::size_t>> kinds;
    std::vector<std::pair<std::string, std::vector<std::size_t>>> tags;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      all.push_back(i);
      kinds[tasks_[i].kind].push_back(i);
      for (const std::string& tag : tasks_[i].tags) {
        auto at = std::find_if(tags.begin(), tags.end(),
                               [&](const auto& entry) { return entry.first == tag; });
        if (at == tags.end()) {
          at = tags.insert(tags.end(), {tag, {}});
        }
        if (at->second.empty() || at->second.back() != i) {
          at->second.push_back(i);
        }
      }
      if (!reference_.empty()) {
        out.outcomes.push_back(outcome_of(model_[i], reference_[i]));
      }
    }
    out.all = group("all", all);
    for (const auto& [kind, members] : kinds) {
      out.kinds.push_back(group(std::string(task_kind_name(kind)), members));
    }
    for (const auto& [tag, members] : tags) {
      out.tags.push_back(group(tag, members));
    }
    out.confusions = confusions();
    return out;
  }

 private:
  // The weighted mean of a score per task, and its interval.
  template <typename ScoreOf>
  Figure weighted(const std::vector<std::size_t>& members, const ScoreOf& score_of) const {
    const auto mean = [&](std::span<const std::uint32_t> counts) {
      double sum = 0.0;
      double weights = 0.0;
      for (std::size_t k = 0; k < members.size(); ++k) {
        const double weight = counts[k] * tasks_[members[k]].weight;
        sum += weight * score_of(members[k]);
        weights += weight;
      }
      return sum / weights;
    };
    const std::vector<std::uint32_t> once(members.size(), 1);
    return {.value = mean(once), .interval = bootstrap(members.size(), seed_, mean)};
  }

  FailureRates failures(const std::vector<std::size_t>& members,
                        const std::vector<TaskAnswer>& answers) const {
    FailureRates out;
    double generated = 0.0;
    double json = 0.0;
    for (const std::size_t i : members) {
      if (tasks_[i].kind == TaskKind::kChoice) {
        continue;
      }
      const TaskAnswer& answer = answers[i];
      generated += 1.0;
      json += tasks_[i].kind == TaskKind::kJson ? 1.0 : 0.0;
      out.empty += answer.empty ? 1.0 : 0.0;
      out.circles += answer.circles ? 1.0 : 0.0;
      out.invalid_json += answer.invalid_json ? 1.0 : 0.0;
      out.switched_language += answer.switched_language ? 1.0 : 0.0;
      out.cut += answer.cut ? 1.0 : 0.0;
    }
    for (double* rate : {&out.empty, &out.circles, &out.switched_language, &out.cut}) {
      *rate = generated > 0.0 ? *rate / generated : 0.0;
    }
    out.invalid_json = json > 0.0 ? out.invalid_json / json : 0.0;
    return out;
  }

  TaskGroup group(std::string name, const std::vector<std::size_t>& members) const {
    TaskGroup out;
    out.name = std::move(name);
    out.tasks = static_cast<std::int64_t>(members.size());
    out.accuracy = weighted(members, [&](std::size_t i) { return model_[i].score; });
    out.failures = failures(members, model_);
    if (reference_.empty()) {
      return out;
    }
    PairedTasks& paired = out.paired.emplace();
    paired.accuracy = weighted(members, [&](std::size_t i) { return reference_[i].score; });
    paired.difference =
        weighted(members, [&](std::size_t i) { return model_[i].score - reference_[i].score; });
    paired.failures = failures(members, reference_);
    for (const std::size_t i : members) {
      const Outcome outcome = outcome_of(model_[i], reference_[i]);
      paired.wins += outcome == Outcome::kWin ? 1 : 0;
      paired.losses += outcome == Outcome::kLoss ? 1 : 0;
      if (outcome != Outcome::kTie) {
        paired.flips.push_back(i);
      }
    }
    paired.ties = out.tasks - paired.wins - paired.losses;
    paired.mcnemar = mcnemar_exact(paired.losses, paired.wins);
    paired.detectable = minimum_detectable_difference(out.tasks, paired.wins + paired.losses);
    return out;
  }

  std::vector<Confusion> confusions() const {
    std::vector<Confusion> out;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = tasks_[i];
      if (task.kind != TaskKind::kLabel) {
        continue;
      }
      auto at = std::find_if(out.begin(), out.end(),
                             [&](const Confusion& c) { return c.labels == task.labels; });
      if (at == out.end()) {
        at = out.insert(out.end(), Confusion{});
        at->labels = task.labels;
        at->model.assign(task.labels.size(), std::vector<std::int64_t>(task.labels.size() + 1, 0));
        if (!reference_.empty()) {
          at->reference = at->model;
        }
      }
      const auto index = [&](const std::string& label) {
        return static_cast<std::size_t>(std::find(task.labels.begin(), task.labels.end(), label) -
                                        task.labels.begin());
      };
      const std::size_t expected = index(task.answers.front());
      ++at->model[expected][index(model_[i].read_as)];
      if (!reference_.empty()) {
        ++at->reference[expected][index(reference_[i].read_as)];
      }
    }
    for (Confusion& confusion : out) {
      confusion.model_f1 = macro_f1(confusion.model);
      confusion.reference_f1 = reference_.empty() ? 0.0 : macro_f1(confusion.reference);
    }
    return out;
  }

  const std::vector<Task>& tasks_;
  const std::vector<TaskAnswer>& model_;
  const std::vector<TaskAnswer>& reference_;
  std::uint64_t seed_;
};

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  return outcome == Outcome::kWin ? "win" : outcome == Outcome::kLoss ? "loss" : "tie";
}

TaskReport report_tasks(const std::vector<Task>& tasks, const std::vector<TaskAnswer>& model,
                        const std::vector<TaskAnswer>& reference, std::uint64_t seed) {
  return Reporter(tasks, model, reference, seed).report();
}

std::string hidden_change_warning(double ppl_change, const TaskGroup& tasks) {
  constexpr double kBarely = 0.01;
  constexpr double kManyFlips = 0.05;
  constexpr double kPercent = 100.0;
  if (!tasks.paired.has_value() || std::abs(ppl_change) >= kBarely) {
    return {};
  }
  const PairedTasks& paired = *tasks.paired;
  const Figure& d = paired.difference;
  const double flipped =
      static_cast<double>(paired.wins + paired.losses) / static_cast<double>(tasks.tasks);
  const bool moved = d.interval.high < 0.0 || d.interval.low > 0.0;
  if (!moved && flipped < kManyFlips) {
    return {};
  }
  return fmt::format(
      "perplexity changed by only {:+.2f} %, but {:.1f} % of the tasks flipped ({} won, {} lost; "
      "accuracy {:+.1f} points): judge this model by the tasks",
      ppl_change * kPercent, flipped * kPercent, paired.wins, paired.losses, d.value * kPercent);
}

}  // namespace trine::eval
