// A whole server: models, endpoints, HTTP, and its orderly end.
//
// Threads: one for HTTP, some for text, one for answers, one that loads models, and one per loaded
// model that owns its engine (which has its compute threads). Thread rule: one thread, the
// caller's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/http/server.h"
#include "server/model_host.h"

namespace trine::server {

struct ServingOptions {
  http::ServerOptions http;
  http::GuardOptions guard;
  bool allow_no_auth = false;  // a host that is not loopback may be served without keys
  ModelHostOptions models;
  std::vector<ModelSpec> specs;  // loaded at start, in this order
  int text_threads = 2;
  int max_text_queue = 512;
  double progress_timeout_s = 60.0;
  Pooling pooling = Pooling::kLast;
  bool web_page = true;
  std::string version;
};

class Serving {
 public:
  // Binds and serves; the models are loaded in the background, and /health/ready tells. Errors:
  // invalid_argument for an open host without keys, two models of one name, and those of
  // http::Server::create().
  static Result<std::unique_ptr<Serving>> start(ServingOptions options);
  // Ends everything at once.
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  std::string url() const;
  std::uint16_t port() const;

  enum class Loading : std::uint8_t { kBusy, kDone, kFailed };

  // Of the models given at start; `error` is the first failure.
  Loading loading(Error& error) const;
  std::vector<ModelStatus> models() const;
  bool needs_key() const;
  bool has_admin_keys() const;

  // The end, in steps: begin_drain() refuses new work; idle() tells when the rest is done;
  // cut_off() ends what is not, with an error event. Then destroy.
  void begin_drain();
  bool idle(double wait_s) const;
  void cut_off();

 private:
  struct Impl;
  explicit Serving(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::server
