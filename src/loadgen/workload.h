// What is sent: bodies of requests, made up or from a trace.
//
// Made-up prompts are random common English words, most of which are one token in any vocabulary of
// natural text; how many tokens a word really is at a server, and how many its template adds, is
// measured before the run (runner.h) and given here. Request i is a pure function of the seed and
// i. Thread rule: a value; const calls from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "loadgen/trace.h"

namespace trine::loadgen {

enum class Endpoint : std::uint8_t { kCompletions, kChat };

std::string_view endpoint_path(Endpoint endpoint);

// "512", "256-1024" (even), "lognormal:MEDIAN:SIGMA".
struct LengthLaw {
  enum class Kind : std::uint8_t { kRange, kLogNormal };
  Kind kind = Kind::kRange;
  std::int64_t low = 1;  // both inclusive
  std::int64_t high = 1;
  double median = 1.0;
  double sigma = 0.0;

  std::int64_t draw(std::uint64_t seed, std::uint64_t index, std::uint32_t use) const;
};

// Errors: invalid_argument, with `what` in front.
Result<LengthLaw> parse_length(std::string_view text, std::string_view what);

struct WorkloadOptions {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model = {};
  LengthLaw input = {};
  LengthLaw output = {};
  std::int64_t prefix_tokens = 0;  // before every prompt, the same in a group
  std::int64_t prefix_groups = 1;
  std::int64_t prompt_ids = 0;  // above 0: prompts are random ids below it, completions only
  bool ignore_eos = false;
  double temperature = 0.0;
  std::string extra_body = {};  // JSON object laid over every body; empty: none
  std::uint64_t seed = 0;
  // Measured at the server.
  double tokens_per_word = 1.0;
  double overhead_tokens = 0.0;
};

class Workload {
 public:
  // `trace` may be empty; else request i is its entry i, from the front again past its end. Errors:
  // invalid_argument for extra_body and for what the endpoint cannot send.
  static Result<Workload> create(WorkloadOptions options, std::vector<TraceEntry> trace);

  // The JSON body of request `index`.
  std::string body(std::uint64_t index) const;
  // Of so many words and one token of answer: to measure tokens per word.
  std::string probe_body(std::int64_t num_words) const;

  // The same without the trace and with another seed: nothing of it is in a cache that knows this.
  Workload for_warmup() const;

  const std::vector<TraceEntry>& trace() const { return trace_; }

  const WorkloadOptions& options() const { return options_; }

  WorkloadOptions& options() { return options_; }

 private:
  Workload(WorkloadOptions options, std::vector<TraceEntry> trace)
      : options_(std::move(options)), trace_(std::move(trace)) {}

  std::int64_t words_for(std::int64_t tokens) const;

  WorkloadOptions options_;
  std::vector<TraceEntry> trace_;
};

}  // namespace trine::loadgen
