#include "loadgen/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"

namespace trine::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 40;  // bytes of a bad value in a message

std::string shown(std::string_view text) {
  return printable(text, kShown);
}

// Calls `line` with its number from 1 for every line that is not empty; a CR before the end is
// dropped.
Status for_each_line(std::string_view text,
                     const std::function<Status(std::string_view line, std::size_t number)>& line) {
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.ends_with('\r')) {
      one.remove_suffix(1);
    }
    if (one.empty()) {
      continue;
    }
    TRINE_TRY(line(one, number));
  }
  return {};
}

Result<std::int64_t> count_of(std::string_view text, std::size_t line, std::string_view field,
                              std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least ||
      value > kMostTokens) {
    return fail(ErrorCode::kCorruptData,
                "line {}: {} is '{}', must be a whole number from {} to {}", line, field,
                shown(text), least, kMostTokens);
  }
  return value;
}

// `width` digits at the front of `text`, which it drops.
bool take_digits(std::string_view& text, std::size_t width, int& value) {
  value = 0;
  if (text.size() < width) {
    return false;
  }
  for (std::size_t i = 0; i < width; ++i) {
    if (text[i] < '0' || text[i] > '9') {
      return false;
    }
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(width);
  return true;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

// ".9799600": any number of digits, in ms.
bool take_fraction(std::string_view& text, double& ms) {
  ms = 0.0;
  if (!take(text, '.')) {
    return true;
  }
  double unit = 100.0;
  const std::size_t before = text.size();
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    ms += unit * (text.front() - '0');
    unit /= 10.0;
    text.remove_prefix(1);
  }
  return text.size() != before;
}

// "2023-11-16 18:17:03.9799600", in the files of 2024 with "+00:00" behind: ms since 1970.
std::optional<double> time_of(std::string_view text) {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  double fraction_ms = 0.0;
  if (!take_digits(text, 4, year) || !take(text, '-') || !take_digits(text, 2, month) ||
      !take(text, '-') || !take_digits(text, 2, day) || (!take(text, ' ') && !take(text, 'T')) ||
      !take_digits(text, 2, hour) || !take(text, ':') || !take_digits(text, 2, minute) ||
      !take(text, ':') || !take_digits(text, 2, second) || !take_fraction(text, fraction_ms) ||
      (!text.empty() && text != "+00:00" && text != "Z")) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) {
    return std::nullopt;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const double seconds =
      static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
  return seconds * 1e3 + fraction_ms;
}

Result<Trace> read_azure(std::string_view text) {
  constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
  Trace out;
  bool header = false;
  TRINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t number) -> Status {
    if (!header) {
      if (line.starts_with("\xEF\xBB\xBF")) {
        line.remove_prefix(3);
      }
      if (line != kHeader) {
        return fail(ErrorCode::kCorruptData, "line {}: the header is '{}', must be '{}'", number,
                    shown(line), kHeader);
      }
      header = true;
      return {};
    }
    const std::size_t first = line.find(',');
    const std::size_t second = first == line.npos ? line.npos : line.find(',', first + 1);
    if (second == line.npos || line.find(',', second + 1) != line.npos) {
      return fail(ErrorCode::kCorruptData, "line {}: '{}' has not the three fields {}", number,
                  shown(line), kHeader);
    }
    const std::string_view stamp = line.substr(0, first);
    const std::optional<double> at_ms = time_of(stamp);
    if (!at_ms.has_value()) {
      return fail(ErrorCode::kCorruptData,
                  "line {}: TIMESTAMP is '{}', must be like '2023-11-16 18:17:03.9799600'", number,
                  shown(stamp));
    }
    TraceEntry entry;
    entry.at_ms = at_ms;
    TRINE_TRY_ASSIGN(entry.prompt_tokens, count_of(line.substr(first + 1, second - first - 1),
                                                   number, "ContextTokens", 1));
    TRINE_TRY_ASSIGN(entry.output_tokens,
                     count_of(line.substr(second + 1), number, "GeneratedTokens", 1));
    out.entries.push_back(std::move(entry));
    return {};
  }));
  if (!header) {
    return fail(ErrorCode::kCorruptData, "line 1: the header '{}' is missing", kHeader);
  }
  return out;
}

// One object of a line, with checked access to its fields.
class Fields {
 public:
  static Result<Fields> parse(std::string_view line, std::size_t number) {
    auto value = parse_json(line, {.max_depth = 32, .max_bytes = std::size_t{64} << 20});
    if (!value.has_value()) {
      return tl::unexpected(std::move(value).error().with_context(fmt::format("line {}", number)));
    }
    if (!value->is_object()) {
      return fail(ErrorCode::kCorruptData, "line {}: must be an object in braces", number);
    }
    return Fields(std::move(*value), number);
  }

