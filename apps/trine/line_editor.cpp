#include "apps/trine/line_editor.h"

#include <cerrno>
#include <cstdlib>

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "apps/trine/interrupt.h"

namespace trine::app {

namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";

// The terminal's own mode, for the signal handler as well.
termios saved_mode = {};

void write_terminal(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void restore_mode() {
  write_terminal(kPasteOff);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_mode);
}

// Between lines: bytes arrive unchanged and without echo, so that what is typed ahead, an Enter or
// a Ctrl-D included, is what the editor reads later; Ctrl-C is a signal, which stops the answer.
// While a line is edited Ctrl-C is a byte as well.
void set_raw_mode(bool editing) {
  termios raw = saved_mode;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN);
  if (editing) {
    raw.c_lflag &= ~static_cast<tcflag_t>(ISIG);
  }
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

class EditingMode {
 public:
  EditingMode() {
    set_raw_mode(true);
    write_terminal(kPasteOn);
  }

  ~EditingMode() {
    write_terminal(kPasteOff);
    set_raw_mode(false);
  }

  EditingMode(const EditingMode&) = delete;
  EditingMode& operator=(const EditingMode&) = delete;
};

int terminal_columns() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

// 1: more bytes; 0: end of input; -1: interrupted.
int fill(std::string& buffer) {
  char bytes[4096];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
  if (n > 0) {
    buffer.append(bytes, static_cast<std::size_t>(n));
    return 1;
  }
  return n < 0 && errno == EINTR ? -1 : 0;
}

}  // namespace

LineEditor::LineEditor() {
  const char* term = std::getenv("TERM");
  interactive_ = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 && term != nullptr &&
                 std::string_view(term) != "dumb" && ::tcgetattr(STDIN_FILENO, &saved_mode) == 0;
  if (interactive_) {
    set_exit_hook(restore_mode);
    set_raw_mode(false);
  }
}

LineEditor::~LineEditor() {
  if (interactive_) {
    restore_mode();
    set_exit_hook(nullptr);
  }
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, std::string& line) {
  return interactive_ ? read_terminal(prompt, line) : read_plain(line);
}

LineEditor::Outcome LineEditor::read_plain(std::string& line) {
  while (true) {
    if (const std::size_t newline = buffered_.find('\n'); newline != std::string::npos) {
      line = buffered_.substr(0, newline);
      buffered_.erase(0, newline + 1);
      if (line.ends_with('\r')) {
        line.pop_back();
      }
      return Outcome::kLine;
    }
    const int got = fill(buffered_);
    if (got == -1 && interrupted()) {
      return Outcome::kInterrupted;
    }
    if (got == 0) {
      if (interrupted()) {
        return Outcome::kInterrupted;
      }
      line = buffered_;
      buffered_.clear();
      return line.empty() ? Outcome::kEndOfInput : Outcome::kLine;
    }
  }
}

LineEditor::Outcome LineEditor::read_terminal(std::string_view prompt, std::string& line) {
  const EditingMode editing;
  core_.reset();
  write_terminal(core_.draw(prompt, terminal_columns()));
  while (true) {
    if (buffered_.empty()) {
      const int got = fill(buffered_);
      if (got == 0) {
        write_terminal(core_.finish_draw());
        return Outcome::kEndOfInput;
      }
      if (got == -1) {
        // A signal such as a changed window size; SIGINT from outside counts as Ctrl-C.
        if (interrupted()) {
          write_terminal(core_.finish_draw());
          return Outcome::kInterrupted;
        }
        continue;
      }
    }
    bool redraw = false;
    while (!buffered_.empty()) {
      const auto byte = static_cast<unsigned char>(buffered_.front());
      buffered_.erase(0, 1);  // a read is at most 4 KiB
      switch (core_.feed(byte)) {
        case LineCore::Event::kNone:
          break;
        case LineCore::Event::kChanged:
          redraw = true;
          break;
        case LineCore::Event::kClearScreen:
          write_terminal("\x1b[H\x1b[2J");
          core_.finish_draw();
          redraw = true;
          break;
        case LineCore::Event::kAccept:
          write_terminal(core_.draw(prompt, terminal_columns()));
          write_terminal(core_.finish_draw());
          line = core_.text();
          return Outcome::kLine;
        case LineCore::Event::kInterrupt:
          write_terminal(core_.finish_draw());
          return Outcome::kInterrupted;
        case LineCore::Event::kEndOfInput:
          write_terminal(core_.finish_draw());
          return Outcome::kEndOfInput;
      }
    }
    if (redraw) {
      write_terminal(core_.draw(prompt, terminal_columns()));
    }
  }
}

}  // namespace trine::app
