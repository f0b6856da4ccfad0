#include "server/openai/error.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "sched/scheduler.h"

namespace trine::server::openai {

namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";

std::string_view error_type(int status) {
  switch (status) {
    case 400:
    case 413:
      return kInvalidRequest;
    case 404:
      return "not_found_error";
    case 499:
      return "cancelled_error";
    case 503:
      return "unavailable_error";
    default:
      return "internal_error";
  }
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
    case ErrorCode::kExhausted:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

ApiError api_error(const Error& error, std::optional<std::string> param) {
  ApiError out;
  out.status = http_status(error.code);
  out.type = error_type(out.status);
  out.message = error.message;
  out.param = std::move(param);
  if (error.code == ErrorCode::kUnsupported) {
    out.code = "unsupported";
  } else if (error.code == ErrorCode::kExhausted) {
    out.code = "limit_exceeded";
  }
  return out;
}

ApiError bad_field(std::string_view field, std::string_view what) {
  // Names and values come from the request: nothing in them may forge a line of a log.
  return {.status = 400,
          .message = printable(fmt::format("{} {}", field, what), 2000),
          .type = std::string(kInvalidRequest),
          .param = printable(field, 200)};
}

ApiError model_not_found(std::string_view model) {
  return {.status = 404,
          .message = fmt::format("model \"{}\" is not served here; GET /v1/models lists those "
                                 "that are",
                                 printable(model)),
          .type = "not_found_error",
          .param = "model",
          .code = "model_not_found"};
}

ApiError queue_full(const sched::Refusal& refusal) {
  const auto after = static_cast<std::int64_t>(std::ceil(refusal.retry_after_s));
  return {.status = 429,
          .message = fmt::format("the queue is full: {} of {} requests with {} of {} prompt tokens "
                                 "wait; try again in {} s",
                                 refusal.num_waiting, refusal.max_waiting, refusal.waiting_tokens,
                                 refusal.max_waiting_tokens, after),
          .type = "rate_limit_error",
          .code = "queue_full",
          .retry_after_s = after};
}

// 504 and not 408, which OpenAI's clients, like every 5xx, send again by themselves: who set a
// deadline would wait several times as long and the server compute for nobody. The header tells
// them not to. 408 would also say that the request came in too slowly.
ApiError deadline_passed(std::string_view message) {
  return {.status = 504,
          .message = std::string(message),
          .type = "timeout_error",
          .param = "timeout_ms",
          .code = "deadline_exceeded",
          .worth_retrying = false};
}

ApiError unauthorized() {
  return {.status = 401,
          .message = "a valid API key is needed: Authorization: Bearer KEY",
          .type = "authentication_error",
          .code = "invalid_api_key"};
}

ApiError body_too_large(std::size_t bytes, std::size_t max_bytes) {
  return {.status = 413,
          .message = fmt::format("the body has {} bytes, at most {}", bytes, max_bytes),
          .type = std::string(kInvalidRequest),
          .code = "body_too_large"};
}

std::string error_body(const ApiError& error) {
  nlohmann::ordered_json inner;
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = nullptr;
  inner["code"] = nullptr;
  if (error.param) {
    inner["param"] = *error.param;
  }
  if (error.code) {
    inner["code"] = *error.code;
  }
  return nlohmann::ordered_json{{"error", std::move(inner)}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace trine::server::openai
