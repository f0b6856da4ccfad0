// Readers of traces and data sets: which requests to send, and when.
//
//   azure     Azure LLM inference traces: CSV with TIMESTAMP,ContextTokens,GeneratedTokens
//   mooncake  JSONL with timestamp (ms), input_length, output_length, hash_ids (512-token blocks)
//   sharegpt  JSON list with conversations[].from/value; the first two turns, no times
//   log       our own JSONL, docs/benchmarks.md: timestamp_ms, prompt | messages | prompt_tokens,
//             output_tokens
//
// Times become milliseconds after the earliest entry, entries are put in order of time. Errors:
// corrupt_data naming the line (or entry) and the field. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::loadgen {

enum class TraceFormat : std::uint8_t { kAzure, kMooncake, kShareGpt, kLog };

// Limits of what a trace may ask for.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
inline constexpr std::size_t kMostEntries = std::size_t{1} << 22;
inline constexpr double kMostTraceMs = 1e12;  // 31 years
// Tokens of one block of a Mooncake trace.
inline constexpr std::int64_t kBlockTokens = 512;

struct TraceEntry {
  std::optional<double> at_ms;  // all entries of a trace have one or none has
  // One of these three.
  std::int64_t prompt_tokens = 0;  // to be made up
  std::string prompt;
  std::string messages;  // JSON text of the list

  std::vector<std::uint64_t> blocks;          // with prompt_tokens: equal ids are equal text
  std::optional<std::int64_t> output_tokens;  // none: the run's own
};

struct Trace {
  std::vector<TraceEntry> entries;
  std::size_t num_dropped = 0;  // sharegpt: too short or too long
};

Result<TraceFormat> parse_trace_format(std::string_view name);
Result<Trace> read_trace(TraceFormat format, std::string_view text);

}  // namespace trine::loadgen
