// The parser works on the text that is not decided yet. Every step decides on the shortest prefix
// that settles the matter and looks at nothing behind it, so cuts between pieces change nothing.
// Work is linear: what a step has scanned is remembered, and a body deeper than any call ends at
// once.
#include "server/openai/tool_calls.h"

#include <algorithm>
#include <utility>

#include "server/openai/tool_json.h"

namespace trine::server::openai {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr int kMaxDepth = 34;
constexpr std::size_t kMaxName = 64;

// How a call begins and ends in running text.
struct Marks {
  std::vector<std::string_view> openers;
  std::vector<std::string_view> closers;
  bool bare = false;    // JSON at the very begin is a call
  bool fenced = false;  // so is JSON in a ``` block there
};

Marks marks_of(ToolFamily family) {
  switch (family) {
    case ToolFamily::kHermes:
      return {.openers = {"<tool_call>"}, .closers = {"</tool_call>"}};
    case ToolFamily::kLlama3:
      return {.openers = {"<|python_tag|>"}, .closers = {"<|eom_id|>", "<|eot_id|>"}, .bare = true};
    case ToolFamily::kMistral:
    case ToolFamily::kMistralArgs:
      return {.openers = {"[TOOL_CALLS]"}, .closers = {}};
    case ToolFamily::kPhi:
      return {.openers = {"<|tool_call|>", "functools"}, .closers = {"<|/tool_call|>"}};
    case ToolFamily::kGemma:
      return {.openers = {"<start_function_call>"}, .closers = {"<end_function_call>"}};
    case ToolFamily::kGeneric:
      return {.openers = {}, .closers = {}, .bare = true, .fenced = true};
  }
  return {};
}

enum class Match : std::uint8_t { kNo, kPart, kWhole };

Match match(std::string_view text, std::string_view mark) {
  if (text.starts_with(mark)) {
    return Match::kWhole;
  }
  return mark.starts_with(text) ? Match::kPart : Match::kNo;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

struct ToolCallParser::State {
  enum class Mode : std::uint8_t { kText, kBody, kAfter };
  enum class Step : std::uint8_t { kAgain, kWait };

  State(ToolFamily of, bool forced) : family(of), marks(marks_of(of)) {
    if (forced) {
      mode = Mode::kBody;
      json_only = true;
    }
  }

  ToolFamily family;
  Marks marks;
  Mode mode = Mode::kText;
  bool at_start = true;    // nothing but white space so far
  bool json_only = false;  // behind a forced prefix
  bool fence_open = false;
  bool closer_seen = false;
  std::string text;       // not decided yet; in a body: white space, opener and the body so far
  std::size_t space = 0;  // of the white space at its begin
  std::size_t body = 0;   // where the body begins
  std::int32_t calls = 0;

  // The scan of a body.
  std::size_t at = 0;
  int depth = 0;
  bool in_string = false;
  bool escaped = false;
  std::size_t value = 0;  // where its JSON begins, when `begun`
  bool begun = false;
  std::string name;  // [TOOL_CALLS]name[ARGS]

  std::vector<ToolDelta>* out = nullptr;

  void content(std::size_t size) {
    if (size == 0) {
      return;
    }
    if (!out->empty() && out->back().kind == ToolDelta::Kind::kContent) {
      out->back().text.append(text, 0, size);
    } else {
      out->push_back({.kind = ToolDelta::Kind::kContent, .call = 0, .text = text.substr(0, size)});
    }
    text.erase(0, size);
  }

  void call(ToolCallText made) {
    out->push_back({ToolDelta::Kind::kCallBegin, calls, std::move(made.name)});
    out->push_back({ToolDelta::Kind::kArguments, calls, std::move(made.arguments)});
    out->push_back({ToolDelta::Kind::kCallEnd, calls, {}});
    ++calls;
  }

  void enter_body(std::size_t white, std::size_t begin) {
    mode = Mode::kBody;
    at_start = false;
    space = white;
    body = begin;
    at = begin;
    depth = 0;
    in_string = false;
    escaped = false;
    begun = false;
    name.clear();
  }

  void enter_after(std::size_t used) {
    text.erase(0, used);
    mode = Mode::kAfter;
    json_only = false;
    closer_seen = false;
  }

  // Not a call after all: its first byte is text, the rest is looked at again.
  Step give_up() {
    mode = Mode::kText;
    json_only = false;
    fence_open = false;
    at_start = false;
    content(std::min(space + 1, text.size()));
    return Step::kAgain;
  }

  std::optional<Step> bare_start(bool final) {
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string::npos) {
      return std::nullopt;
    }
    const char c = text[first];
    if (marks.bare && (c == '{' || (c == '[' && family == ToolFamily::kGeneric))) {
      enter_body(first, first);
      return Step::kAgain;
    }
    if (!marks.fenced || c != '`') {
      return std::nullopt;
    }
    // ```word newline
    constexpr std::string_view kFence = "```";
    const std::string_view rest = std::string_view(text).substr(first);
    const Match found = match(rest, kFence);
    if (found == Match::kPart && !final) {
      return Step::kWait;
    }
    if (found != Match::kWhole) {
      return std::nullopt;
    }
    std::size_t end = kFence.size();
    while (end < rest.size() && (is_name_char(rest[end]) || rest[end] == ' ')) {
      ++end;
    }
    if (end == rest.size() && !final && end <= kFence.size() + kMaxName) {
      return Step::kWait;
    }
    if (end == rest.size() || end > kFence.size() + kMaxName ||
        (rest[end] != '\n' && rest[end] != '\r')) {
      return std::nullopt;
    }
    enter_body(first, first + end);
    fence_open = true;
    return Step::kAgain;
  }

  Step text_step(bool final) {
    if (at_start) {
      if (const auto step = bare_start(final)) {
        return *step;
      }
    }
    std::size_t white = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (kSpace.find(text[i]) != std::string_view::npos) {
        continue;
      }
      for (const std::string_view opener : marks.openers) {
        const Match found = match(std::string_view(text).substr(i), opener);
        if (found == Match::kWhole) {
          content(white);
          enter_body(i - white, i - white + opener.size());
          return Step::kAgain;
        }
        if (found == Match::kPart && !final) {
          if (white > 0) {
            at_start = false;
          }
          content(white);
          return Step::kWait;
        }
      }
      white = i + 1;
    }
    if (white > 0) {
      at_start = false;
    }
    content(final ? text.size() : white);
    return Step::kWait;
  }

