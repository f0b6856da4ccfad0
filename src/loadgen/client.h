// Many streamed requests at once, on the caller's thread: libcurl's multi interface.
//
// Proxies of the environment are not used, redirects are not followed: what is measured is the
// server that was named. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::loadgen {

// Seconds on the steady clock.
double now_s();

enum class Failure : std::uint8_t {
  kNone,
  kRefused,     // an HTTP status other than 200
  kConnection,  // no connection, or it broke
  kTimeout,
  kErrorEvent,  // the stream brought an error
  kMalformed,   // what came is no complete event stream
  kNoUsage,     // no token counts: they cannot be taken from chunks
};

std::string_view failure_name(Failure failure);

// One request from its place in the schedule to its end. Times in seconds on the steady clock.
struct Outcome {
  double scheduled_s = 0.0;
  double sent_s = 0.0;
  double end_s = 0.0;
  std::vector<double> output_s;  // when each chunk with output came
  Failure failure = Failure::kNone;
  long status = 0;
  double retry_after_s = -1.0;  // header; below 0: none
  std::string error;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;
};

struct ClientOptions {
  std::string base_url;  // without a slash at its end
  std::string api_key;   // empty: none
  double timeout_s = 600.0;
};

class Client {
 public:
  // Errors: internal when libcurl does not start.
  static Result<std::unique_ptr<Client>> create(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  using Done = std::function<void(Outcome)>;

  // Sends now; `done` is called from poll().
  Status start(std::string_view path, std::string body, double scheduled_s, Done done);
  // Moves data for at most so long.
  void poll(double seconds);
  std::size_t num_running() const;
  // A small GET in the same way, until it ends. Errors: unavailable with the status.
  Result<std::string> get(std::string_view path);

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::loadgen
