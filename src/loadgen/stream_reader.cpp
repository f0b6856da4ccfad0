#include "loadgen/stream_reader.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"

namespace trine::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 200;

bool has_text(const Json& of, std::string_view name) {
  const auto at = of.find(name);
  return at != of.end() && at->is_string() && !at->get_ref<const std::string&>().empty();
}

bool is_output(const Json& choice) {
  if (has_text(choice, "text")) {
    return true;
  }
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) {
    return false;
  }
  const auto calls = delta->find("tool_calls");
  return has_text(*delta, "content") || has_text(*delta, "reasoning_content") ||
         has_text(*delta, "reasoning") ||
         (calls != delta->end() && calls->is_array() && !calls->empty());
}

std::optional<std::int64_t> count(const Json& of, std::string_view name) {
  const auto at = of.find(name);
  if (at == of.end() || !at->is_number_unsigned()) {
    return std::nullopt;
  }
  return std::min<std::uint64_t>(at->get<std::uint64_t>(), std::uint64_t{1} << 40);
}

std::string message_of(const Json& value) {
  const auto error = value.find("error");
  if (error == value.end()) {
    return {};
  }
  if (error->is_string()) {
    return error->get<std::string>();
  }
  if (error->is_object() && has_text(*error, "message")) {
    return (*error)["message"].get<std::string>();
  }
  return error->is_null() ? std::string() : "an error without a message";
}

}  // namespace

Result<StreamReader::Found> StreamReader::add(std::string_view bytes) {
  Found found;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (rest_.size() + std::min(end, bytes.size()) > kMostLine) {
      return fail(ErrorCode::kCorruptData, "a line of the stream is over {} bytes", kMostLine);
    }
    if (end == bytes.npos) {
      rest_ += bytes;
      break;
    }
    if (rest_.empty()) {
      TRINE_TRY(line(bytes.substr(0, end), found));
    } else {
      rest_ += bytes.substr(0, end);
      TRINE_TRY(line(rest_, found));
      rest_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return found;
}

Status StreamReader::line(std::string_view text, Found& found) {
  if (text.ends_with('\r')) {
    text.remove_suffix(1);
  }
  constexpr std::string_view kData = "data:";
  if (!text.starts_with(kData)) {
    return {};  // comments, event names, ids and the empty line between events
  }
  text.remove_prefix(kData.size());
  if (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  if (text == "[DONE]") {
    done_ = true;
    return {};
  }
  return event(text, found);
}

Status StreamReader::event(std::string_view json, Found& found) {
  TRINE_TRY_ASSIGN(const Json value, parse_json(json, {.max_bytes = kMostLine}));
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "an event is no object: {}", printable(json, kShown));
  }
  if (const std::string message = message_of(value); !message.empty()) {
    return fail(ErrorCode::kUnavailable, "error event: {}", printable(message, kShown));
  }
  if (const auto usage = value.find("usage"); usage != value.end() && usage->is_object()) {
    prompt_tokens_ = count(*usage, "prompt_tokens");
    completion_tokens_ = count(*usage, "completion_tokens");
    const auto details = usage->find("prompt_tokens_details");
    if (details != usage->end() && details->is_object()) {
      cached_tokens_ = count(*details, "cached_tokens").value_or(0);
    }
  }
  const auto choices = value.find("choices");
  if (choices == value.end() || !choices->is_array()) {
    return {};
  }
  bool output = false;
  for (const Json& choice : *choices) {
    if (!choice.is_object()) {
      return fail(ErrorCode::kCorruptData, "a choice is no object: {}", printable(json, kShown));
    }
    output = output || is_output(choice);
    if (has_text(choice, "finish_reason")) {
      finish_reason_ = choice["finish_reason"].get<std::string>();
    }
  }
  found.num_outputs += output ? 1 : 0;
  return {};
}

Status StreamReader::finish() const {
  if (!rest_.empty()) {
    return fail(ErrorCode::kCorruptData, "the stream ends within a line");
  }
  if (finish_reason_.empty() || !done_) {
    return fail(ErrorCode::kCorruptData, "the stream ends without {}",
                finish_reason_.empty() ? "a finish_reason" : "[DONE]");
  }
  return {};
}

std::string error_text(std::string_view body) {
  if (const auto value = parse_json(body, {.max_bytes = std::size_t{1} << 20});
      value.has_value() && value->is_object()) {
    if (const std::string message = message_of(*value); !message.empty()) {
      return printable(message, kShown);
    }
  }
  return printable(body, kShown);
}

}  // namespace trine::loadgen
