#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "base/printable.h"

namespace trine::server::http {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kReadBytes = 8192;
constexpr std::size_t kMostInputBytes = std::size_t{64} << 10;  // read ahead of the parser
constexpr double kLingerS = 1.0;
constexpr std::size_t kMostHeldBytes = std::size_t{64} << 10;  // of a buffer that is kept
constexpr std::string_view kPing = ": ping\n\n";

constexpr std::chrono::steady_clock::time_point kNever =
    std::chrono::steady_clock::time_point::max();

}  // namespace

Connection::Connection(const asio::any_io_executor& executor, std::unique_ptr<Stream> stream,
                       std::string peer, const ConnectionContext& context)
    : executor_(executor),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      context_(context),
      parser_(context.options->parser),
      wake_timer_(executor),
      resume_timer_(executor),
      write_timer_(executor) {}

Connection::~Connection() = default;

void Connection::close() {
  closed_ = true;
  input_closed_ = true;
  stream_->close();
  resume_timer_.cancel();
  wake();
}

void Connection::close_if_idle() {
  if (served_any_ && exchange_ == nullptr && input_.empty() &&
      parser_.state() == RequestParser::State::kHeader) {
    close();
  }
}

void Connection::wake() {
  woken_ = true;
  wake_timer_.cancel();
}

asio::awaitable<void> Connection::sleep_until(Clock::time_point deadline) {
  if (!woken_) {
    wake_timer_.expires_at(deadline);
    boost::system::error_code ignored;
    co_await wake_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  woken_ = false;
}

// Reads as long as the connection lives, so that a client that goes is noticed at once.
asio::awaitable<void> Connection::read_loop() {
  std::array<char, kReadBytes> buffer{};
  while (!closed_) {
    if (input_.size() >= kMostInputBytes && !discard_input_) {
      resume_timer_.expires_at(kNever);
      boost::system::error_code ignored;
      co_await resume_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    const std::size_t bytes = co_await stream_->read_some(asio::buffer(buffer));
    if (bytes == 0) {
      break;
    }
    if (!discard_input_) {
      input_.append(buffer.data(), bytes);
      wake();
    }
  }
  input_closed_ = true;
  if (exchange_ != nullptr) {
    exchange_->client_gone();
  }
  wake();
}

asio::awaitable<void> Connection::run() {
  if (!co_await handshake()) {
    close();
    co_return;
  }
  asio::co_spawn(
      executor_,
      [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->read_loop(); },
      asio::detached);
  bool keep = true;
  while (keep && !closed_) {
    std::optional<Request> request = co_await read_request();
    if (!request.has_value()) {
      break;
    }
    keep = co_await serve(*std::move(request));
  }
  if (!closed_ && !input_closed_) {
    co_await linger();
  }
  close();
}

asio::awaitable<bool> Connection::handshake() {
  write_timer_.expires_at(after(context_.options->header_timeout_s));
  write_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) {
      ++self->context_.counters->timeouts;
      self->close();
    }
  });
  const bool done = co_await stream_->handshake();
  write_timer_.cancel();
  co_return done && !closed_;
}

