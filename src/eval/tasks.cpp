#include "eval/tasks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxWeight = 1e6;
constexpr std::int64_t kMostTokens = 1 << 24;
constexpr std::size_t kMostChoices = 1024;

struct Kind {
  TaskKind kind;
  std::string_view name;
  std::string_view fields;  // of this kind only, each with blanks around it
};

constexpr std::array<Kind, 7> kKinds = {{
    {TaskKind::kExact, "exact", " answer answers ignore max_tokens stop "},
    {TaskKind::kContains, "contains", " answer answers ignore match max_tokens stop "},
    {TaskKind::kRegex, "regex", " answer answers match max_tokens stop "},
    {TaskKind::kNumeric, "numeric",
     " answer answers tolerance relative_tolerance max_tokens stop "},
    {TaskKind::kJson, "json", " answer max_tokens stop "},
    {TaskKind::kChoice, "choice", " answer choices normalize "},
    {TaskKind::kLabel, "label", " answer labels ignore max_tokens stop "},
}};
constexpr std::string_view kCommonFields = " id prompt messages kind tags weight ";

bool in_list(std::string_view list, std::string_view word) {
  return list.find(fmt::format(" {} ", word)) != std::string_view::npos;
}

tl::unexpected<Error> bad_field(std::string_view field, std::string_view wanted,
                                const Json& value) {
  constexpr std::size_t kShown = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShown) {
    text = text.substr(0, kShown) + "...";
  }
  return fail(ErrorCode::kInvalidArgument, "\"{}\" is {}, expected {}", field, text, wanted);
}

Result<std::vector<std::string>> texts(const Json& object, const char* field, bool may_be_empty) {
  std::vector<std::string> out;
  const auto at = object.find(field);
  if (at == object.end()) {
    return out;
  }
  if (!at->is_array()) {
    return bad_field(field, "a list of texts", *at);
  }
  for (const Json& one : *at) {
    if (!one.is_string() || (!may_be_empty && one.get_ref<const std::string&>().empty())) {
      return bad_field(field, "a list of texts that are not empty", *at);
    }
    out.push_back(one.get<std::string>());
  }
  if (out.empty()) {
    return bad_field(field, "a list with at least one text", *at);
  }
  return out;
}

Result<double> number(const Json& object, const char* field, double fallback, double most) {
  const auto at = object.find(field);
  if (at == object.end()) {
    return fallback;
  }
  if (!at->is_number() || !(at->get<double>() >= 0.0) || at->get<double>() > most) {
    return bad_field(field, fmt::format("a number from 0 to {:g}", most), *at);
  }
  return at->get<double>();
}

