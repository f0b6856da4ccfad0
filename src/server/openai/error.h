// Errors as OpenAI's clients expect them, and the one place where our codes become HTTP statuses.
//
//   invalid_argument, corrupt_data  400  invalid_request_error
//   unsupported                     400  invalid_request_error, code "unsupported"
//   not_found                       404  not_found_error
//   exhausted                       400  invalid_request_error, code "limit_exceeded"
//   unavailable                     503  unavailable_error
//   cancelled                       499  cancelled_error, which nobody is there to read
//   internal                        500  internal_error
// A full queue is 429 (queue_full()), a body over its limit 413, a deadline that passed 504. Thread
// rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "base/error.h"

namespace trine::sched {
struct Refusal;
}

namespace trine::server::openai {

struct ApiError {
  int status = 500;
  std::string message;
  std::string type = "internal_error";
  std::optional<std::string> param = {};
  std::optional<std::string> code = {};
  // For the Retry-After header.
  std::optional<std::int64_t> retry_after_s = {};
  // False: the x-should-retry header says so, which OpenAI's clients follow.
  bool worth_retrying = true;
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

int http_status(ErrorCode code);
// The same for an error anywhere below the server. `param` when the caller knows the field.
ApiError api_error(const Error& error, std::optional<std::string> param = std::nullopt);
// 400 for one field. The message begins with the field's name.
ApiError bad_field(std::string_view field, std::string_view what);
ApiError model_not_found(std::string_view model);
ApiError queue_full(const sched::Refusal& refusal);
// A request's timeout_ms is over.
ApiError deadline_passed(std::string_view message);
ApiError unauthorized();
ApiError body_too_large(std::size_t bytes, std::size_t max_bytes);

// {"error": {"message", "type", "param", "code"}}
std::string error_body(const ApiError& error);

}  // namespace trine::server::openai
