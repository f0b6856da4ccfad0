#include "apps/trine/line_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/apps/fake_terminal.h"

namespace trine::app {
namespace {

using testing::ElementsAre;
using Event = LineCore::Event;

Event type(LineCore& core, std::string_view bytes) {
  Event last = Event::kNone;
  for (const char c : bytes) {
    last = core.feed(static_cast<unsigned char>(c));
  }
  return last;
}

std::string typed(std::string_view bytes) {
  LineCore core;
  type(core, bytes);
  return core.text();
}

constexpr const char* kLeft = "\x1b[D";
constexpr const char* kRight = "\x1b[C";
constexpr const char* kUp = "\x1b[A";
constexpr const char* kDown = "\x1b[B";

TEST(LineCore, InsertsAndMovesByCharacters) {
  EXPECT_EQ(typed("abc"), "abc");
  EXPECT_EQ(typed(std::string("ac") + kLeft + "b"), "abc");
  EXPECT_EQ(typed(std::string("你好") + kLeft + "们"), "你们好");
  EXPECT_EQ(typed(std::string("\x1bOD\x1bOCx")), "x");
  // A letter with a combining mark, and a joined family, are one step and one backspace.
  EXPECT_EQ(typed("e\xCC\x81\x7f"), "");
  EXPECT_EQ(typed(std::string("👨‍👩‍👧") + kLeft + "x"), "x👨‍👩‍👧");
  EXPECT_EQ(typed("a👍🏽\x7f"), "a");
  EXPECT_EQ(typed(std::string("ab") + kLeft + kLeft + kLeft + kRight + "x"), "axb");
}

TEST(LineCore, EditsLikeAShell) {
  EXPECT_EQ(typed("one two\x17"), "one ");
  EXPECT_EQ(typed("one two\x15x"), "x");
  EXPECT_EQ(typed("one two\x01\x0b"), "");
  EXPECT_EQ(typed("one two\x01X\x05Y"), "Xone twoY");
  EXPECT_EQ(typed("one two\x1b[HX\x1b[FY\x1b[1~Z\x1b[4~W"), "ZXone twoYW");
  EXPECT_EQ(typed("one two\x1b[1;5DX"), "one Xtwo");
  EXPECT_EQ(typed("one two\x1b"
                  "bX"),
            "one Xtwo");
  EXPECT_EQ(typed("abc\x01\x1b[3~"), "bc");
  EXPECT_EQ(typed("abc\x01\x04"), "bc");
  EXPECT_EQ(typed("abc\x08"), "ab");
}

TEST(LineCore, ReportsKeysThatEndTheInput) {
  LineCore core;
  EXPECT_EQ(type(core, "\x04"), Event::kEndOfInput);
  EXPECT_EQ(type(core, "a\x04"), Event::kChanged);
  EXPECT_EQ(type(core, "\x03"), Event::kInterrupt);
  EXPECT_EQ(type(core, "\r"), Event::kAccept);
  EXPECT_EQ(core.text(), "a");
}

TEST(LineCore, PasteKeepsLineEndsAndDropsControls) {
  LineCore core;
  EXPECT_EQ(type(core, "\x1b[200~one\rtwo\r\nthree\nfour\x03\x07 你\x1b[201~"), Event::kChanged);
  EXPECT_EQ(core.text(), "one\ntwo\nthree\nfour 你");
  EXPECT_EQ(type(core, "\r"), Event::kAccept);
  // Arrow keys inside a paste are text's business, not movement.
  EXPECT_EQ(typed("\x1b[200~ab\x1b[Dc\x1b[201~"), "abc");
}

TEST(LineCore, BrokenUtf8NeverEntersTheText) {
  EXPECT_EQ(typed("a\xff\x80z"), "az");
  EXPECT_EQ(typed("a\xe4\xbdz"), "az");
  EXPECT_EQ(repair_utf8("a\xff\xe4\xbd"), "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("你好👍"), "你好👍");
}

TEST(LineCore, HistoryKeepsTheUnfinishedLine) {
  LineCore core;
  core.add_history("first");
  core.add_history("second");
  core.add_history("second");
  core.reset();
  type(core, "dra");
  type(core, kUp);
  EXPECT_EQ(core.text(), "second");
  type(core, kUp);
  EXPECT_EQ(core.text(), "first");
  type(core, kUp);
  EXPECT_EQ(core.text(), "first");
  type(core, kDown);
  type(core, kDown);
  EXPECT_EQ(core.text(), "dra");
  type(core, kDown);
  EXPECT_EQ(core.text(), "dra");
}

TEST(LineCore, UpAndDownWalkTheLinesOfALongInput) {
  LineCore core;
  core.add_history("old");
  core.reset();
  type(core, "abcd\nxy\nlong");
  type(core, kUp);
  EXPECT_EQ(core.cursor(), 7u);  // end of "xy"
  type(core, kUp);
  EXPECT_EQ(core.cursor(), 2u);
  type(core, kUp);
  EXPECT_EQ(core.text(), "old");
  type(core, kDown);
  EXPECT_EQ(core.text(), "abcd\nxy\nlong");
}

TEST(LineCore, DrawsWrappedAndWideText) {
  FakeTerminal terminal(10);
  LineCore core;
  terminal.write(core.draw("> ", 10));
  type(core, "abcdefgh");  // fills the row exactly
  terminal.write(core.draw("> ", 10));
  EXPECT_THAT(terminal.screen(), ElementsAre("> abcdefgh"));
  EXPECT_EQ(terminal.cursor_row(), 1);
  EXPECT_EQ(terminal.cursor_column(), 0);
  type(core, "你");
  terminal.write(core.draw("> ", 10));
  EXPECT_THAT(terminal.screen(), ElementsAre("> abcdefgh", "你"));
  EXPECT_EQ(terminal.cursor_column(), 2);
  type(core, "\x01x");  // a wide character that no longer fits moves down as a whole
  terminal.write(core.draw("> ", 10));
  EXPECT_THAT(terminal.screen(), ElementsAre("> xabcdefg", "h你"));
  EXPECT_EQ(terminal.cursor_row(), 0);
  EXPECT_EQ(terminal.cursor_column(), 3);
  terminal.write(core.finish_draw());
  EXPECT_EQ(terminal.cursor_row(), 2);
}

TEST(LineCore, DrawsPastedLinesWithAMark) {
  FakeTerminal terminal(20);
  LineCore core;
  type(core, "\x1b[200~one\ntwo\x1b[201~");
  terminal.write(core.draw("> ", 20));
  EXPECT_THAT(terminal.screen(), ElementsAre("> one", "... two"));
}

TEST(CharWidth, CommonCases) {
  EXPECT_EQ(char_width('a'), 1);
  EXPECT_EQ(char_width(U'é'), 1);
  EXPECT_EQ(char_width(0x301), 0);
  EXPECT_EQ(char_width(U'你'), 2);
  EXPECT_EQ(char_width(U'한'), 2);
  EXPECT_EQ(char_width(U'👍'), 2);
  EXPECT_EQ(char_width(U'я'), 1);
  EXPECT_EQ(char_width('\n'), 0);
}

}  // namespace
}  // namespace trine::app