// Reads one line's object into a task.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  Result<Task> read() {
    TRINE_TRY(read_kind());
    for (const auto& [field, value] : object_.items()) {
      if (in_list(kCommonFields, field) || in_list(kind_->fields, field)) {
        continue;
      }
      return fail(ErrorCode::kInvalidArgument, "\"{}\" is no field of a task of kind {}", field,
                  kind_->name);
    }
    TRINE_TRY(read_common());
    TRINE_TRY(read_asked());
    switch (task_.kind) {
      case TaskKind::kExact:
      case TaskKind::kContains:
      case TaskKind::kRegex:
        TRINE_TRY(read_answers());
        break;
      case TaskKind::kNumeric:
        TRINE_TRY(read_numbers());
        break;
      case TaskKind::kJson:
        if (object_.contains("answer")) {
          task_.json = object_["answer"].dump();
        }
        break;
      case TaskKind::kChoice:
        TRINE_TRY(read_choices());
        break;
      case TaskKind::kLabel:
        TRINE_TRY(read_labels());
        break;
    }
    return std::move(task_);
  }

 private:
  Status read_kind() {
    const auto at = object_.find("kind");
    const std::string_view wanted = "one of exact, contains, regex, numeric, json, choice, label";
    if (at == object_.end()) {
      return fail(ErrorCode::kInvalidArgument, "\"kind\" is missing, expected {}", wanted);
    }
    for (const Kind& kind : kKinds) {
      if (*at == kind.name) {
        kind_ = &kind;
        task_.kind = kind.kind;
        return {};
      }
    }
    return bad_field("kind", wanted, *at);
  }

  Status read_common() {
    if (const auto at = object_.find("id"); at != object_.end()) {
      if (at->is_number_integer()) {
        task_.id = at->dump();
      } else if (at->is_string() && !at->get_ref<const std::string&>().empty()) {
        task_.id = at->get<std::string>();
      } else {
        return bad_field("id", "a text or a whole number", *at);
      }
    }
    TRINE_TRY_ASSIGN(task_.tags, texts(object_, "tags", false));
    TRINE_TRY_ASSIGN(task_.weight, number(object_, "weight", 1.0, kMaxWeight));
    if (!(task_.weight > 0.0)) {
      return bad_field("weight", "a number above 0; leave the task out instead", object_["weight"]);
    }
    if (const auto at = object_.find("max_tokens"); at != object_.end()) {
      if (!at->is_number_integer() || at->get<std::int64_t>() < 1 ||
          at->get<std::int64_t>() > kMostTokens) {
        return bad_field("max_tokens", fmt::format("a whole number from 1 to {}", kMostTokens),
                         *at);
      }
      task_.max_tokens = at->get<std::int32_t>();
    }
    TRINE_TRY_ASSIGN(task_.stop, texts(object_, "stop", false));
    if (const auto at = object_.find("ignore"); at != object_.end()) {
      TRINE_TRY_ASSIGN(const auto words, texts(object_, "ignore", false));
      for (const std::string& word : words) {
        if (word != "case" && word != "space" && word != "punctuation") {
          return bad_field("ignore", "a list of case, space, punctuation", *at);
        }
        task_.ignored.letter_case |= word == "case";
        task_.ignored.space |= word == "space";
        task_.ignored.punctuation |= word == "punctuation";
      }
    }
    if (const auto at = object_.find("match"); at != object_.end()) {
      if (*at != "any" && *at != "all" && *at != "none") {
        return bad_field("match", "any, all or none", *at);
      }
      task_.match = *at == "any"   ? Task::Match::kAny
                    : *at == "all" ? Task::Match::kAll
                                   : Task::Match::kNone;
    }
    return {};
  }

  Status read_asked() {
    const auto prompt = object_.find("prompt");
    const auto messages = object_.find("messages");
    if ((prompt == object_.end()) == (messages == object_.end())) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} \"prompt\" and \"messages\", expected one of them",
                  prompt == object_.end() ? "neither" : "both");
    }
    if (prompt != object_.end()) {
      if (!prompt->is_string() || prompt->get_ref<const std::string&>().empty()) {
        return bad_field("prompt", "a text that is not empty", *prompt);
      }
      task_.prompt = prompt->get<std::string>();
      return {};
    }
    if (!messages->is_array() || messages->empty()) {
      return bad_field("messages", "a list with at least one message", *messages);
    }
    for (const Json& message : *messages) {
      if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
          !message.contains("content") || !message["content"].is_string()) {
        return bad_field("messages", "objects with the texts \"role\" and \"content\"", *messages);
      }
    }
    task_.messages = messages->dump();
    return {};
  }

  // Texts of "answer" or "answers".
  Status read_answers() {
    TRINE_TRY(one_of_answers());
    if (const auto at = object_.find("answer"); at != object_.end()) {
      if (!at->is_string() ||
          (at->get_ref<const std::string&>().empty() && task_.kind != TaskKind::kExact)) {
        return bad_field("answer", "a text", *at);
      }
      task_.answers = {at->get<std::string>()};
    } else {
      TRINE_TRY_ASSIGN(task_.answers, texts(object_, "answers", task_.kind == TaskKind::kExact));
    }
    if (task_.kind != TaskKind::kRegex) {
      return {};
    }
    for (const std::string& pattern : task_.answers) {
      auto compiled = text::Regex::compile_as_pcre2(pattern);
      if (!compiled.has_value()) {
        return fail(ErrorCode::kInvalidArgument, "\"answer\": {}", compiled.error().message);
      }
      task_.patterns.push_back(*std::move(compiled));
    }
    return {};
  }

  Status read_numbers() {
    TRINE_TRY(one_of_answers());
    const bool single = object_.contains("answer");
    const Json& field = object_[single ? "answer" : "answers"];
    const Json list = single ? Json::array({field}) : field;
    if (!list.is_array() || list.empty() ||
        !std::all_of(list.begin(), list.end(), [](const Json& x) { return x.is_number(); })) {
      return bad_field(single ? "answer" : "answers",
                       single ? "a number" : "a list with at least one number", field);
    }
    task_.numbers = list.get<std::vector<double>>();
    constexpr double kAny = 1e300;
    TRINE_TRY_ASSIGN(task_.tolerance, number(object_, "tolerance", 0.0, kAny));
    TRINE_TRY_ASSIGN(task_.relative_tolerance, number(object_, "relative_tolerance", 0.0, 1.0));
    return {};
  }

  Status read_choices() {
    TRINE_TRY_ASSIGN(task_.choices, texts(object_, "choices", false));
    const std::size_t count = task_.choices.size();
    const std::set<std::string> different(task_.choices.begin(), task_.choices.end());
    if (count < 2 || count > kMostChoices || different.size() != count) {
      return fail(ErrorCode::kInvalidArgument, "\"choices\": {} different texts, expected 2 to {}",
                  different.size(), kMostChoices);
    }
    const auto at = object_.find("answer");
    if (at == object_.end()) {
      return fail(ErrorCode::kInvalidArgument, "\"answer\" is missing");
    }
    if (at->is_string()) {
      const auto right =
          std::find(task_.choices.begin(), task_.choices.end(), at->get<std::string>());
      if (right == task_.choices.end()) {
        return bad_field("answer", "one of \"choices\"", *at);
      }
      task_.right_choice = static_cast<std::size_t>(right - task_.choices.begin());
    } else if (at->is_number_integer() && at->get<std::int64_t>() >= 0 &&
               at->get<std::int64_t>() < static_cast<std::int64_t>(count)) {
      task_.right_choice = at->get<std::size_t>();
    } else {
      return bad_field("answer", fmt::format("a choice, or its index from 0 to {}", count - 1),
                       *at);
    }
    if (const auto how = object_.find("normalize"); how != object_.end()) {
      constexpr std::pair<std::string_view, Task::Normalize> kNames[] = {
          {"none", Task::Normalize::kNone},
          {"chars", Task::Normalize::kChars},
          {"tokens", Task::Normalize::kTokens},
          {"unconditional", Task::Normalize::kUnconditional}};
      const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                             [&](const auto& x) { return *how == x.first; });
      if (found == std::end(kNames)) {
        return bad_field("normalize", "none, chars, tokens or unconditional", *how);
      }
      task_.normalize = found->second;
    }
    return {};
  }

  Status read_labels() {
    TRINE_TRY_ASSIGN(task_.labels, texts(object_, "labels", false));
    if (task_.labels.size() < 2) {
      return fail(ErrorCode::kInvalidArgument, "\"labels\": expected two or more");
    }
    const auto at = object_.find("answer");
    if (at == object_.end()) {
      return fail(ErrorCode::kInvalidArgument, "\"answer\" is missing");
    }
    if (!at->is_string() || std::find(task_.labels.begin(), task_.labels.end(),
                                      at->get<std::string>()) == task_.labels.end()) {
      return bad_field("answer", "one of \"labels\"", *at);
    }
    task_.answers = {at->get<std::string>()};
    return {};
  }

  Status one_of_answers() const {
    if (object_.contains("answer") == object_.contains("answers")) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} \"answer\" and \"answers\", expected one of them",
                  object_.contains("answer") ? "both" : "neither");
    }
    return {};
  }

  const Json& object_;
  const Kind* kind_ = nullptr;
  Task task_;
};

