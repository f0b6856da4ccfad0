#include "apps/trine/chat_state.h"

#include "base/json.h"

namespace trine::app {

using Json = nlohmann::ordered_json;

void ChatState::add_user(std::string text) {
  turns_.push_back({{"role", "user"}, {"content", std::move(text)}});
}

void ChatState::add_assistant(std::string text) {
  turns_.push_back({{"role", "assistant"}, {"content", std::move(text)}});
}

void ChatState::drop_last() {
  if (!turns_.empty()) {
    turns_.erase(turns_.size() - 1);
  }
}

bool ChatState::take_back_answer() {
  if (turns_.empty() || turns_.back()["role"] != "assistant") {
    return false;
  }
  drop_last();
  return true;
}

bool ChatState::undo() {
  if (turns_.empty()) {
    return false;
  }
  take_back_answer();
  if (!turns_.empty() && turns_.back()["role"] == "user") {
    drop_last();
  }
  return true;
}

Json ChatState::messages() const {
  Json out = Json::array();
  if (!system_.empty()) {
    out.push_back({{"role", "system"}, {"content", system_}});
  }
  for (const Json& turn : turns_) {
    out.push_back(turn);
  }
  return out;
}

std::string ChatState::to_json() const {
  return messages().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status ChatState::from_json(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "{}", parsed.error().message);
  }
  const Json& list =
      parsed->is_object() && parsed->contains("messages") ? (*parsed)["messages"] : *parsed;
  if (!list.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "an array of messages is expected");
  }
  std::string system;
  Json turns = Json::array();
  for (const Json& message : list) {
    const std::size_t number = system.empty() ? turns.size() + 1 : turns.size() + 2;
    if (!message.is_object() || !message.contains("role") || !message.contains("content") ||
        !message["role"].is_string() || !message["content"].is_string()) {
      return fail(ErrorCode::kInvalidArgument,
                  "message {}: \"role\" and \"content\" with text are expected", number);
    }
    const std::string role = message["role"];
    if (role == "system" && number == 1) {
      system = message["content"];
    } else if (role == "user" || role == "assistant") {
      turns.push_back({{"role", role}, {"content", message["content"]}});
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "message {}: role \"{}\" cannot be used in a chat here", number, role);
    }
  }
  system_ = std::move(system);
  turns_ = std::move(turns);
  return {};
}

std::optional<SlashCommand> parse_slash_command(std::string_view line) {
  if (line.size() < 2 || line[0] != '/' || line[1] == '/' || line[1] == ' ') {
    return std::nullopt;
  }
  constexpr std::string_view kBlanks = " \t";
  SlashCommand out;
  const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
  out.name = line.substr(1, end - 1);
  line.remove_prefix(end);
  const std::size_t begin = line.find_first_not_of(kBlanks);
  if (begin != std::string_view::npos) {
    line = line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1);
    out.rest = line;
  }
  return out;
}

}  // namespace trine::app
