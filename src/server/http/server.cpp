#include "server/http/server.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "server/http/connection.h"

namespace trine::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // when the system has no descriptor left

constexpr int kSocketBufferBytes = 256 << 10;

}  // namespace

struct Server::Impl {
  ServerOptions options;
  std::unique_ptr<Guard> guard;
  RouteTable routes;
  asio::io_context io{1};
  std::unique_ptr<tcp::acceptor> acceptor;
  std::unique_ptr<TlsContext> tls;
  AtomicCounters counters;
  std::atomic<bool> draining{false};
  std::uint16_t port = 0;
  std::thread thread;
  // Of the io thread.
  std::list<std::weak_ptr<Connection>> connections;
  std::unordered_map<std::string, std::int32_t> per_address;

  Status bind();
  asio::awaitable<void> accept_loop();
  void take(tcp::socket socket);
  void refuse(tcp::socket socket);
  void run();
  void close_all();
};

Status Server::Impl::bind() {
  boost::system::error_code error;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return fail(
        ErrorCode::kInvalidArgument,
        "host '{}' is no address; give one such as 127.0.0.1, 0.0.0.0, ::1 or ::", options.host);
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor = std::make_unique<tcp::acceptor>(io);
  acceptor->open(endpoint.protocol(), error);
  if (!error) {
    acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error) {
    acceptor->bind(endpoint, error);
  }
  if (!error) {
    acceptor->listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return fail(ErrorCode::kUnavailable, "cannot listen on {} port {}: {}; --port takes another",
                options.host, options.port, error.message());
  }
  port = acceptor->local_endpoint(error).port();
  return {};
}

void Server::Impl::refuse(tcp::socket socket) {
  ++counters.refused_connections;
  boost::system::error_code ignored;
  if (tls == nullptr) {
    Response full =
        error_response(503, "the server has as many connections as it may have; try again",
                       "unavailable_error", "connections");
    full.headers.push_back({"Retry-After", "1"});
    const std::string id = request_id({});
    // The whole of it fits the socket's buffer, so it is written without waiting.
    const std::string bytes =
        response_head(full, {.body_bytes = static_cast<std::int64_t>(full.body.size()),
                             .close = true,
                             .request_id = id,
                             .now_unix_s = std::time(nullptr)}) +
        full.body;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(bytes), ignored);
  }
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void Server::Impl::take(tcp::socket socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  if (error) {
    return;  // gone already
  }
  const std::string peer = remote.address().to_string();
  if (counters.open_connections.load() >= options.max_connections ||
      per_address[peer] >= options.max_connections_per_address) {
    refuse(std::move(socket));
    return;
  }
  socket.set_option(tcp::no_delay(true), error);
  // What a client has not read counts against our own limit, not in the system's growing buffer.
  socket.set_option(tcp::socket::send_buffer_size(kSocketBufferBytes), error);
  ++counters.connections;
  ++counters.open_connections;
  ++per_address[peer];
  auto stream =
      tls == nullptr ? make_plain_stream(std::move(socket)) : tls->make_stream(std::move(socket));
  const ConnectionContext context{.options = &options,
                                  .guard = guard.get(),
                                  .routes = &routes,
                                  .counters = &counters,
                                  .draining = &draining};
  auto connection =
      std::make_shared<Connection>(io.get_executor(), std::move(stream), peer, context);
  const auto place = connections.insert(connections.end(), connection);
  asio::co_spawn(
      io, [connection]() -> asio::awaitable<void> { co_await connection->run(); },
      [this, place, peer, connection](const std::exception_ptr& failure) {
        connection->close();
        connections.erase(place);
        --counters.open_connections;
        if (const auto at = per_address.find(peer); --at->second == 0) {
          per_address.erase(at);
        }
        if (failure) {
          log::error("a connection of {} ended by an exception", peer);
        }
      });
}

asio::awaitable<void> Server::Impl::accept_loop() {
  asio::steady_timer pause(io);
  while (acceptor->is_open()) {
    boost::system::error_code error;
    tcp::socket socket =
        co_await acceptor->async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) {
      co_return;
    }
    if (error) {
      log::warn("accept: {}", error.message());
      pause.expires_after(kAcceptPause);
      boost::system::error_code ignored;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    take(std::move(socket));
  }
}

void Server::Impl::close_all() {
  boost::system::error_code ignored;
  acceptor->close(ignored);
  for (const auto& weak : connections) {
    if (const auto connection = weak.lock(); connection != nullptr) {
      connection->close();
    }
  }
}

void Server::Impl::run() {
  const auto work = asio::make_work_guard(io);
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      log::error("http: {}", error.what());  // of one handler; the others go on
    }
  }
}

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, GuardOptions guard,
                                               RouteTable routes) {
  TRINE_TRY(check_routes(routes));
  TRINE_TRY(Guard::check_options(guard));
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return fail(ErrorCode::kInvalidArgument, "TLS needs both a certificate and a key file");
  }
  auto impl = std::make_unique<Impl>();
  guard.secure = !options.tls_cert.empty();
  if (guard.secure) {
    TRINE_TRY_ASSIGN(impl->tls, TlsContext::load(options.tls_cert, options.tls_key));
  }
  impl->options = std::move(options);
  impl->guard = std::make_unique<Guard>(std::move(guard));
  impl->routes = std::move(routes);
  TRINE_TRY(impl->bind());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  stop();
}

std::uint16_t Server::port() const {
  return impl_->port;
}

std::string Server::url() const {
  const bool v6 = impl_->options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", impl_->tls ? "https" : "http", v6 ? "[" : "",
                     impl_->options.host, v6 ? "]" : "", impl_->port);
}

void Server::start() {
  asio::co_spawn(impl_->io, impl_->accept_loop(), asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

void Server::drain() {
  impl_->draining.store(true);
  asio::post(impl_->io, [impl = impl_.get()] {
    for (const auto& weak : impl->connections) {
      if (const auto connection = weak.lock(); connection != nullptr) {
        connection->close_if_idle();
      }
    }
  });
}

bool Server::wait_idle(double seconds) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (impl_->counters.open_requests.load() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void Server::stop() {
  if (!impl_->thread.joinable()) {
    return;
  }
  try {
    asio::post(impl_->io, [impl = impl_.get()] { impl->close_all(); });
  } catch (const std::exception&) {
    impl_->io
        .stop();  // no memory left for the orderly end; the thread must end before the members do
  }
  // Their coroutines end in their own turns.
  for (int i = 0; i < 1000 && impl_->counters.open_connections.load() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  impl_->io.stop();
  impl_->thread.join();
}

ServerCounters Server::counters() const {
  const AtomicCounters& now = impl_->counters;
  return {.connections = now.connections.load(),
          .open_connections = now.open_connections.load(),
          .refused_connections = now.refused_connections.load(),
          .requests = now.requests.load(),
          .open_requests = now.open_requests.load(),
          .bad_requests = now.bad_requests.load(),
          .timeouts = now.timeouts.load(),
          .slow_readers = now.slow_readers.load(),
          .disconnects = now.disconnects.load()};
}

const RouteTable& Server::routes() const {
  return impl_->routes;
}

}  // namespace trine::server::http