// nullopt: the connection ends.
asio::awaitable<std::optional<Request>> Connection::read_request() {
  const ServerOptions& options = *context_.options;
  bool begun = false;
  bool in_body = false;
  Clock::time_point deadline = after(options.idle_timeout_s);
  for (;;) {
    if (!input_.empty() && !begun) {
      begun = true;
      deadline = after(options.header_timeout_s);
    }
    const RequestParser::State state = parser_.feed(input_);
    if (input_.size() < kMostInputBytes) {
      resume_timer_.cancel();
    }
    if (state == RequestParser::State::kDone) {
      if (input_.empty() && input_.capacity() > kMostHeldBytes) {
        input_ = std::string();
      }
      co_return parser_.take();
    }
    if (state == RequestParser::State::kError) {
      ++context_.counters->bad_requests;
      co_await refuse(parser_.error());
      co_return std::nullopt;
    }
    if (state == RequestParser::State::kBody && !in_body) {
      in_body = true;
      deadline = after(options.body_timeout_s);
      if (parser_.expects_continue() && input_.empty() &&
          !co_await write("HTTP/1.1 100 Continue\r\n\r\n")) {
        co_return std::nullopt;
      }
      continue;
    }
    if (input_closed_ || closed_) {
      co_return std::nullopt;
    }
    if (Clock::now() >= deadline) {
      if (begun) {
        ++context_.counters->timeouts;
        co_await refuse(error_response(
            408,
            fmt::format("the {} did not arrive within {:g} s", in_body ? "body" : "header",
                        in_body ? options.body_timeout_s : options.header_timeout_s),
            "invalid_request_error", "request_timeout"));
      }
      co_return std::nullopt;
    }
    if (!begun && served_any_ && context_.draining->load()) {
      co_return std::nullopt;
    }
    co_await sleep_until(deadline);
  }
}

// What never gets to a route. As much of the request as was understood may have its id.
asio::awaitable<void> Connection::refuse(const Response& response) {
  const std::string id = request_id(parser_.so_far());
  HeadOptions head{.body_bytes = static_cast<std::int64_t>(response.body.size()),
                   .close = true,
                   .request_id = id,
                   .now_unix_s = std::time(nullptr)};
  log::info("{} refused: {} {}", peer_, response.status, id);
  co_await write(response_head(response, head) + response.body);
}

void Connection::on_exchange_signal() {
  // A write in work to a client that does not read would wait on.
  if (exchange_ != nullptr && !closed_ && exchange_->overflowed()) {
    ++context_.counters->slow_readers;
    close();
  }
  wake();
}

// To the handler, or to the answer that stands in its place.
void Connection::dispatch(Request request, const std::shared_ptr<Exchange>& exchange) {
  const Match match = find_route(*context_.routes, request.method, request.path);
  if (match.route != nullptr) {
    request.argument = match.argument;
    if (auto refused = context_.guard->check(*match.route, request); refused.has_value()) {
      exchange->send(*std::move(refused));
      return;
    }
    const Responder responder(exchange);
    match.route->handler(std::move(request), responder);
    return;
  }
  if (auto refused = context_.guard->check_site(request); refused.has_value()) {
    exchange->send(*std::move(refused));
    return;
  }
  if (request.method == Method::kOptions && (request.path == "*" || !match.allow.empty())) {
    exchange->send(context_.guard->options_answer(
        request, request.path == "*" ? "GET, HEAD, POST, DELETE" : match.allow));
    return;
  }
  if (!match.allow.empty()) {
    Response out =
        error_response(405, fmt::format("{} takes {}", printable(request.path), match.allow),
                       "invalid_request_error", "method_not_allowed");
    out.headers.push_back({"Allow", match.allow + ", OPTIONS"});
    exchange->send(std::move(out));
    return;
  }
  exchange->send(error_response(404, fmt::format("there is no {}", printable(request.path)),
                                "not_found_error", "unknown_path"));
}

asio::awaitable<bool> Connection::serve(Request request) {
  served_any_ = true;
  request.id = request_id(request);
  request.peer = peer_;
  ++context_.counters->requests;
  ++context_.counters->open_requests;
  exchange_ = std::make_shared<Exchange>(context_.options->max_stream_buffer_bytes,
                                         [weak = weak_from_this(), executor = executor_] {
                                           asio::post(executor, [weak] {
                                             if (const auto self = weak.lock(); self != nullptr) {
                                               self->on_exchange_signal();
                                             }
                                           });
                                         });
  Request about;  // without body and headers that only the handler needs
  about.method = request.method;
  about.path = request.path;
  about.id = request.id;
  about.minor_version = request.minor_version;
  about.keep_alive = request.keep_alive;
  if (const std::string* origin = request.header("origin"); origin != nullptr) {
    about.headers.push_back({"origin", *origin});
  }
  try {
    dispatch(std::move(request), exchange_);
  } catch (const std::exception& error) {  // of libraries: memory above all
    log::error("{}: {}", about.path, error.what());
    exchange_->send(error_response(500, "the request failed", "internal_error"));
  }
  const bool keep = co_await write_answer(about);
  if (!exchange_->gone() && closed_) {
    exchange_->client_gone();
  }
  exchange_.reset();
  --context_.counters->open_requests;
  co_return keep && !closed_;
}