  // The bytes that make the JSON value, found by its brackets.
  std::optional<bool> scan_value() {
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        if (++depth > kMaxDepth) {
          return false;
        }
      } else if ((c == '}' || c == ']') && --depth == 0) {
        ++at;
        return true;
      }
    }
    return std::nullopt;
  }

  // name[ARGS], name[CALL_ID]id[ARGS] or name before a brace. Nothing: more is needed.
  std::optional<bool> scan_name() {
    const std::string_view rest = std::string_view(text).substr(at);
    std::size_t end = 0;
    while (end < rest.size() && is_name_char(rest[end])) {
      ++end;
    }
    if (end == 0 || end > kMaxName) {
      return false;
    }
    if (end == rest.size()) {
      return std::nullopt;
    }
    std::string_view tail = rest.substr(end);
    std::size_t skipped = 0;
    constexpr std::string_view kId = "[CALL_ID]";
    if (const Match id = match(tail, kId); id != Match::kNo) {
      if (id == Match::kPart) {
        return std::nullopt;
      }
      skipped = kId.size();
      while (skipped < tail.size() && is_name_char(tail[skipped])) {
        ++skipped;
      }
      if (skipped > kId.size() + kMaxName) {
        return false;
      }
      if (skipped == tail.size()) {
        return std::nullopt;
      }
      tail.remove_prefix(skipped);
    }
    constexpr std::string_view kArgs = "[ARGS]";
    const Match args = match(tail, kArgs);
    if (args == Match::kPart) {
      return std::nullopt;
    }
    if (args == Match::kNo && tail.front() != '{') {
      return false;
    }
    name = rest.substr(0, end);
    at += end + skipped + (args == Match::kWhole ? kArgs.size() : 0);
    return true;
  }

  // At the first byte of a body that is not white space.
  std::optional<bool> begin_value() {
    const std::size_t first = text.find_first_not_of(kSpace, at);
    if (first == std::string::npos) {
      return std::nullopt;
    }
    at = first;
    const bool mistral = family == ToolFamily::kMistral || family == ToolFamily::kMistralArgs;
    if (mistral && !json_only && name.empty() && text[at] != '{' && text[at] != '[') {
      const auto named = scan_name();
      if (!named.value_or(false)) {
        return named;
      }
      return begin_value();
    }
    if (text[at] != '{' && (text[at] != '[' || !name.empty())) {
      return false;
    }
    value = at;
    begun = true;
    return true;
  }

  Step body_step(bool final) {
    if (family == ToolFamily::kGemma && !json_only) {
      return gemma_step(final);
    }
    std::optional<bool> done = true;
    if (!begun) {
      done = begin_value();
    }
    if (done.value_or(false)) {
      done = scan_value();
    }
    if (!done) {
      return final ? give_up() : Step::kWait;
    }
    if (!*done) {
      return give_up();
    }
    const std::string_view json = std::string_view(text).substr(value, at - value);
    if (name.empty()) {
      auto made = calls_from_json(json);
      if (!made) {
        return give_up();
      }
      for (ToolCallText& each : *made) {
        call(std::move(each));
      }
    } else {
      auto arguments = arguments_from_json(json);
      if (!arguments) {
        return give_up();
      }
      call({name, std::move(*arguments)});
    }
    enter_after(at);
    return Step::kAgain;
  }

  Step gemma_step(bool final) {
    constexpr std::string_view kEscape = "<escape>";
    constexpr std::string_view kEnd = "<end_function_call>";
    bool ended = false;
    while (at < text.size() && !ended) {
      const std::string_view rest = std::string_view(text).substr(at);
      const Match escape = match(rest, kEscape);
      const Match end = in_string ? Match::kNo : match(rest, kEnd);
      if (escape == Match::kWhole) {
        in_string = !in_string;
        at += kEscape.size();
      } else if (end == Match::kWhole) {
        ended = true;
      } else if (!final && (escape == Match::kPart || end == Match::kPart)) {
        return Step::kWait;
      } else {
        ++at;
      }
    }
    if (!ended && !final) {
      return Step::kWait;
    }
    auto made = call_from_gemma(std::string_view(text).substr(body, at - body));
    if (!made) {
      return give_up();
    }
    call(std::move(*made));
    enter_after(at);
    return Step::kAgain;
  }

  Step after_step(bool final) {
    const std::string_view between = marks.bare ? " \t\r\n;" : kSpace;
    text.erase(0, std::min(text.find_first_not_of(between), text.size()));
    if (text.empty()) {
      return Step::kWait;
    }
    std::vector<std::string_view> closers = marks.closers;
    if (fence_open) {
      closers = {"```"};
    }
    for (const std::string_view closer : closers) {
      const Match found = closer_seen ? Match::kNo : match(text, closer);
      if (found == Match::kWhole) {
        text.erase(0, closer.size());
        closer_seen = true;
        fence_open = false;
        return Step::kAgain;
      }
      if (found == Match::kPart && !final) {
        return Step::kWait;
      }
    }
    if (marks.bare && text.front() == '{') {
      enter_body(0, 0);
      return Step::kAgain;
    }
    mode = Mode::kText;
    fence_open = false;
    return Step::kAgain;
  }

  void run(bool final) {
    Step step = Step::kAgain;
    while (step == Step::kAgain && (!text.empty() || (final && mode == Mode::kBody))) {
      switch (mode) {
        case Mode::kText:
          step = text_step(final);
          break;
        case Mode::kBody:
          step = body_step(final);
          break;
        case Mode::kAfter:
          step = after_step(final);
          break;
      }
    }
  }
};

