// The bytes of one connection, plain or under TLS, behind one virtual interface: every coroutine
// above it is compiled once. Included by connection.cpp, server.cpp and stream.cpp only, because
// Asio is slow to compile. Thread rule: io thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"

namespace trine::server::http {

class Stream {
 public:
  virtual ~Stream() = default;
  // Of TLS; at once for a plain one. False: give up.
  virtual boost::asio::awaitable<bool> handshake() = 0;
  // Some bytes; 0 at the end and on every error.
  virtual boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer buffer) = 0;
  virtual boost::asio::awaitable<std::size_t> write_some(boost::asio::const_buffer buffer) = 0;
  // No more bytes to the other side, which may still send.
  virtual void shutdown_send() = 0;
  // Ends every operation in work.
  virtual void close() = 0;
};

// A certificate with its key, for all connections.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // Errors: invalid_argument naming the file and what OpenSSL says.
  static Result<std::unique_ptr<TlsContext>> load(const std::string& cert_file,
                                                  const std::string& key_file);
  virtual std::unique_ptr<Stream> make_stream(boost::asio::ip::tcp::socket socket) = 0;
};

std::unique_ptr<Stream> make_plain_stream(boost::asio::ip::tcp::socket socket);

}  // namespace trine::server::http
