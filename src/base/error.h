// Errors as values: Result<T>, the eight error codes and their exit status.
//
// Everything that comes from outside (files, network, users, peers) returns Result<T>. TRINE_CHECK
// is for bugs only. Our code does not throw; exceptions of libraries are caught where the library
// is called. Thread rule: values, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <tl/expected.hpp>

namespace trine {

// Few codes, because callers branch on few things; the message carries the detail.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller's request or option is wrong
  kCorruptData,      // a file or message breaks its format
  kUnsupported,      // well-formed, but this build or version cannot do it
  kNotFound,         // no such file, model, tensor
  kExhausted,        // does not fit: memory, context, queue, limit
  kUnavailable,      // may work when retried: network, busy resource
  kCancelled,        // interrupted or past its deadline
  kInternal,         // our fault
};

// Lower-case name as used in logs and --json output, e.g. "corrupt_data".
std::string_view error_code_name(ErrorCode code);

// Process exit status for a command that ends with this error: 2 usage, 3 bad or unsupported model
// or file, 4 does not fit, 130 interrupted, 1 everything else.
int exit_status(ErrorCode code);

struct [[nodiscard]] Error {
  Error() = default;

  // Messages quote names from files and peers, so control bytes and invalid UTF-8 in `text` are
  // escaped here, once for every message: none can drive a terminal or forge a line of a log.
  Error(ErrorCode error_code, std::string_view text);

  ErrorCode code = ErrorCode::kInternal;
  // What was wrong (field, tensor, value, limit) and what to do, without a trailing full stop.
  std::string message;

  // Prepends where it happened: "tensor blk.0.attn_q.weight: offset 812 past end 640".
  Error with_context(std::string_view where) &&;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// fail(ErrorCode::kCorruptData, "tensor {}: {} dims, at most 4", name, n): builds the error side of
// a Result.
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> text,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

}  // namespace trine

#define TRINE_CONCAT_INNER(a, b) a##b
#define TRINE_CONCAT(a, b) TRINE_CONCAT_INNER(a, b)

// TRINE_TRY(expr): returns the error of a Status to the caller.
#define TRINE_TRY(expr)                                          \
  do {                                                           \
    if (auto trine_status = (expr); !trine_status.has_value()) { \
      return ::tl::unexpected(std::move(trine_status).error());  \
    }                                                            \
  } while (false)

// TRINE_TRY_ASSIGN(auto x, expr): x is the value of a Result, or its error goes to the caller.
// The target is a declaration and cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define TRINE_TRY_ASSIGN(target, expr) \
  TRINE_TRY_ASSIGN_INNER(TRINE_CONCAT(trine_result_, __LINE__), target, expr)
#define TRINE_TRY_ASSIGN_INNER(result, target, expr)    \
  auto result = (expr);                                 \
  if (!result.has_value()) {                            \
    return ::tl::unexpected(std::move(result).error()); \
  }                                                     \
  target = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