  bool has(std::string_view name) const { return value_.contains(name); }

  const Json& at(std::string_view name) const { return *value_.find(name); }

  Status only(std::initializer_list<std::string_view> names) const {
    for (const auto& [key, value] : value_.items()) {
      if (std::find(names.begin(), names.end(), key) == names.end()) {
        std::string known;
        for (const std::string_view name : names) {
          known += known.empty() ? "" : ", ";
          known += name;
        }
        return fail(ErrorCode::kCorruptData, "line {}: field '{}' is not known; there are {}",
                    number_, shown(key), known);
      }
    }
    return {};
  }

  Result<std::int64_t> count(std::string_view name, std::int64_t least) const {
    const auto at = value_.find(name);
    if (at == value_.end()) {
      return fail(ErrorCode::kCorruptData, "line {}: field '{}' is missing", number_, name);
    }
    return count_of(at->is_number_integer() ? at->dump() : "not a whole number", number_, name,
                    least);
  }

  Result<double> milliseconds(std::string_view name) const {
    const auto at = value_.find(name);
    if (at == value_.end()) {
      return fail(ErrorCode::kCorruptData, "line {}: field '{}' is missing", number_, name);
    }
    const double value = at->is_number() ? at->get<double>() : -1.0;
    if (!(value >= 0.0 && value <= kMostTraceMs)) {
      return fail(ErrorCode::kCorruptData,
                  "line {}: {} must be a number of milliseconds from 0 to {:g}", number_, name,
                  kMostTraceMs);
    }
    return value;
  }

  std::size_t number() const { return number_; }

 private:
  Fields(Json value, std::size_t number) : value_(std::move(value)), number_(number) {}

  Json value_;
  std::size_t number_;
};

Result<TraceEntry> mooncake_entry(const Fields& fields) {
  TraceEntry out;
  TRINE_TRY_ASSIGN(out.at_ms, fields.milliseconds("timestamp"));
  TRINE_TRY_ASSIGN(out.prompt_tokens, fields.count("input_length", 1));
  TRINE_TRY_ASSIGN(out.output_tokens, fields.count("output_length", 1));
  if (!fields.has("hash_ids") || !fields.at("hash_ids").is_array()) {
    return fail(ErrorCode::kCorruptData, "line {}: field 'hash_ids' must be a list of ids",
                fields.number());
  }
  const Json& ids = fields.at("hash_ids");
  const std::int64_t blocks = (out.prompt_tokens + kBlockTokens - 1) / kBlockTokens;
  if (std::cmp_not_equal(ids.size(), blocks)) {
    return fail(ErrorCode::kCorruptData,
                "line {}: hash_ids has {} ids, an input_length of {} has {} blocks of {} tokens",
                fields.number(), ids.size(), out.prompt_tokens, blocks, kBlockTokens);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_number_unsigned()) {
      return fail(ErrorCode::kCorruptData, "line {}: hash_ids[{}] must be a whole number from 0",
                  fields.number(), i);
    }
    out.blocks.push_back(ids[i].get<std::uint64_t>());
  }
  return out;
}

Result<TraceEntry> log_entry(const Fields& fields) {
  TRINE_TRY(fields.only({"timestamp_ms", "prompt", "messages", "prompt_tokens", "output_tokens"}));
  TraceEntry out;
  if (fields.has("timestamp_ms")) {
    TRINE_TRY_ASSIGN(out.at_ms, fields.milliseconds("timestamp_ms"));
  }
  if (fields.has("output_tokens")) {
    TRINE_TRY_ASSIGN(out.output_tokens, fields.count("output_tokens", 1));
  }
  const bool text = fields.has("prompt");
  const bool chat = fields.has("messages");
  if (int{text} + int{chat} + int{fields.has("prompt_tokens")} != 1) {
    return fail(ErrorCode::kCorruptData,
                "line {}: give one of the fields 'prompt', 'messages' and 'prompt_tokens'",
                fields.number());
  }
  if (text) {
    if (!fields.at("prompt").is_string() ||
        fields.at("prompt").get_ref<const std::string&>().empty()) {
      return fail(ErrorCode::kCorruptData, "line {}: field 'prompt' must be a text, not empty",
                  fields.number());
    }
    out.prompt = fields.at("prompt").get<std::string>();
  } else if (chat) {
    if (!fields.at("messages").is_array() || fields.at("messages").empty()) {
      return fail(ErrorCode::kCorruptData, "line {}: field 'messages' must be a list, not empty",
                  fields.number());
    }
    out.messages = fields.at("messages").dump();
  } else {
    TRINE_TRY_ASSIGN(out.prompt_tokens, fields.count("prompt_tokens", 1));
  }
  return out;
}

