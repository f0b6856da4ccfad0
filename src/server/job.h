// One HTTP request that generates: between the engine's events and the client.
//
// The text thread makes it, the engine thread runs its requests, the answers thread turns its
// events into bytes. When the client goes, `cancelled` is set and the engine ends the requests at
// its next step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "server/http/responder.h"
#include "server/openai/answer.h"

namespace trine::server {

class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(http::Responder responder, std::unique_ptr<openai::Answer> answer, bool streams)
      : responder_(std::move(responder)), answer_(std::move(answer)), streams_(streams) {}

  // One per prompt; taken by the engine thread.
  std::vector<GenerationRequest> requests;
  std::atomic<bool> cancelled{false};
  // Keeps the model loaded.
  std::shared_ptr<void> lease;
  double submitted_ms = 0.0;

  // Before it is submitted: what the answer needs for usage and echo.
  void set_prompts(const std::vector<std::vector<std::int32_t>>& prompts);
  // Sets `cancelled` when the client goes, and then calls `poke`.
  void watch_client(std::function<void()> poke);

  // Answers thread.
  void accepted();
  void refused(const openai::ApiError& error);
  void event(const openai::AnswerEvent& event);
  // Ends the answer now; what the engine still sends is dropped.
  void abort(const openai::ApiError& error);

 private:
  void write(const std::vector<openai::SseEvent>& events);
  void end();

  http::Responder responder_;
  std::unique_ptr<openai::Answer> answer_;
  const bool streams_;
  bool begun_ = false;
  bool ended_ = false;
};

// The whole answer for an error.
http::Response to_response(const openai::ApiError& error);

}  // namespace trine::server
