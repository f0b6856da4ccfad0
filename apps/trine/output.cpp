#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"

namespace trine::app {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// stdout's buffer and the errno of its first failed write. Main thread only.
std::string buffer;  // NOLINT: the process has one stdout
int failed_errno = 0;

void drain() {
  std::size_t done = 0;
  while (done < buffer.size() && failed_errno == 0) {
    const ssize_t n = ::write(STDOUT_FILENO, buffer.data() + done, buffer.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      failed_errno = errno;
    }
  }
  buffer.clear();
}

}  // namespace

void write_out(std::string_view text) {
  if (failed_errno != 0) {
    return;
  }
  buffer += text;
  if (buffer.size() >= kBufferBytes) {
    drain();
  }
}

void flush_out() {
  drain();
}

bool output_ok() {
  return failed_errno == 0;
}

int output_errno() {
  return failed_errno;
}

Status finish_output() {
  drain();
  if (failed_errno == 0) {
    return {};
  }
  const ErrorCode code = failed_errno == ENOSPC ? ErrorCode::kExhausted : ErrorCode::kUnavailable;
  return fail(code, "cannot write to standard output: {}", std::strerror(failed_errno));
}

void CommandContext::print_json(const nlohmann::ordered_json& value) const {
  // Text that is not UTF-8 (file names, broken tokens) must not end in an exception.
  write_out(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  write_out("\n");
}

void CommandContext::note(std::string_view line) const {
  if (!quiet()) {
    std::string text(line);
    text += '\n';
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }
}

}  // namespace trine::app
