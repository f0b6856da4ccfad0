#include "server/http/exchange.h"

#include <utility>

#include "server/http/responder.h"

namespace trine::server::http {

void Exchange::send(Response response) {
  std::function<void()> done_with;  // may own what owns this
  {
    const std::unique_lock lock(mutex_);
    if (answered_) {
      return;
    }
    answered_ = true;
    ended_ = true;
    head_ = std::move(response);
    std::swap(done_with, notify_);
  }
  wake_();
}

void Exchange::start_stream(std::vector<Header> headers) {
  {
    const std::unique_lock lock(mutex_);
    if (answered_) {
      return;
    }
    answered_ = true;
    streams_ = true;
    Response& head = head_.emplace();
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = std::move(headers);
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.headers.push_back({"X-Accel-Buffering", "no"});  // proxies pass events on at once
  }
  wake_();
}

// Gives the client up: nothing more is kept for it.
void Exchange::drop(std::unique_lock<std::mutex> lock) {
  gone_ = true;
  ended_ = true;
  pending_.clear();
  pending_.shrink_to_fit();
  std::function<void()> notify;
  std::swap(notify, notify_);
  lock.unlock();
  if (notify) {
    notify();
  }
}

bool Exchange::write(std::string_view frames) {
  {
    std::unique_lock lock(mutex_);
    if (gone_ || ended_ || !streams_) {
      return false;
    }
    const bool known = !pending_.empty();  // a wake is under way
    if (pending_.size() + in_flight_ + frames.size() > max_buffered_bytes_) {
      overflowed_ = true;
      drop(std::move(lock));
    } else {
      pending_ += frames;
      if (known) {
        return true;
      }
    }
  }
  wake_();
  return !gone();
}

void Exchange::finish() {
  std::function<void()> done_with;
  {
    const std::unique_lock lock(mutex_);
    ended_ = true;
    std::swap(done_with, notify_);
  }
  wake_();
}

void Exchange::on_disconnect(std::function<void()> notify) {
  {
    const std::unique_lock lock(mutex_);
    if (!gone_) {
      if (!ended_) {
        notify_ = std::move(notify);
      }
      return;
    }
  }
  notify();
}

void Exchange::abandon() {
  {
    const std::unique_lock lock(mutex_);
    if (ended_) {
      return;
    }
    ended_ = true;
    if (!answered_) {
      answered_ = true;
      head_ = error_response(500, "the request was dropped without an answer", "internal_error");
    } else {
      broken_ = true;
    }
  }
  wake_();
}

bool Exchange::gone() const {
  const std::unique_lock lock(mutex_);
  return gone_;
}

bool Exchange::overflowed() const {
  const std::unique_lock lock(mutex_);
  return overflowed_;
}

Exchange::Piece Exchange::take() {
  const std::unique_lock lock(mutex_);
  Piece out;
  out.head = std::move(head_);
  head_.reset();
  out.streams = streams_;
  out.bytes = std::move(pending_);
  pending_.clear();
  in_flight_ += out.bytes.size();
  out.last = ended_;
  out.broken = broken_;
  return out;
}

void Exchange::written() {
  const std::unique_lock lock(mutex_);
  in_flight_ = 0;
}

void Exchange::client_gone() {
  std::unique_lock lock(mutex_);
  if (!gone_) {
    drop(std::move(lock));
  }
}

struct Responder::Handle {
  explicit Handle(std::shared_ptr<Exchange> of) : exchange(std::move(of)) {}

  ~Handle() { exchange->abandon(); }

  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  std::shared_ptr<Exchange> exchange;
};

Responder::Responder(std::shared_ptr<Exchange> exchange)
    : handle_(std::make_shared<Handle>(std::move(exchange))) {}

void Responder::send(Response response) const {
  if (handle_) {
    handle_->exchange->send(std::move(response));
  }
}

void Responder::start_stream(std::vector<Header> headers) const {
  if (handle_) {
    handle_->exchange->start_stream(std::move(headers));
  }
}

bool Responder::write(std::string_view frames) const {
  return handle_ && handle_->exchange->write(frames);
}

void Responder::finish() const {
  if (handle_) {
    handle_->exchange->finish();
  }
}

void Responder::on_disconnect(std::function<void()> notify) const {
  if (handle_) {
    handle_->exchange->on_disconnect(std::move(notify));
  }
}

bool Responder::gone() const {
  return !handle_ || handle_->exchange->gone();
}

}  // namespace trine::server::http
