// How a handler answers: at once or later, from any thread, as a whole or as a stream of
// server-sent events.
//
// A Responder is a handle that may be copied. When the last one goes without an answer, the client
// gets a 500. What a slow client has not read yet is kept up to a limit; past it the connection is
// dropped as if the client had gone. Thread rule: any thread; the functions given to
// on_disconnect() run on the thread that notices, and must be quick.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace trine::server::http {

class Exchange;

class Responder {
 public:
  Responder() = default;
  explicit Responder(std::shared_ptr<Exchange> exchange);

  // The whole answer. Only the first call of send() and start_stream() counts.
  void send(Response response) const;
  // Status 200 and the headers of an event stream.
  void start_stream(std::vector<Header> headers = {}) const;
  // Whole SSE frames. False when the client is gone: stop working for it.
  bool write(std::string_view frames) const;
  // The stream's end.
  void finish() const;

  // Calls `notify` once when the client goes before the answer is out, now if it has gone.
  void on_disconnect(std::function<void()> notify) const;
  bool gone() const;

 private:
  struct Handle;
  std::shared_ptr<Handle> handle_;
};

}  // namespace trine::server::http
