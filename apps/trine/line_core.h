// The editing of one input, terminal-free: bytes from the keyboard in, text, cursor and screen
// updates out.
//
// The text may span several lines (bracketed paste, Ctrl-J, Alt-Enter). The cursor moves by what a
// reader sees as one character: a code point with the marks, variation selectors and joined emoji
// that follow it. Thread rule: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trine::app {

// Terminal columns of a code point: 0 for combining marks, joiners and controls, 2 for East Asian
// wide characters and emoji, else 1.
int char_width(char32_t code_point);

// Replaces every byte that is not part of well-formed UTF-8 by U+FFFD.
std::string repair_utf8(std::string_view bytes);

class LineCore {
 public:
  enum class Event : std::uint8_t {
    kNone,         // nothing to show
    kChanged,      // redraw
    kAccept,       // Enter: text() is the input
    kInterrupt,    // Ctrl-C
    kEndOfInput,   // Ctrl-D on an empty line
    kClearScreen,  // Ctrl-L
  };

  // One byte as the terminal sends it in raw mode.
  Event feed(unsigned char byte);

  const std::string& text() const { return text_; }

  std::size_t cursor() const { return cursor_; }  // byte offset, at a character border

  // Empty text, ready for the next input; history stays.
  void reset();
  // Entries equal to the last one and empty ones are not stored. At most 1000 are kept.
  void add_history(std::string entry);

  // What to write so that a terminal `columns` wide shows prompt and text with the cursor in place,
  // given that the cursor is where the previous draw() left it. Lines after the first start with
  // "... ".
  std::string draw(std::string_view prompt, int columns);
  // Moves to the line below the text; the next draw() starts there.
  std::string finish_draw();

 private:
  enum class State : std::uint8_t { kGround, kEscape, kCsi, kSs3 };

  Event key(unsigned char byte);
  Event control(unsigned char byte);
  Event escape(unsigned char byte);
  Event csi(unsigned char final);
  Event letter_key(unsigned char letter, bool word);
  Event paste_byte(unsigned char byte);
  void insert(std::string_view bytes);
  void erase(std::size_t from, std::size_t to);
  std::size_t next(std::size_t at) const;
  std::size_t previous(std::size_t at) const;
  std::size_t word_left() const;
  std::size_t word_right() const;
  std::size_t line_begin(std::size_t at) const;
  std::size_t line_end(std::size_t at) const;
  Event vertical(bool up);
  Event from_history(bool older);

  std::string text_;
  std::size_t cursor_ = 0;
  State state_ = State::kGround;
  std::string parameters_;  // of a CSI sequence
  bool pasting_ = false;
  bool paste_after_return_ = false;
  std::string pending_;  // an incomplete UTF-8 character
  std::vector<std::string> history_;
  std::size_t history_at_ = 0;  // history_.size(): the text being written
  std::string draft_;           // that text, while an older entry is shown
  int drawn_row_ = 0;           // row of the cursor below the first row of the last draw
  int drawn_last_row_ = 0;
};

}  // namespace trine::app
