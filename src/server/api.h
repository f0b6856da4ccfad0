// The endpoints: from HTTP requests to models and back. docs/serving.md describes them.
//
// Handlers run on the io thread and only hand over: bodies are parsed, templates rendered and text
// tokenized on the text pool. Thread rule: routes() and drain() on one thread; the rest is inside.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "server/http/routes.h"
#include "server/http/server.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/model_host.h"
#include "server/openai/limits.h"
#include "server/worker_pool.h"

namespace trine::server {

struct ApiOptions {
  std::size_t max_body_bytes = std::size_t{8} << 20;
  double progress_timeout_s = 60.0;
  Pooling pooling = Pooling::kLast;  // of embeddings, where the request does not say
  std::string version;               // "0.1.0", for system_fingerprint
  bool web_page = true;
};

class Api {
 public:
  // All references outlive the requests.
  Api(ModelHost& models, WorkerPool& text, Metrics& metrics, ApiOptions options)
      : models_(models), text_(text), metrics_(metrics), options_(std::move(options)) {}

  http::RouteTable routes();

  // Whose counters /metrics shows.
  void set_http(const http::Server* http) { http_.store(http); }

  // The models given at start are loaded, or failed.
  void set_started() { started_.store(true); }

  // From now on nothing new is begun.
  void drain() { draining_.store(true); }

 private:
  template <typename Parsed>
  using Parse = openai::ApiResult<Parsed> (*)(std::string_view, const openai::Limits&);

  void add_operations(http::RouteTable& table);
  void add_text(http::RouteTable& table);
  void add_generation(http::RouteTable& table);
  void add_admin(http::RouteTable& table);

  // Whether requests are taken, and what stands in their way.
  struct Readiness {
    std::string_view word;
    bool serves = false;
    bool full = false;  // some queue is
  };

  Readiness readiness() const;
  http::Response ready() const;
  http::Response health() const;
  http::Response progress() const;
  http::Response metrics_page() const;
  http::Response models_list() const;
  http::Response one_model(const std::string& id) const;
  http::Response admin_models() const;
  void admin_change(const http::Request& request, const http::Responder& responder, bool load);

  openai::Limits limits() const;
  // Runs `work` on the text pool, or answers 429.
  void post_text(const http::Responder& responder, std::function<void()> work);
  // `work` with the model of this id, on the text pool.
  void with_model(const std::string& id, const http::Responder& responder,
                  std::function<void(const Lease&)> work);
  // Parses the body, gets the model, and answers with what `make_body` gives.
  template <typename Parsed, typename MakeBody>
  void answer_text(http::Request request, const http::Responder& responder, Parse<Parsed> parse,
                   MakeBody make_body);
  template <typename Parsed>
  void generate(http::Request request, const http::Responder& responder, Parse<Parsed> parse);
  void embed(http::Request request, const http::Responder& responder);
  // Hands a job with its requests to the model's engine.
  void start(const std::shared_ptr<Job>& job, const Lease& model, const http::Responder& responder);

  ModelHost& models_;
  WorkerPool& text_;
  Metrics& metrics_;
  ApiOptions options_;
  std::atomic<const http::Server*> http_{nullptr};
  std::atomic<bool> started_{false};
  std::atomic<bool> draining_{false};
};

}  // namespace trine::server
