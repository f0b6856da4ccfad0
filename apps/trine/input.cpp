#include "apps/trine/input.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "apps/trine/interrupt.h"
#include "options/option.h"
#include "text/unicode.h"

namespace trine::app {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

// A descriptor that is closed at the end unless it is standard input.
class Input {
 public:
  static Result<Input> open(const std::string& path) {
    if (path == "-") {
      return Input(STDIN_FILENO, "standard input");
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const bool missing = errno == ENOENT || errno == ENOTDIR;
      return fail(missing ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument, "{}: {}", path,
                  std::strerror(errno));
    }
    return Input(fd, path);
  }

  Input(Input&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)) {}

  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  Input& operator=(Input&&) = delete;

  ~Input() {
    if (fd_ > STDERR_FILENO) {
      ::close(fd_);
    }
  }

  const std::string& name() const { return name_; }

  // Appends what is there; false at the end.
  Result<bool> append(std::string& out) const {
    char bytes[65536];
    while (true) {
      const ssize_t n = ::read(fd_, bytes, sizeof(bytes));
      if (n >= 0) {
        out.append(bytes, static_cast<std::size_t>(n));
        return n > 0;
      }
      if (interrupted()) {
        return fail(ErrorCode::kCancelled, "interrupted while reading {}", name_);
      }
      if (errno != EINTR) {
        return fail(ErrorCode::kInvalidArgument, "{}: cannot read: {}", name_,
                    std::strerror(errno));
      }
    }
  }

 private:
  Input(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  int fd_;
  std::string name_;
};

bool takes(const CommandContext& context, std::string_view name) {
  for (const std::string_view row : context.command().options) {
    if (row == name) {
      return true;
    }
  }
  return false;
}

struct Source {
  enum class Kind : std::uint8_t { kArgument, kFile } kind;
  std::string value;
};

Result<Source> find_source(const CommandContext& context, std::size_t index) {
  std::vector<Source> found;
  std::string names;
  const auto add = [&](Source::Kind kind, std::string value, std::string_view name) {
    found.push_back({kind, std::move(value)});
    names += (names.empty() ? "" : " and ") + std::string(name);
  };
  if (context.arguments().size() > index) {
    add(Source::Kind::kArgument, context.argument(index), "an argument");
  }
  if (takes(context, "prompt") && context.settings().has("prompt")) {
    add(Source::Kind::kArgument, context.settings().text("prompt"), "--prompt");
  }
  if (takes(context, "file") && context.settings().has("file")) {
    add(Source::Kind::kFile, context.settings().text("file"), "--file");
  }
  if (found.size() > 1) {
    return fail(ErrorCode::kInvalidArgument, "the text is given by {}; give it once", names);
  }
  if (found.size() == 1) {
    return found[0];
  }
  if (::isatty(STDIN_FILENO) == 1) {
    return fail(ErrorCode::kInvalidArgument,
                "no text: give it as an argument, with --file FILE, or pipe it to standard input");
  }
  return Source{Source::Kind::kFile, "-"};
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  TRINE_TRY_ASSIGN(const Input input, Input::open(path));
  std::string text;
  while (true) {
    TRINE_TRY_ASSIGN(const bool more, input.append(text));
    if (text.size() > kMaxBytes) {
      return fail(ErrorCode::kInvalidArgument, "{}: larger than {} bytes", input.name(), kMaxBytes);
    }
    if (!more) {
      return text;
    }
  }
}

Result<std::string> read_text(const CommandContext& context, std::size_t index) {
  TRINE_TRY_ASSIGN(const Source source, find_source(context, index));
  if (source.kind == Source::Kind::kArgument) {
    return source.value;
  }
  return read_file(source.value);
}

Result<std::vector<std::int32_t>> read_ids(const CommandContext& context, std::size_t index) {
  TRINE_TRY_ASSIGN(const Source source, find_source(context, index));
  if (source.kind == Source::Kind::kArgument) {
    return ids_of_argument(source.value, "IDS");
  }
  TRINE_TRY_ASSIGN(const std::string text, read_file(source.value));
  return parse_ids(text, source.value == "-" ? "standard input" : source.value);
}

Result<std::vector<std::int32_t>> ids_of_argument(const std::string& argument,
                                                  std::string_view where) {
  if (!argument.starts_with('@')) {
    return parse_ids(argument, where);
  }
  TRINE_TRY_ASSIGN(const std::string text, read_file(argument.substr(1)));
  return parse_ids(text, argument.substr(1));
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view where) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto trim = [&](std::string_view edge) {
    const std::size_t first = text.find_first_not_of(edge);
    text = first == std::string_view::npos
               ? std::string_view()
               : text.substr(first, text.find_last_not_of(edge) - first + 1);
  };
  trim(kBlanks);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
  }
  trim(kBlanks);
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(", \t\r\n"));
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0) {
      return fail(ErrorCode::kInvalidArgument, "{}: entry {} is {}, not a token id", where,
                  ids.size() + 1, word.empty() ? "empty" : fmt::format("'{}'", word.substr(0, 40)));
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
    // Between two ids stand blanks, one comma, or both.
    trim(kBlanks);
    if (text.starts_with(',')) {
      text.remove_prefix(1);
      trim(kBlanks);
      if (text.empty()) {
        return fail(ErrorCode::kInvalidArgument, "{}: entry {} is empty, not a token id", where,
                    ids.size() + 1);
      }
    }
  }
  return ids;
}

Status for_each_line(const std::string& path,
                     const std::function<Status(std::string_view line)>& line) {
  TRINE_TRY_ASSIGN(const Input input, Input::open(path));
  std::string buffer;
  std::size_t number = 0;
  const auto take = [&](std::string_view text) -> Status {
    ++number;
    if (text.ends_with('\r')) {
      text.remove_suffix(1);
    }
    if (text.empty()) {
      return {};
    }
    Status done = line(text);
    if (!done.has_value()) {
      return tl::unexpected(
          std::move(done).error().with_context(fmt::format("{}:{}", input.name(), number)));
    }
    return {};
  };
  bool more = true;
  while (more) {
    // What was answered so far is out before we wait, so that a program on both ends of the pipes
    // can go on.
    flush_out();
    TRINE_TRY_ASSIGN(more, input.append(buffer));
    std::size_t begin = 0;
    for (std::size_t end = buffer.find('\n'); end != std::string::npos;
         end = buffer.find('\n', begin)) {
      TRINE_TRY(take(std::string_view(buffer).substr(begin, end - begin)));
      begin = end + 1;
    }
    buffer.erase(0, begin);
    if (buffer.size() > kMaxBytes) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: line longer than {} bytes", input.name(),
                  number + 1, kMaxBytes);
    }
  }
  return buffer.empty() ? Status() : take(buffer);
}

Status check_text(std::string_view text, std::string_view what) {
  return text::check_utf8(text, what);
}

std::string without_final_newline(std::string text) {
  if (text.ends_with('\n')) {
    text.pop_back();
    if (text.ends_with('\r')) {
      text.pop_back();
    }
  }
  return text;
}

}  // namespace trine::app
