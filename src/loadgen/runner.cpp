#include "loadgen/runner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>

#include <sys/resource.h>

#include "loadgen/statistics.h"

namespace trine::loadgen {
namespace {

constexpr double kTick = 0.1;  // how often the cancel flag is looked at

// Of the calling thread, in seconds since its start.
struct CpuUse {
  double used_s = 0.0;
  double waited_s = 0.0;

  static CpuUse now() {
    CpuUse out;
    rusage usage{};
    if (::getrusage(RUSAGE_THREAD, &usage) == 0) {
      const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
      };
      out.used_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    }
    // "time on a CPU, time waiting for one, slices", in ns; absent in some containers.
    std::ifstream file("/proc/thread-self/schedstat");
    double ran_ns = 0.0;
    double waited_ns = 0.0;
    if (file >> ran_ns >> waited_ns) {
      out.waited_s = waited_ns * 1e-9;
    }
    return out;
  }
};

bool cancelled(const RunOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

class Run {
 public:
  Run(Client& client, const Workload& workload, const RunOptions& options)
      : client_(client), workload_(workload), options_(options), arrivals_(options.arrivals) {}

  Result<RunResult> go();

 private:
  // Seconds after the start at which request `next_` is due; infinity: there is none.
  double due() const;
  void advance();
  Status start(double scheduled_s);
  Status start_due();
  Status step();
  void judge(const CpuUse& before);

  Client& client_;
  const Workload& workload_;
  const RunOptions& options_;
  Arrivals arrivals_;
  RunResult result_;
  std::uint64_t next_ = 0;      // request
  double next_s_ = 0.0;         // its arrival, in open loop
  std::vector<double> free_s_;  // closed loop: clients that may send, since when
  std::size_t ended_ = 0;
};

double Run::due() const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (options_.num_requests > 0 && std::cmp_greater_equal(next_, options_.num_requests)) {
    return kNever;
  }
  double at = 0.0;
  if (options_.mode == Mode::kClosed) {
    if (free_s_.empty()) {
      // Asked before any answer: whether there will be a next one.
      return kNever;
    }
    at = free_s_.front() - result_.start_s;
  } else {
    if (options_.mode == Mode::kReplay && next_ >= workload_.trace().size()) {
      return kNever;
    }
    at = next_s_;
  }
  if (options_.duration_s > 0.0 && at >= options_.duration_s) {
    return kNever;
  }
  return at;
}

void Run::advance() {
  if (options_.mode == Mode::kOpen) {
    next_s_ = arrivals_.next();
  } else if (options_.mode == Mode::kReplay && next_ < workload_.trace().size()) {
    next_s_ = workload_.trace()[next_].at_ms.value_or(0.0) * 1e-3 * options_.time_scale;
  }
}

Status Run::start(double scheduled_s) {
  const std::size_t place = result_.outcomes.size();
  result_.outcomes.emplace_back();
  return client_.start(endpoint_path(workload_.options().endpoint), workload_.body(next_),
                       scheduled_s, [this, place](Outcome outcome) {
                         free_s_.push_back(outcome.end_s);
                         result_.outcomes[place] = std::move(outcome);
                         ++ended_;
                       });
}

Status Run::start_due() {
  for (double at = due(); std::isfinite(at) && result_.start_s + at <= now_s(); at = due()) {
    TRINE_TRY(start(result_.start_s + at));
    if (options_.mode == Mode::kClosed) {
      free_s_.erase(free_s_.begin());
    }
    ++next_;
    advance();
  }
  return {};
}

Status Run::step() {
  if (cancelled(options_)) {
    return fail(ErrorCode::kCancelled, "interrupted after {} of {} answers", ended_,
                result_.outcomes.size());
  }
  TRINE_TRY(start_due());
  const double at = due();
  const double wait = std::isfinite(at) ? result_.start_s + at - now_s() : kTick;
  client_.poll(std::clamp(wait, 0.0, kTick));
  if (options_.progress) {
    options_.progress(result_.outcomes.size(), ended_);
  }
  return {};
}

void Run::judge(const CpuUse& before) {
  const CpuUse after = CpuUse::now();
  const double seconds = std::max(result_.end_s - result_.start_s, 1e-9);
  result_.generator = {.cpu_share = (after.used_s - before.used_s) / seconds,
                       .cpu_wait_share = (after.waited_s - before.waited_s) / seconds};
  std::vector<double> lags;
  lags.reserve(result_.outcomes.size());
  for (const Outcome& outcome : result_.outcomes) {
    lags.push_back((outcome.sent_s - outcome.scheduled_s) * 1e3);
  }
  if (lags.empty()) {
    return;
  }
  std::sort(lags.begin(), lags.end());
  result_.lag_p99_ms = percentile_of_sorted(lags, 0.99);
  result_.lag_max_ms = lags.back();
  constexpr double kMostCpu = 0.95;
  if (result_.lag_p99_ms > options_.max_lag_ms) {
    result_.void_reason = "schedule_lag";
    result_.void_text = fmt::format(
        "requests were sent up to {:.1f} ms late (99 % within {:.1f} ms, --max-lag is {:g} ms)",
        result_.lag_max_ms, result_.lag_p99_ms, options_.max_lag_ms);
  } else if (result_.generator.cpu_wait_share > options_.max_cpu_wait) {
    result_.void_reason = "generator_cpu";
    result_.void_text = fmt::format(
        "the generator waited for a CPU {:.1f} % of the time (--max-cpu-wait is {:g} %)",
        result_.generator.cpu_wait_share * 100.0, options_.max_cpu_wait * 100.0);
  } else if (result_.generator.cpu_share > kMostCpu) {
    result_.void_reason = "generator_cpu";
    result_.void_text = fmt::format("the generator used {:.1f} % of its one CPU",
                                    result_.generator.cpu_share * 100.0);
  }
}

Result<RunResult> Run::go() {
  const CpuUse before = CpuUse::now();
  result_.start_s = now_s();
  if (options_.mode == Mode::kClosed) {
    free_s_.assign(static_cast<std::size_t>(options_.clients), result_.start_s);
  }
  advance();
  while (std::isfinite(due()) || client_.num_running() > 0) {
    TRINE_TRY(step());
  }
  result_.end_s = result_.start_s;
  for (const Outcome& outcome : result_.outcomes) {
    result_.end_s = std::max(result_.end_s, outcome.end_s);
  }
  judge(before);
  return std::move(result_);
}

// Until it ended. Errors: unavailable with what went wrong.
Result<Outcome> ask(Client& client, const Workload& workload, std::string body,
                    std::string_view what) {
  std::optional<Outcome> out;
  TRINE_TRY(client.start(endpoint_path(workload.options().endpoint), std::move(body), now_s(),
                         [&out](Outcome outcome) { out = std::move(outcome); }));
  while (!out.has_value()) {
    client.poll(kTick);
  }
  if (out->failure != Failure::kNone) {
    return fail(ErrorCode::kUnavailable, "{} failed: {}{}: {}", what, failure_name(out->failure),
                out->status != 0 ? fmt::format(" (HTTP status {})", out->status) : "", out->error);
  }
  return std::move(*out);
}

}  // namespace