// Everything that comes out of the exchange, to its end. True: another request may follow.
asio::awaitable<bool> Connection::write_answer(const Request& request) {
  const Clock::time_point started = Clock::now();
  bool keep = request.keep_alive;
  bool streaming = false;
  Clock::time_point next_ping = kNever;
  int status = 0;
  for (;;) {
    if (closed_ || input_closed_ || exchange_->gone()) {
      ++context_.counters->disconnects;
      exchange_->client_gone();
      keep = false;
      break;
    }
    Exchange::Piece piece = exchange_->take();
    if (piece.head.has_value()) {
      status = piece.head->status;
      streaming = piece.streams;
      keep = keep && !context_.draining->load() && (!streaming || request.minor_version == 1);
    }
    const bool has_bytes = piece.head.has_value() || !piece.bytes.empty();
    const bool last = piece.last;
    const bool broken = piece.broken;
    if (streaming && !has_bytes && !last && Clock::now() >= next_ping) {
      piece.bytes = kPing;
    }
    if (has_bytes || last || !piece.bytes.empty()) {
      if (!co_await write_piece(request, std::move(piece), keep)) {
        continue;  // the loop's head ends it
      }
      exchange_->written();
      const double ping_s = context_.options->ping_s;
      next_ping = streaming && ping_s > 0.0 ? after(ping_s) : kNever;
    }
    if (last) {
      keep = keep && !broken;
      break;
    }
    co_await sleep_until(next_ping);
  }
  log::info("{} {} {} {} {:.1f} ms {}", peer_, method_name(request.method), printable(request.path),
            status, std::chrono::duration<double, std::milli>(Clock::now() - started).count(),
            request.id);
  co_return keep;
}

asio::awaitable<bool> Connection::write_piece(const Request& request, Exchange::Piece piece,
                                              bool keep) {
  std::string out;
  if (piece.head.has_value()) {
    Response& head = *piece.head;
    context_.guard->add_cors(request, head.headers);
    stream_chunked_ = piece.streams && request.minor_version == 1;
    out = response_head(
        head, {.body_bytes = piece.streams ? -1 : static_cast<std::int64_t>(head.body.size()),
               .chunked = stream_chunked_,
               .close = !keep,
               .request_id = request.id,
               .now_unix_s = std::time(nullptr)});
    if (!piece.streams && request.method != Method::kHead) {
      out += head.body;
    }
  }
  out += stream_chunked_ ? chunk(piece.bytes) : piece.bytes;
  if (piece.last && piece.streams && stream_chunked_ && !piece.broken) {
    out += kLastChunk;
  }
  co_return co_await write(out);
}

asio::awaitable<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty() && !closed_) {
    write_timer_.expires_at(after(context_.options->write_timeout_s));
    write_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (!error && self != nullptr) {
        ++self->context_.counters->slow_readers;
        self->close();
      }
    });
    const std::size_t done = co_await stream_->write_some(asio::buffer(bytes.data(), bytes.size()));
    write_timer_.cancel();
    if (done == 0) {
      close();
      break;
    }
    bytes.remove_prefix(done);
  }
  co_return bytes.empty() && !closed_;
}

// Bytes that the client still sends would make the system reset the connection, and the client
// lose the answer. So they are read and forgotten for a moment.
asio::awaitable<void> Connection::linger() {
  discard_input_ = true;
  input_.clear();
  resume_timer_.cancel();
  stream_->shutdown_send();
  const Clock::time_point deadline = after(kLingerS);
  while (!input_closed_ && !closed_ && Clock::now() < deadline) {
    co_await sleep_until(deadline);
  }
}

}  // namespace trine::server::http