Result<Task> parse_line(std::string_view line) {
  const auto value = parse_json(line, JsonLimits{.max_bytes = std::size_t{16} << 20});
  if (!value.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "{}", value.error().message);
  }
  if (!value->is_object()) {
    return fail(ErrorCode::kInvalidArgument, "a JSON object is expected");
  }
  return Reader(*value).read();
}

}  // namespace

std::string_view task_kind_name(TaskKind kind) {
  for (const Kind& one : kKinds) {
    if (one.kind == kind) {
      return one.name;
    }
  }
  return {};
}

Result<std::vector<Task>> parse_tasks(std::string_view content, const std::string& name) {
  std::vector<Task> out;
  std::unordered_map<std::string, std::int64_t> ids;
  std::int64_t number = 0;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    auto task = parse_line(line);
    if (!task.has_value()) {
      return tl::unexpected(
          std::move(task).error().with_context(fmt::format("{}:{}", name, number)));
    }
    task->line = number;
    if (task->id.empty()) {
      task->id = fmt::format("line {}", number);
    }
    if (const auto [at, fresh] = ids.emplace(task->id, number); !fresh) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: \"id\" is '{}', as in line {}", name, number,
                  task->id, at->second);
    }
    out.push_back(*std::move(task));
  }
  if (out.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: no tasks", name);
  }
  return out;
}

std::string asked_text(const Task& task) {
  if (task.messages.empty()) {
    return task.prompt;
  }
  std::string out;
  const auto messages = parse_json(task.messages);
  if (messages.has_value()) {
    for (const Json& message : *messages) {
      out += message["content"].get<std::string>() + "\n";
    }
  }
  return out;
}

}  // namespace trine::eval