Status calibrate(Client& client, Workload& workload) {
  constexpr std::int64_t kFew = 16;
  constexpr std::int64_t kMany = 80;
  TRINE_TRY_ASSIGN(const Outcome few,
                   ask(client, workload, workload.probe_body(kFew), "the first request"));
  TRINE_TRY_ASSIGN(const Outcome many,
                   ask(client, workload, workload.probe_body(kMany), "the second request"));
  const double slope = static_cast<double>(many.prompt_tokens - few.prompt_tokens) / (kMany - kFew);
  if (!(slope > 0.0)) {
    return fail(ErrorCode::kUnavailable,
                "prompts of {} and {} words are {} and {} tokens by the server's usage; it cannot "
                "be right",
                kFew, kMany, few.prompt_tokens, many.prompt_tokens);
  }
  workload.options().tokens_per_word = slope;
  workload.options().overhead_tokens =
      std::max(0.0, static_cast<double>(few.prompt_tokens) - slope * kFew);
  return {};
}

Result<RunResult> run(Client& client, const Workload& workload, const RunOptions& options) {
  if (options.warmup > 0) {
    RunOptions warm;
    warm.mode = Mode::kClosed;
    warm.clients =
        std::min<std::int64_t>(options.warmup, std::max<std::int64_t>(options.clients, 1));
    warm.num_requests = options.warmup;
    warm.cancel = options.cancel;
    const Workload other = workload.for_warmup();
    TRINE_TRY_ASSIGN(const RunResult result, Run(client, other, warm).go());
    for (const Outcome& outcome : result.outcomes) {
      if (outcome.failure != Failure::kNone) {
        return fail(ErrorCode::kUnavailable, "a warm-up request failed: {}: {}",
                    failure_name(outcome.failure), outcome.error);
      }
    }
  }
  return Run(client, workload, options).go();
}

}  // namespace trine::loadgen
