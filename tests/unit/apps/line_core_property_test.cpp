#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "apps/trine/line_core.h"
#include "unit/apps/fake_terminal.h"

namespace trine::app {
namespace {

const std::vector<std::string> kKeys = {"a",
                                        "b ",
                                        "你",
                                        "👍🏽",
                                        "e\xCC\x81",
                                        "\t",
                                        "\n",
                                        "\x7f",
                                        "\x08",
                                        "\x04",
                                        "\x1b[D",
                                        "\x1b[C",
                                        "\x1b[A",
                                        "\x1b[B",
                                        "\x1b[H",
                                        "\x1b[F",
                                        "\x17",
                                        "\x0b",
                                        "\x15",
                                        "\x1b[3~",
                                        "\x1b"
                                        "b",
                                        "\x1b"
                                        "f",
                                        "\x10",
                                        "\x0e",
                                        "\xff",
                                        "\xe4",
                                        "\x1b",
                                        "\x1b[200~x\ry\x1b[201~"};

// Redrawing step by step leaves the same screen and cursor as drawing the final state once.
RC_GTEST_PROP(LineCoreProperty, IncrementalDrawEqualsOneDraw, ()) {
  const int columns = *rc::gen::inRange(8, 24);
  LineCore core;
  core.add_history("an older entry that is longer than one row");
  core.reset();
  FakeTerminal stepwise(columns);
  stepwise.write(core.draw("you> ", columns));
  const int count = *rc::gen::inRange(0, 60);
  for (int i = 0; i < count; ++i) {
    for (const char c : *rc::gen::elementOf(kKeys)) {
      core.feed(static_cast<unsigned char>(c));
    }
    stepwise.write(core.draw("you> ", columns));
    RC_ASSERT(core.cursor() <= core.text().size());
  }
  RC_ASSERT(repair_utf8(core.text()) == core.text());
  // A core that draws for the first time knows nothing about earlier rows.
  LineCore fresh = core;
  fresh.finish_draw();
  FakeTerminal once(columns);
  once.write(fresh.draw("you> ", columns));
  RC_ASSERT(once.screen() == stepwise.screen());
  RC_ASSERT(once.cursor_row() == stepwise.cursor_row());
  RC_ASSERT(once.cursor_column() == stepwise.cursor_column());
}

RC_GTEST_PROP(LineCoreProperty, AnyBytesKeepTheTextWellFormed, (const std::string& bytes)) {
  LineCore core;
  for (const char c : bytes) {
    core.feed(static_cast<unsigned char>(c));
    RC_ASSERT(core.cursor() <= core.text().size());
  }
  RC_ASSERT(repair_utf8(core.text()) == core.text());
}

}  // namespace
}  // namespace trine::app
