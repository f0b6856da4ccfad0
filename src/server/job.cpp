#include "server/job.h"

#include <string>
#include <utility>

namespace trine::server {

http::Response to_response(const openai::ApiError& error) {
  http::Response out;
  out.status = error.status;
  out.body = openai::error_body(error);
  if (error.retry_after_s.has_value()) {
    out.headers.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  if (!error.worth_retrying) {
    out.headers.push_back({"X-Should-Retry", "false"});
  }
  return out;
}

void Job::set_prompts(const std::vector<std::vector<std::int32_t>>& prompts) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    answer_->set_prompt(static_cast<std::int32_t>(i), prompts[i]);
  }
}

void Job::watch_client(std::function<void()> poke) {
  responder_.on_disconnect([weak = weak_from_this(), poke = std::move(poke)] {
    if (const auto self = weak.lock(); self != nullptr) {
      self->cancelled.store(true);
    }
    poke();
  });
}

void Job::write(const std::vector<openai::SseEvent>& events) {
  std::string frames;
  for (const openai::SseEvent& event : events) {
    frames += openai::sse_frame(event);
  }
  if (!frames.empty() && !responder_.write(frames)) {
    cancelled.store(true);
  }
}

void Job::end() {
  ended_ = true;
  responder_ = {};  // a handle that is let go of without an answer gives a 500
  answer_.reset();
  lease.reset();
}

void Job::accepted() {
  if (!streams_ || ended_) {
    return;
  }
  begun_ = true;
  responder_.start_stream();
  std::vector<openai::SseEvent> events;
  answer_->begin(events);
  write(events);
}

void Job::refused(const openai::ApiError& error) {
  if (ended_) {
    return;
  }
  responder_.send(to_response(error));
  end();
}

void Job::event(const openai::AnswerEvent& event) {
  if (ended_) {
    return;
  }
  std::vector<openai::SseEvent> events;
  answer_->add(event, events);
  if (streams_) {
    write(events);
  }
  if (!answer_->done()) {
    return;
  }
  const auto& failed = answer_->error();
  if (failed.has_value()) {
    cancelled.store(true);  // the request's other prompts
  }
  if (streams_) {
    responder_.finish();
  } else if (failed.has_value()) {
    responder_.send(to_response(*failed));
  } else {
    http::Response response;
    response.body = answer_->body();
    responder_.send(std::move(response));
  }
  end();
}

void Job::abort(const openai::ApiError& error) {
  cancelled.store(true);
  if (ended_) {
    return;
  }
  if (!begun_) {
    responder_.send(to_response(error));
  } else {
    std::vector<openai::SseEvent> events;
    answer_->fail(error, events);
    write(events);
    responder_.finish();
  }
  end();
}

}  // namespace trine::server
