#include "hub/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trine::hub {
namespace {

constexpr std::size_t kTailBytes = 8192;
constexpr int kTickMs = 100;
constexpr std::chrono::seconds kGrace{3};

// Both ends of a pipe, closed on destruction.
struct Pipe {
  std::array<int, 2> fd{-1, -1};

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  ~Pipe() {
    close_end(0);
    close_end(1);
  }

  bool open() { return ::pipe2(fd.data(), O_CLOEXEC) == 0; }

  void close_end(std::size_t end) {
    if (fd[end] >= 0) {
      ::close(std::exchange(fd[end], -1));
    }
  }
};

std::vector<std::string> merged_environment(const std::vector<std::string>& extra) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view key = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(extra.begin(), extra.end(), [key](const std::string& other) {
      return other.starts_with(key);
    });
    if (!replaced) {
      out.emplace_back(text);
    }
  }
  out.insert(out.end(), extra.begin(), extra.end());
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

Result<pid_t> spawn(const ProcessOptions& options, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.fd[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err.fd[1], 2);
  // A handler or a block of ours must not change how the child takes signals.
  sigset_t defaults;
  sigset_t none;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) {
    sigaddset(&defaults, signal);
  }
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> environment = merged_environment(options.extra_environment);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv.front().c_str(), &actions, &attributes,
                                   pointers(argv).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                "cannot run {}: {}", options.argv.front(), std::strerror(error));
  }
  return pid;
}

// Waits for the child, first politely, then not. Returns its exit status.
int reap(pid_t pid, bool stop) {
  int status = 0;
  if (stop) {
    ::kill(-pid, SIGINT);
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ::kill(-pid, SIGKILL);
        break;
      }
      ::poll(nullptr, 0, kTickMs / 2);
    }
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ::kill(-pid, SIGKILL);  // what the child left running
    return 128 + SIGINT;
  }
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// False at the end of the stream.
Result<bool> drain(int fd, const std::function<Status(std::string_view)>& take) {
  std::array<char, std::size_t{64} * 1024> buffer;
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) {
    return true;
  }
  if (got <= 0) {
    return false;
  }
  TRINE_TRY(take({buffer.data(), static_cast<std::size_t>(got)}));
  return true;
}

}  // namespace

Result<ProcessResult> run_process(const ProcessOptions& options) {
  Pipe out;
  Pipe err;
  if (!out.open() || !err.open()) {
    return fail(ErrorCode::kExhausted, "cannot make a pipe: {}", std::strerror(errno));
  }
  TRINE_TRY_ASSIGN(const pid_t pid, spawn(options, out, err));
  out.close_end(1);
  err.close_end(1);
  ProcessResult result;
  const auto keep_tail = [&result](std::string_view text) -> Status {
    result.err_tail += text;
    if (result.err_tail.size() > kTailBytes) {
      result.err_tail.erase(0, result.err_tail.size() - kTailBytes);
    }
    return {};
  };
  const auto pass_output = [&options](std::string_view text) -> Status {
    return options.on_output ? options.on_output(text) : Status{};
  };
  std::optional<Error> error;
  while (!error.has_value() && (out.fd[0] >= 0 || err.fd[0] >= 0)) {
    if (is_cancelled(options.cancel)) {
      error = Error{ErrorCode::kCancelled, "interrupted"};
      break;
    }
    std::array<pollfd, 2> wanted{pollfd{out.fd[0], POLLIN, 0}, pollfd{err.fd[0], POLLIN, 0}};
    ::poll(wanted.data(), wanted.size(), kTickMs);
    if (options.on_tick) {
      options.on_tick();
    }
    const auto serve = [&error](Pipe& pipe, short events,
                                const std::function<Status(std::string_view)>& take) {
      if (events == 0) {
        return;
      }
      const Result<bool> open = drain(pipe.fd[0], take);
      if (!open.has_value()) {
        error = open.error();
      } else if (!*open) {
        pipe.close_end(0);
      }
    };
    serve(out, wanted[0].revents, pass_output);
    serve(err, wanted[1].revents, keep_tail);
  }
  result.status = reap(pid, error.has_value());
  if (error.has_value()) {
    return tl::unexpected(std::move(*error));
  }
  return result;
}

}  // namespace trine::hub
