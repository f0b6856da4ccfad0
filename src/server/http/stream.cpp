#include "server/http/stream.h"

#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace trine::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(tcp::socket socket) : socket_(std::move(socket)) {}

  asio::awaitable<bool> handshake() override { co_return true; }

  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer) override {
    boost::system::error_code error;
    const std::size_t bytes =
        co_await socket_.async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : bytes;
  }

  asio::awaitable<std::size_t> write_some(asio::const_buffer buffer) override {
    boost::system::error_code error;
    const std::size_t bytes =
        co_await socket_.async_write_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : bytes;
  }

  void shutdown_send() override {
    boost::system::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsStream final : public Stream {
 public:
  TlsStream(tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {}

  asio::awaitable<bool> handshake() override {
    boost::system::error_code error;
    co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }

  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer) override {
    boost::system::error_code error;
    const std::size_t bytes =
        co_await stream_.async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : bytes;
  }

  asio::awaitable<std::size_t> write_some(asio::const_buffer buffer) override {
    boost::system::error_code error;
    const std::size_t bytes =
        co_await stream_.async_write_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : bytes;
  }

  // Without close_notify: every body has a length or chunks, so its end is known without.
  void shutdown_send() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }

  void close() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

class OpensslContext final : public TlsContext {
 public:
  OpensslContext() : context_(asio::ssl::context::tls_server) {}

  Status use(const std::string& cert_file, const std::string& key_file) {
    boost::system::error_code error;
    context_.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                             asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                             asio::ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION,
                         error);
    context_.use_certificate_chain_file(cert_file, error);
    if (error) {
      return fail(ErrorCode::kInvalidArgument, "TLS certificate {}: {}", cert_file,
                  error.message());
    }
    context_.use_private_key_file(key_file, asio::ssl::context::pem, error);
    if (error) {
      return fail(ErrorCode::kInvalidArgument, "TLS key {}: {}", key_file, error.message());
    }
    if (::SSL_CTX_check_private_key(context_.native_handle()) != 1) {
      return fail(ErrorCode::kInvalidArgument, "TLS key {} does not belong to certificate {}",
                  key_file, cert_file);
    }
    return {};
  }

  std::unique_ptr<Stream> make_stream(tcp::socket socket) override {
    return std::make_unique<TlsStream>(std::move(socket), context_);
  }

 private:
  asio::ssl::context context_;
};

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& cert_file,
                                                     const std::string& key_file) {
  try {
    auto out = std::make_unique<OpensslContext>();
    TRINE_TRY(out->use(cert_file, key_file));
    return out;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, "TLS cannot be set up: {}", error.what());
  }
}

std::unique_ptr<Stream> make_plain_stream(tcp::socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace trine::server::http
