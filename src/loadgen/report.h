// What a run amounts to, in the words of vLLM's benchmark.
//
// TTFT: scheduled arrival to the first output. TPOT: (last output - first output) / (tokens - 1) of
// a request, tokens by the server's usage. ITL: gaps between outputs (a chunk of several tokens
// counts once). E2EL: scheduled arrival to the end of the stream. Failed requests are in no
// latency. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "loadgen/runner.h"
#include "loadgen/statistics.h"

namespace trine::loadgen {

// Limits that a request must meet, in ms; those that are given.
struct Slo {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2el_ms;

  bool given() const { return ttft_ms || tpot_ms || e2el_ms; }
};

// "ttft:200", one each. Errors: invalid_argument, naming --goodput.
Result<Slo> parse_slo(const std::vector<std::string>& entries);

struct Report {
  std::int64_t completed = 0;
  std::map<std::string, std::int64_t> failures;    // by kind: http_429, timeout, ...
  std::map<std::string, std::string> first_error;  // of each kind
  double duration_s = 0.0;
  std::int64_t input_tokens = 0;  // of completed requests
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;
  double peak_output_rate = 0.0;  // tokens in the best second
  std::int64_t peak_concurrent = 0;
  std::int64_t good = 0;  // met all limits
  Interval request_rate;
  Interval output_rate;
  Interval total_rate;
  Interval good_rate;
  Summary ttft_ms;
  Summary tpot_ms;
  Summary itl_ms;
  Summary e2el_ms;

  std::int64_t failed() const;

  double per_second(double amount) const { return duration_s > 0.0 ? amount / duration_s : 0.0; }
};

Report make_report(const RunResult& result, const Slo& slo, std::uint64_t seed);

// How the run was set up, for the report.
struct RunNames {
  std::string base_url = {};
  std::string endpoint = {};
  std::string model = {};
  std::string arrivals = {};  // "poisson at 4/s", "replay", "8 clients"
  double request_rate = 0.0;  // infinity: none configured
  double burstiness = 1.0;
  std::int64_t max_concurrency = 0;  // 0: open loop
  std::int64_t num_prompts = 0;
  std::uint64_t seed = 0;
};

// vLLM's block, then lines of our own with the intervals.
std::string report_text(const Report& report, const RunResult& result, const RunNames& names,
                        const Slo& slo);
// vLLM's keys; ours are added. `detailed`: with the lists of each request.
nlohmann::ordered_json report_json(const Report& report, const RunResult& result,
                                   const RunNames& names, const Slo& slo, bool detailed);

}  // namespace trine::loadgen
