#include "server/http/message.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>

namespace trine::server::http {

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kDelete:
      return "DELETE";
    case Method::kOptions:
      return "OPTIONS";
    case Method::kOther:
      return "OTHER";
  }
  return "OTHER";
}

std::string request_id(const Request& request) {
  constexpr std::size_t kLongest = 128;
  const std::string* given = request.header("x-request-id");
  if (given != nullptr && !given->empty() && given->size() <= kLongest &&
      std::all_of(given->begin(), given->end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
      })) {
    return *given;
  }
  std::array<std::uint64_t, 2> noise{};
  if (::getrandom(noise.data(), sizeof noise, 0) < 0) {
    noise[0] =
        static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return fmt::format("req_{:016x}{:016x}", noise[0], noise[1]);
}

const std::string* Request::header(std::string_view name) const {
  for (const Header& header : headers) {
    if (header.name == name) {
      return &header.value;
    }
  }
  return nullptr;
}

std::string_view status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

Response error_response(int status, std::string_view message, std::string_view type,
                        std::string_view code) {
  nlohmann::ordered_json error;
  error["message"] = message;
  error["type"] = type;
  error["param"] = nullptr;
  error["code"] = nullptr;
  if (!code.empty()) {
    error["code"] = code;
  }
  Response out;
  out.status = status;
  out.body = nlohmann::ordered_json{{"error", std::move(error)}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return out;
}

namespace {

std::string http_date(std::int64_t unix_s) {
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = unix_s;
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) {
    return "Thu, 01 Jan 1970 00:00:00 GMT";
  }
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                     kMonths[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::string response_head(const Response& response, const HeadOptions& options) {
  const bool has_body = response.status != 204 && response.status != 304;
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                                status_text(response.status), http_date(options.now_unix_s));
  if (!response.content_type.empty() && has_body) {
    out += fmt::format("Content-Type: {}\r\n", response.content_type);
  }
  if (options.chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (options.body_bytes >= 0 && has_body) {
    out += fmt::format("Content-Length: {}\r\n", options.body_bytes);
  }
  if (!options.request_id.empty()) {
    out += fmt::format("X-Request-Id: {}\r\n", options.request_id);
  }
  out += "X-Content-Type-Options: nosniff\r\n";
  for (const Header& header : response.headers) {
    out += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  out += options.close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n";
  return out;
}

std::string chunk(std::string_view bytes) {
  return bytes.empty() ? std::string() : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

bool decode_path(std::string_view text, std::string& out) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') {
      return c - '0';
    }
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    int byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '%') {
      const bool whole = i + 2 < text.size();
      const int high = whole ? digit(text[i + 1]) : -1;
      const int low = whole ? digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return false;
      }
      byte = high * 16 + low;
      i += 2;
    }
    if (byte < 0x20 || byte == 0x7f) {
      return false;
    }
    out.push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace trine::server::http
