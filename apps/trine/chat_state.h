// The conversation of `trine chat`: messages, what the /commands do to it, saving and loading.
// Thread rule: belongs to one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trine::app {

class ChatState {
 public:
  explicit ChatState(std::string system) { set_system(std::move(system)); }

  // Empty: no system prompt. The rest of the conversation stays.
  void set_system(std::string system) { system_ = std::move(system); }

  const std::string& system() const { return system_; }

  void add_user(std::string text);
  void add_assistant(std::string text);
  // Takes the last message back, when an answer could not be made.
  void drop_last();
  // Removes the last answer, so that its question can be asked again. False when there is none.
  bool take_back_answer();
  // Removes the last question and its answer. False when there is none.
  bool undo();

  void clear() { turns_ = nlohmann::ordered_json::array(); }

  std::size_t num_messages() const { return turns_.size(); }

  // System prompt and turns, in the OpenAI shape.
  nlohmann::ordered_json messages() const;

  // The array of messages() as JSON text, which `trine template` reads too.
  std::string to_json() const;
  // Replaces everything. Errors: invalid_argument for anything but an array of system, user and
  // assistant messages with text, or an object with such an array in "messages".
  Status from_json(std::string_view text);

 private:
  std::string system_;
  nlohmann::ordered_json turns_ = nlohmann::ordered_json::array();
};

// "/set top-p 0.9" -> {"set", "top-p 0.9"}; nullopt for a line that is no command. "//x" is the
// text "/x".
struct SlashCommand {
  std::string name;
  std::string rest;
};

std::optional<SlashCommand> parse_slash_command(std::string_view line);

}  // namespace trine::app
