// One line (or several, pasted) of input from the user: with editing and history on a terminal,
// plain otherwise.
//
// On a terminal the prompt and the echo go to stderr, so that stdout holds answers only. The
// terminal is in raw mode, without echo, for the editor's life; Ctrl-C is a signal except during
// read(). One editor at a time. Thread rule: main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/trine/line_core.h"

namespace trine::app {

class LineEditor {
 public:
  enum class Outcome : std::uint8_t { kLine, kInterrupted, kEndOfInput };

  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Editing is on: stdin and stderr are terminals and TERM is not "dumb".
  bool interactive() const { return interactive_; }

  Outcome read(std::string_view prompt, std::string& line);

  void add_history(std::string line) { core_.add_history(std::move(line)); }

 private:
  Outcome read_terminal(std::string_view prompt, std::string& line);
  Outcome read_plain(std::string& line);

  bool interactive_;
  LineCore core_;
  std::string buffered_;  // bytes read from stdin and not used yet
};

}  // namespace trine::app
