// Bytes of a connection to requests, without a socket.
//
// Stricter than its library where leniency is how requests are smuggled past a proxy: one
// Content-Length, no Content-Length beside a Transfer-Encoding, chunked as the only one, no folded
// header lines, no bare line ends, one Host. Thread rule: a parser belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/message.h"

namespace trine::server::http {

struct ParserLimits {
  std::size_t max_header_bytes = std::size_t{16} << 10;  // request line and headers
  std::size_t max_body_bytes = std::size_t{8} << 20;
};

class RequestParser {
 public:
  enum class State : std::uint8_t { kHeader, kBody, kDone, kError };

  explicit RequestParser(const ParserLimits& limits);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Takes what belongs to the current request from the front of `input`; what follows it stays.
  State feed(std::string& input);
  State state() const;
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  // After kDone: the request; the parser starts anew.
  Request take();
  // What is understood of the request at hand.
  const Request& so_far() const;
  // After kError: what to answer before closing.
  const Response& error() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::server::http
