#include "base/error.h"

#include <limits>

#include "base/printable.h"

namespace trine {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kCorruptData:
      return "corrupt_data";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
      return 3;
    case ErrorCode::kExhausted:
      return 4;
    case ErrorCode::kCancelled:
      return 130;
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

Error::Error(ErrorCode error_code, std::string_view text)
    : code(error_code), message(printable(text, std::numeric_limits<std::size_t>::max())) {}

Error Error::with_context(std::string_view where) && {
  return {code, fmt::format("{}: {}", where, message)};
}

}  // namespace trine
