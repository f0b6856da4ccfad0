// One connection: reads requests, has them dispatched, writes the answers. Included by
// connection.cpp and server.cpp only. Thread rule: io thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/exchange.h"
#include "server/http/guard.h"
#include "server/http/parser.h"
#include "server/http/server.h"
#include "server/http/stream.h"

namespace trine::server::http {

struct AtomicCounters {
  std::atomic<std::int64_t> connections{0};
  std::atomic<std::int64_t> open_connections{0};
  std::atomic<std::int64_t> refused_connections{0};
  std::atomic<std::int64_t> requests{0};
  std::atomic<std::int64_t> open_requests{0};
  std::atomic<std::int64_t> bad_requests{0};
  std::atomic<std::int64_t> timeouts{0};
  std::atomic<std::int64_t> slow_readers{0};
  std::atomic<std::int64_t> disconnects{0};
};

// What all connections share; outlives them.
struct ConnectionContext {
  const ServerOptions* options = nullptr;
  const Guard* guard = nullptr;
  const RouteTable* routes = nullptr;
  AtomicCounters* counters = nullptr;
  const std::atomic<bool>* draining = nullptr;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(const boost::asio::any_io_executor& executor, std::unique_ptr<Stream> stream,
             std::string peer, const ConnectionContext& context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // To its end.
  boost::asio::awaitable<void> run();
  // Closes it when no request is in work.
  void close_if_idle();
  // Closes it at once.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  boost::asio::awaitable<void> read_loop();
  boost::asio::awaitable<bool> handshake();
  boost::asio::awaitable<std::optional<Request>> read_request();
  // Sends a whole answer that no handler made; the connection ends after it.
  boost::asio::awaitable<void> refuse(const Response& response);
  boost::asio::awaitable<bool> serve(Request request);
  boost::asio::awaitable<bool> write_answer(const Request& request);
  boost::asio::awaitable<bool> write_piece(const Request& request, Exchange::Piece piece,
                                           bool keep);
  boost::asio::awaitable<bool> write(std::string_view bytes);
  boost::asio::awaitable<void> linger();
  boost::asio::awaitable<void> sleep_until(Clock::time_point deadline);
  void wake();
  void on_exchange_signal();
  void dispatch(Request request, const std::shared_ptr<Exchange>& exchange);

  Clock::time_point after(double seconds) const {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  boost::asio::any_io_executor executor_;
  std::unique_ptr<Stream> stream_;
  std::string peer_;
  ConnectionContext context_;
  RequestParser parser_;
  std::string input_;
  bool input_closed_ = false;
  bool discard_input_ = false;
  bool closed_ = false;
  bool served_any_ = false;
  boost::asio::steady_timer wake_timer_;
  bool woken_ = false;
  boost::asio::steady_timer resume_timer_;  // holds the reader back while its buffer is full
  boost::asio::steady_timer write_timer_;
  std::shared_ptr<Exchange> exchange_;
  bool stream_chunked_ = false;
};

}  // namespace trine::server::http
