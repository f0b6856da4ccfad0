// One request's way back: what handlers put in on any thread and the connection takes out on the io
// thread. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace trine::server::http {

class Exchange {
 public:
  // `wake` is called, from any thread, when take() has something new or the client was given up.
  Exchange(std::size_t max_buffered_bytes, std::function<void()> wake)
      : max_buffered_bytes_(max_buffered_bytes), wake_(std::move(wake)) {}

  // The handlers' side; see Responder.
  void send(Response response);
  void start_stream(std::vector<Header> headers);
  bool write(std::string_view frames);
  void finish();
  void on_disconnect(std::function<void()> notify);
  void abandon();  // no handler is left
  bool gone() const;

  // The connection's side.
  struct Piece {
    std::optional<Response> head;  // once, first
    bool streams = false;          // with the head: a body of unknown length follows
    std::string bytes;             // of the stream
    bool last = false;             // nothing follows
    bool broken = false;           // with last: the stream ended without finish()
  };

  Piece take();
  // What take() gave out has been written.
  void written();
  // The client has gone, or is given up.
  void client_gone();
  // The client was too slow.
  bool overflowed() const;

 private:
  void drop(std::unique_lock<std::mutex> lock);

  const std::size_t max_buffered_bytes_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::optional<Response> head_;
  std::string pending_;
  std::size_t in_flight_ = 0;
  bool answered_ = false;
  bool streams_ = false;
  bool ended_ = false;
  bool broken_ = false;
  bool gone_ = false;
  bool overflowed_ = false;
  std::function<void()> notify_;
};

}  // namespace trine::server::http
