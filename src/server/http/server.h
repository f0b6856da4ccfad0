// The HTTP server: one io thread that accepts, reads, guards, routes and writes.
//
// HTTP/1.1 and 1.0 with keep-alive; pipelined requests are answered in order. Every wait has an
// end: handshake, header, body, idle connection, a client that does not read. A client that closes
// its side while an answer is in work has gone (half-closed connections are not served on).
// Thread rule: create, start, stop on one thread; the rest from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "server/http/guard.h"
#include "server/http/parser.h"
#include "server/http/routes.h"

namespace trine::server::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or localhost
  std::uint16_t port = 8000;       // 0: a free one
  std::string tls_cert = {};       // PEM files; both or none
  std::string tls_key = {};
  ParserLimits parser = {};
  double header_timeout_s = 10.0;  // from the first byte of a request to the end of its header
  double body_timeout_s = 30.0;    // from there to the end of its body
  double idle_timeout_s = 60.0;    // between requests
  double write_timeout_s = 30.0;   // without any byte taken by the client
  double ping_s = 15.0;            // a comment into a silent event stream; 0: none
  std::size_t max_stream_buffer_bytes = std::size_t{1} << 20;
  std::int32_t max_connections = 1024;
  std::int32_t max_connections_per_address = 256;
};

// Sums since the start, and what is open now.
struct ServerCounters {
  std::int64_t connections = 0;
  std::int64_t open_connections = 0;
  std::int64_t refused_connections = 0;  // over a cap
  std::int64_t requests = 0;
  std::int64_t open_requests = 0;  // in work
  std::int64_t bad_requests = 0;   // that the parser refused
  std::int64_t timeouts = 0;       // header, body, handshake
  std::int64_t slow_readers = 0;   // dropped: buffer full or write timeout
  std::int64_t disconnects = 0;    // clients that went before their answer was out
};

class Server {
 public:
  // Checks the routes and binds. Errors: invalid_argument for an address, TLS files or origins;
  // unavailable when the port is taken; internal for a broken route table.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, GuardOptions guard,
                                                RouteTable routes);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  // "http://127.0.0.1:8000"
  std::string url() const;
  void start();
  // Every answer from now on ends its connection, and idle connections are closed.
  void drain();
  // Waits until no request is in work, at most so long. True: none is.
  bool wait_idle(double seconds) const;
  // Ends all connections and the thread.
  void stop();
  ServerCounters counters() const;
  const RouteTable& routes() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::server::http
