// A request as handlers see it, and what they answer with.
// Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trine::server::http {

enum class Method : std::uint8_t { kGet, kHead, kPost, kDelete, kOptions, kOther };

std::string_view method_name(Method method);

struct Header {
  std::string name;  // of requests: in lower case
  std::string value;
};

// Who asks, found by the guard.
struct Principal {
  bool admin = false;
  // Same for the same key, tells nothing about it; empty where no key is needed.
  std::string tenant;
};

struct Request {
  Method method = Method::kOther;
  std::string target;     // as sent, for logs
  std::string authority;  // host and port: of an absolute target, else the Host header
  std::string path;       // percent-decoded
  std::string query;      // as sent, without the question mark
  int minor_version = 1;  // HTTP/1.x
  bool keep_alive = true;
  std::vector<Header> headers;
  std::string body;

  std::string id;    // the client's X-Request-Id when usable, else ours
  std::string peer;  // address of the other side, without port
  Principal principal;
  std::string argument;  // what the route's trailing * stands for

  // The value of the header with this lower-case name, or nullptr. Names that may not repeat do
  // not.
  const std::string* header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<Header> headers = {};
};

// The client's X-Request-Id when it is made of letters, digits and "-_.", at most 128; else one of
// our own.
std::string request_id(const Request& request);

std::string_view status_text(int status);

// {"error": {"message", "type", "param": null, "code"}}, as clients of OpenAI's API expect it.
Response error_response(int status, std::string_view message, std::string_view type,
                        std::string_view code = {});

// Status line and headers with the empty line. A negative body_bytes stands for a body whose length
// is not known: chunked, or until the connection closes.
struct HeadOptions {
  std::int64_t body_bytes = 0;
  bool chunked = false;
  bool close = false;
  std::string_view request_id;
  std::int64_t now_unix_s = 0;
};

std::string response_head(const Response& response, const HeadOptions& options);
// One chunk of a chunked body; nothing for an empty one.
std::string chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Percent-decoding of a path. False for a broken escape and for control bytes.
bool decode_path(std::string_view text, std::string& out);

}  // namespace trine::server::http
