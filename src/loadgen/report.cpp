#include "loadgen/report.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

namespace trine::loadgen {
namespace {

using Json = nlohmann::ordered_json;

double ttft_ms(const Outcome& outcome) {
  return (outcome.output_s.front() - outcome.scheduled_s) * 1e3;
}

// None for answers of one token.
std::optional<double> tpot_ms(const Outcome& outcome) {
  if (outcome.output_tokens < 2 || outcome.output_s.size() < 2) {
    return std::nullopt;
  }
  return (outcome.output_s.back() - outcome.output_s.front()) * 1e3 /
         static_cast<double>(outcome.output_tokens - 1);
}

double e2el_ms(const Outcome& outcome) {
  return (outcome.end_s - outcome.scheduled_s) * 1e3;
}

bool is_good(const Outcome& outcome, const Slo& slo) {
  const std::optional<double> tpot = tpot_ms(outcome);
  return (!slo.ttft_ms || (!outcome.output_s.empty() && ttft_ms(outcome) <= *slo.ttft_ms)) &&
         (!slo.tpot_ms || !tpot || *tpot <= *slo.tpot_ms) &&
         (!slo.e2el_ms || e2el_ms(outcome) <= *slo.e2el_ms);
}

std::string failure_key(const Outcome& outcome) {
  return outcome.failure == Failure::kRefused ? fmt::format("http_{}", outcome.status)
                                              : std::string(failure_name(outcome.failure));
}

// The most requests at work at one moment.
std::int64_t peak_concurrent(const std::vector<Outcome>& outcomes) {
  std::vector<std::pair<double, int>> changes;
  for (const Outcome& outcome : outcomes) {
    changes.emplace_back(outcome.sent_s, 1);
    changes.emplace_back(outcome.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [at, change] : changes) {
    now += change;
    most = std::max(most, now);
  }
  return most;
}

// Tokens in the best whole second after the start; a request's tokens are spread over its outputs.
double peak_output_rate(const RunResult& result) {
  std::map<std::int64_t, double> seconds;
  for (const Outcome& outcome : result.outcomes) {
    if (outcome.failure != Failure::kNone) {
      continue;
    }
    for (const double at : outcome.output_s) {
      seconds[static_cast<std::int64_t>(at - result.start_s)] +=
          static_cast<double>(outcome.output_tokens) / static_cast<double>(outcome.output_s.size());
    }
  }
  double most = 0.0;
  for (const auto& [second, tokens] : seconds) {
    most = std::max(most, tokens);
  }
  return most;
}

// What happened in equal parts of the run. A rate's interval comes from drawing parts anew: it
// shows how evenly the server worked.
class Parts {
 public:
  explicit Parts(const RunResult& result)
      : start_s_(result.start_s), seconds_(result.end_s - result.start_s), amounts_(kNum, 0.0) {}

  void add(double at_s, double amount) {
    const double part = seconds_ > 0.0 ? (at_s - start_s_) / seconds_ * kNum : 0.0;
    amounts_[static_cast<std::size_t>(std::clamp(part, 0.0, kNum - 1.0))] += amount;
  }

  Interval interval(std::uint64_t seed) const { return rate_interval(amounts_, seconds_, seed); }

 private:
  static constexpr int kNum = 20;

  double start_s_;
  double seconds_;
  std::vector<double> amounts_;
};

struct Named {
  const char* key;
  const char* label;
  const char* title;
  Summary Report::*summary;
};

constexpr Named kMetrics[] = {
    {"ttft", "TTFT", "Time to First Token", &Report::ttft_ms},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &Report::tpot_ms},
    {"itl", "ITL", "Inter-token Latency", &Report::itl_ms},
    {"e2el", "E2EL", "End-to-end Latency", &Report::e2el_ms},
};

std::string title_line(std::string_view title, char fill) {
  constexpr std::size_t kWidth = 50;
  const std::size_t room = kWidth - title.size();
  return std::string(room / 2, fill) + std::string(title) + std::string(room - room / 2, fill) +
         "\n";
}

std::string count_line(std::string_view label, std::int64_t value) {
  return fmt::format("{:<40} {:<10}\n", label, value);
}

std::string value_line(std::string_view label, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", label, value);
}

std::string interval_line(std::string_view label, double value, const Interval& interval) {
  return fmt::format("{:<28} {:>10.2f}  [{:.2f}, {:.2f}]\n", label, value, interval.low,
                     interval.high);
}

std::string vllm_block(const Report& report, const RunNames& names, const Slo& slo) {
  std::string out = title_line(" Serving Benchmark Result ", '=');
  out += count_line("Successful requests:", report.completed);
  out += count_line("Failed requests:", report.failed());
  if (names.max_concurrency > 0) {
    out += count_line("Maximum request concurrency:", names.max_concurrency);
  }
  if (std::isfinite(names.request_rate)) {
    out += value_line("Request rate configured (RPS):", names.request_rate);
  }
  out += value_line("Benchmark duration (s):", report.duration_s);
  out += count_line("Total input tokens:", report.input_tokens);
  out += count_line("Total generated tokens:", report.output_tokens);
  out += value_line("Request throughput (req/s):",
                    report.per_second(static_cast<double>(report.completed)));
  if (slo.given()) {
    out +=
        value_line("Request goodput (req/s):", report.per_second(static_cast<double>(report.good)));
  }
  out += value_line("Output token throughput (tok/s):",
                    report.per_second(static_cast<double>(report.output_tokens)));
  out += value_line("Peak output token throughput (tok/s):", report.peak_output_rate);
  out += value_line("Peak concurrent requests:", static_cast<double>(report.peak_concurrent));
  out += value_line(
      "Total token throughput (tok/s):",
      report.per_second(static_cast<double>(report.input_tokens + report.output_tokens)));
  for (const Named& metric : kMetrics) {
    const Summary& values = report.*metric.summary;
    out += title_line(metric.title, '-');
    out += value_line(fmt::format("Mean {} (ms):", metric.label), values.mean);
    out += value_line(fmt::format("Median {} (ms):", metric.label), values.median());
    out += value_line(fmt::format("P99 {} (ms):", metric.label), values.quantiles.back());
  }
  return out + title_line("", '=');
}

Json interval_json(const Interval& interval) {
  return Json::array({interval.low, interval.high});
}

void add_summary(Json& out, Json& intervals, const Named& metric, const Summary& values) {
  const auto key = [&](std::string_view figure) {
    return fmt::format("{}_{}_ms", figure, metric.key);
  };
  out[key("mean")] = values.mean;
  out[key("median")] = values.median();
  out[key("std")] = values.deviation;
  intervals[key("mean")] = interval_json(values.mean_interval);
  intervals[key("median")] = interval_json(values.quantile_intervals[0]);
  for (std::size_t q = 0; q < Summary::kQuantiles.size(); ++q) {
    const std::string name = key(fmt::format("p{:.0f}", Summary::kQuantiles[q] * 100.0));
    out[name] = values.quantiles[q];
    intervals[name] = interval_json(values.quantile_intervals[q]);
  }
}

void add_details(Json& out, const RunResult& result) {
  Json inputs = Json::array();
  Json outputs = Json::array();
  Json ttfts = Json::array();
  Json itls = Json::array();
  Json starts = Json::array();
  Json errors = Json::array();
  for (const Outcome& outcome : result.outcomes) {
    inputs.push_back(outcome.prompt_tokens);
    outputs.push_back(outcome.output_tokens);
    ttfts.push_back(outcome.output_s.empty() ? 0.0 : ttft_ms(outcome) * 1e-3);
    Json gaps = Json::array();
    for (std::size_t i = 1; i < outcome.output_s.size(); ++i) {
      gaps.push_back(outcome.output_s[i] - outcome.output_s[i - 1]);
    }
    itls.push_back(std::move(gaps));
    starts.push_back(outcome.scheduled_s - result.start_s);
    errors.push_back(outcome.failure == Failure::kNone
                         ? std::string()
                         : failure_key(outcome) + ": " + outcome.error);
  }
  out["input_lens"] = std::move(inputs);
  out["output_lens"] = std::move(outputs);
  out["ttfts"] = std::move(ttfts);
  out["itls"] = std::move(itls);
  out["start_times"] = std::move(starts);
  out["errors"] = std::move(errors);
}

}  // namespace

Result<Slo> parse_slo(const std::vector<std::string>& entries) {
  Slo out;
  for (const std::string& entry : entries) {
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const std::string_view name = std::string_view(entry).substr(0, colon);
    std::optional<double>* field = name == "ttft"   ? &out.ttft_ms
                                   : name == "tpot" ? &out.tpot_ms
                                   : name == "e2el" ? &out.e2el_ms
                                                    : nullptr;
    double value = 0.0;
    const char* begin = entry.data() + std::min(colon + 1, entry.size());
    const char* end = entry.data() + entry.size();
    const auto parsed = std::from_chars(begin, end, value);
    if (field == nullptr || parsed.ec != std::errc() || parsed.ptr != end || !(value > 0.0) ||
        !std::isfinite(value)) {
      return fail(ErrorCode::kInvalidArgument,
                  "--goodput {}: give NAME:MS, NAME one of ttft, tpot, e2el, MS above 0", entry);
    }
    if (field->has_value()) {
      return fail(ErrorCode::kInvalidArgument, "--goodput {}: {} is given twice", entry, name);
    }
    *field = value;
  }
  return out;
}

std::int64_t Report::failed() const {
  std::int64_t out = 0;
  for (const auto& [kind, count] : failures) {
    out += count;
  }
  return out;
}

Report make_report(const RunResult& result, const Slo& slo, std::uint64_t seed) {
  Report out;
  out.duration_s = result.end_s - result.start_s;
  PerRequest ttft;
  PerRequest tpot;
  PerRequest itl;
  PerRequest e2el;
  Parts requests(result);
  Parts outputs(result);
  Parts totals(result);
  Parts goods(result);
  for (const Outcome& outcome : result.outcomes) {
    const bool ok = outcome.failure == Failure::kNone;
    const bool good = ok && is_good(outcome, slo);
    if (!ok) {
      const std::string key = failure_key(outcome);
      ++out.failures[key];
      out.first_error.try_emplace(key, outcome.error);
      continue;
    }
    ++out.completed;
    out.good += good ? 1 : 0;
    out.input_tokens += outcome.prompt_tokens;
    out.output_tokens += outcome.output_tokens;
    out.cached_tokens += outcome.cached_tokens;
    requests.add(outcome.end_s, 1.0);
    goods.add(outcome.end_s, good ? 1.0 : 0.0);
    totals.add(outcome.end_s, static_cast<double>(outcome.prompt_tokens + outcome.output_tokens));
    for (const double at : outcome.output_s) {
      outputs.add(at, static_cast<double>(outcome.output_tokens) /
                          static_cast<double>(outcome.output_s.size()));
    }
    ttft.emplace_back();
    tpot.emplace_back();
    itl.emplace_back();
    e2el.push_back({e2el_ms(outcome)});
    if (!outcome.output_s.empty()) {
      ttft.back().push_back(ttft_ms(outcome));
    }
    if (const auto value = tpot_ms(outcome)) {
      tpot.back().push_back(*value);
    }
    for (std::size_t i = 1; i < outcome.output_s.size(); ++i) {
      itl.back().push_back((outcome.output_s[i] - outcome.output_s[i - 1]) * 1e3);
    }
  }
  out.peak_output_rate = peak_output_rate(result);
  out.peak_concurrent = peak_concurrent(result.outcomes);
  out.request_rate = requests.interval(seed);
  out.output_rate = outputs.interval(seed);
  out.total_rate = totals.interval(seed);
  out.good_rate = goods.interval(seed);
  out.ttft_ms = summarize(ttft, seed);
  out.tpot_ms = summarize(tpot, seed);
  out.itl_ms = summarize(itl, seed);
  out.e2el_ms = summarize(e2el, seed);
  return out;
}

std::string report_text(const Report& report, const RunResult& result, const RunNames& names,
                        const Slo& slo) {
  std::string out = vllm_block(report, names, slo);
  out += fmt::format("arrivals: {}; seed {}\n", names.arrivals, names.seed);
  out += fmt::format("{:<28} {:>10}  95 % interval\n", "", "");
  out += interval_line("requests/s", report.per_second(static_cast<double>(report.completed)),
                       report.request_rate);
  if (slo.given()) {
    out += interval_line("good requests/s", report.per_second(static_cast<double>(report.good)),
                         report.good_rate);
  }
  out +=
      interval_line("output tokens/s", report.per_second(static_cast<double>(report.output_tokens)),
                    report.output_rate);
  for (const Named& metric : kMetrics) {
    const Summary& values = report.*metric.summary;
    out +=
        interval_line(fmt::format("{} mean, ms", metric.label), values.mean, values.mean_interval);
    for (std::size_t q = 0; q < Summary::kQuantiles.size(); ++q) {
      const double quantile = Summary::kQuantiles[q];
      const std::string_view note = quantile > values.trusted_quantile ? " (few)" : "";
      out += interval_line(fmt::format("{} p{:.0f}, ms{}", metric.label, quantile * 100.0, note),
                           values.quantiles[q], values.quantile_intervals[q]);
    }
  }
  out += fmt::format("prompt tokens found cached: {} of {}\n", report.cached_tokens,
                     report.input_tokens);
  out += fmt::format(
      "send lag: p99 {:.2f} ms, most {:.2f} ms; generator: {:.1f} % of a CPU, {:.1f} "
      "% waiting for one\n",
      result.lag_p99_ms, result.lag_max_ms, result.generator.cpu_share * 100.0,
      result.generator.cpu_wait_share * 100.0);
  for (const auto& [kind, count] : report.failures) {
    out += fmt::format("failed, {}: {} ({})\n", kind, count, report.first_error.at(kind));
  }
  if (!result.void_reason.empty()) {
    out += fmt::format("VOID ({}): {}\n", result.void_reason, result.void_text);
  }
  return out;
}

Json report_json(const Report& report, const RunResult& result, const RunNames& names,
                 const Slo& slo, bool detailed) {
  Json out;
  Json intervals;
  out["date"] = fmt::format(
      "{:%Y%m%d-%H%M%S}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  out["backend"] = "openai";
  out["base_url"] = names.base_url;
  out["endpoint"] = names.endpoint;
  out["model_id"] = names.model;
  out["num_prompts"] = names.num_prompts;
  out["request_rate"] = std::isfinite(names.request_rate) ? Json(names.request_rate) : Json("inf");
  out["burstiness"] = names.burstiness;
  out["max_concurrency"] = names.max_concurrency > 0 ? Json(names.max_concurrency) : Json(nullptr);
  out["arrivals"] = names.arrivals;
  out["seed"] = names.seed;
  out["duration"] = report.duration_s;
  out["completed"] = report.completed;
  out["failed"] = report.failed();
  out["total_input_tokens"] = report.input_tokens;
  out["total_output_tokens"] = report.output_tokens;
  out["total_cached_tokens"] = report.cached_tokens;
  out["request_throughput"] = report.per_second(static_cast<double>(report.completed));
  intervals["request_throughput"] = interval_json(report.request_rate);
  out["request_goodput"] =
      slo.given() ? Json(report.per_second(static_cast<double>(report.good))) : Json(nullptr);
  if (slo.given()) {
    intervals["request_goodput"] = interval_json(report.good_rate);
  }
  out["output_throughput"] = report.per_second(static_cast<double>(report.output_tokens));
  intervals["output_throughput"] = interval_json(report.output_rate);
  out["total_token_throughput"] =
      report.per_second(static_cast<double>(report.input_tokens + report.output_tokens));
  intervals["total_token_throughput"] = interval_json(report.total_rate);
  out["max_output_tokens_per_s"] = report.peak_output_rate;
  out["max_concurrent_requests"] = report.peak_concurrent;
  for (const Named& metric : kMetrics) {
    add_summary(out, intervals, metric, report.*metric.summary);
  }
  out["intervals_95"] = std::move(intervals);
  out["failures"] = report.failures;
  out["send_lag_ms"] = {{"p99", result.lag_p99_ms}, {"max", result.lag_max_ms}};
  out["generator"] = {{"cpu_share", result.generator.cpu_share},
                      {"cpu_wait_share", result.generator.cpu_wait_share}};
  out["void"] = result.void_reason.empty()
                    ? Json(nullptr)
                    : Json{{"reason", result.void_reason}, {"message", result.void_text}};
  if (detailed) {
    add_details(out, result);
  }
  return out;
}

}  // namespace trine::loadgen