Result<Trace> read_lines(std::string_view text, Result<TraceEntry> (*entry)(const Fields&)) {
  Trace out;
  std::size_t with_time = 0;
  TRINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t number) -> Status {
    TRINE_TRY_ASSIGN(const Fields fields, Fields::parse(line, number));
    TRINE_TRY_ASSIGN(TraceEntry one, entry(fields));
    with_time += one.at_ms.has_value() ? 1U : 0U;
    if (with_time != 0 && with_time != out.entries.size() + 1) {
      return fail(ErrorCode::kCorruptData,
                  "line {}: 'timestamp_ms' is given in some lines and not in others", number);
    }
    if (out.entries.size() == kMostEntries) {
      return fail(ErrorCode::kCorruptData, "line {}: more than {} entries", number, kMostEntries);
    }
    out.entries.push_back(std::move(one));
    return {};
  }));
  return out;
}

Result<std::string> turn_text(const Json& turns, std::size_t entry, std::size_t turn) {
  const Json& one = turns[turn];
  if (!one.is_object() || !one.contains("value") || !one["value"].is_string()) {
    return fail(ErrorCode::kCorruptData,
                "entry {}: conversations[{}] must be an object with a text 'value'", entry, turn);
  }
  return one["value"].get<std::string>();
}

// Lengths in tokens are not in the file: four bytes a token, and the cuts of vLLM's benchmark.
Result<Trace> read_sharegpt(std::string_view text) {
  constexpr std::size_t kBytesPerToken = 4;
  constexpr std::size_t kLeast = 4;
  constexpr std::size_t kMostPrompt = 1024;
  constexpr std::size_t kMostTogether = 2048;
  TRINE_TRY_ASSIGN(const Json list, parse_json(text, {.max_depth = 32}));
  if (!list.is_array()) {
    return fail(ErrorCode::kCorruptData, "must be a list of conversations");
  }
  Trace out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object() || !list[i].contains("conversations") ||
        !list[i]["conversations"].is_array()) {
      return fail(ErrorCode::kCorruptData,
                  "entry {}: must be an object with a list 'conversations'", i);
    }
    const Json& turns = list[i]["conversations"];
    if (turns.size() < 2) {
      ++out.num_dropped;
      continue;
    }
    TraceEntry entry;
    TRINE_TRY_ASSIGN(entry.prompt, turn_text(turns, i, 0));
    TRINE_TRY_ASSIGN(const std::string answer, turn_text(turns, i, 1));
    const std::size_t prompt = (entry.prompt.size() + kBytesPerToken - 1) / kBytesPerToken;
    const std::size_t output = (answer.size() + kBytesPerToken - 1) / kBytesPerToken;
    if (prompt < kLeast || output < kLeast || prompt > kMostPrompt ||
        prompt + output > kMostTogether) {
      ++out.num_dropped;
      continue;
    }
    entry.output_tokens = static_cast<std::int64_t>(output);
    out.entries.push_back(std::move(entry));
  }
  return out;
}

// In a trace all entries have a time or none has.
void order_by_time(std::vector<TraceEntry>& entries) {
  if (entries.empty() || !entries.front().at_ms.has_value()) {
    return;
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TraceEntry& a, const TraceEntry& b) { return a.at_ms < b.at_ms; });
  const double first = entries.front().at_ms.value_or(0.0);
  for (TraceEntry& entry : entries) {
    entry.at_ms = entry.at_ms.value_or(first) - first;
  }
}

}  // namespace

Result<TraceFormat> parse_trace_format(std::string_view name) {
  constexpr std::pair<std::string_view, TraceFormat> kNames[] = {
      {"azure", TraceFormat::kAzure},
      {"mooncake", TraceFormat::kMooncake},
      {"sharegpt", TraceFormat::kShareGpt},
      {"log", TraceFormat::kLog},
  };
  for (const auto& [known, format] : kNames) {
    if (name == known) {
      return format;
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "there is no trace format '{}'; there are azure, mooncake, sharegpt, log", name);
}

Result<Trace> read_trace(TraceFormat format, std::string_view text) {
  Result<Trace> out = format == TraceFormat::kAzure      ? read_azure(text)
                      : format == TraceFormat::kMooncake ? read_lines(text, mooncake_entry)
                      : format == TraceFormat::kShareGpt ? read_sharegpt(text)
                                                         : read_lines(text, log_entry);
  if (!out.has_value()) {
    return out;
  }
  if (out->entries.empty()) {
    return fail(ErrorCode::kCorruptData, "there is no request in it");
  }
  order_by_time(out->entries);
  return out;
}

}  // namespace trine::loadgen