ToolCallParser::ToolCallParser(ToolFamily family, bool begun)
    : state_(std::make_unique<State>(family, begun)) {}

ToolCallParser::~ToolCallParser() = default;
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;
ToolCallParser& ToolCallParser::operator=(ToolCallParser&&) noexcept = default;

void ToolCallParser::push(std::string_view text, std::vector<ToolDelta>& out) {
  state_->out = &out;
  state_->text += text;
  state_->run(/*final=*/false);
}

void ToolCallParser::finish(std::vector<ToolDelta>& out) {
  state_->out = &out;
  state_->run(/*final=*/true);
}

std::int32_t ToolCallParser::num_calls() const {
  return state_->calls;
}

std::string_view tool_family_name(ToolFamily family) {
  switch (family) {
    case ToolFamily::kHermes:
      return "hermes";
    case ToolFamily::kLlama3:
      return "llama3";
    case ToolFamily::kMistral:
      return "mistral";
    case ToolFamily::kMistralArgs:
      return "mistral-args";
    case ToolFamily::kPhi:
      return "phi";
    case ToolFamily::kGemma:
      return "gemma";
    case ToolFamily::kGeneric:
      return "generic";
  }
  return "generic";
}

std::optional<ToolFamily> parse_tool_family(std::string_view name) {
  for (const ToolFamily family :
       {ToolFamily::kHermes, ToolFamily::kLlama3, ToolFamily::kMistral, ToolFamily::kMistralArgs,
        ToolFamily::kPhi, ToolFamily::kGemma, ToolFamily::kGeneric}) {
    if (tool_family_name(family) == name) {
      return family;
    }
  }
  return std::nullopt;
}

std::optional<ToolFamily> tool_family_of(std::string_view template_text) {
  const auto has = [&](std::string_view mark) {
    return template_text.find(mark) != std::string_view::npos;
  };
  if (has("<start_function_call>")) {
    return ToolFamily::kGemma;
  }
  if (has("[TOOL_CALLS]")) {
    return has("[ARGS]") ? ToolFamily::kMistralArgs : ToolFamily::kMistral;
  }
  if (has("<|tool_call|>") || has("functools[")) {
    return ToolFamily::kPhi;
  }
  if (has("<tool_call>")) {
    return ToolFamily::kHermes;
  }
  if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
    return ToolFamily::kLlama3;
  }
  return std::nullopt;
}

}  // namespace trine::server::openai
