#include "server/serving.h"

#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "server/api.h"
#include "server/api_impl.h"
#include "server/worker_pool.h"

namespace trine::server {

// In the order of dependence: what is used stands before its users and ends after them.
struct Serving::Impl {
  Metrics metrics;
  std::unique_ptr<WorkerPool> answers;
  std::unique_ptr<ModelHost> models;
  std::unique_ptr<WorkerPool> text;
  std::unique_ptr<Api> api;
  std::unique_ptr<http::Server> http;
  bool needs_key = false;
  bool has_admin_keys = false;

  mutable std::mutex mutex;
  std::size_t num_to_load = 0;
  std::optional<Error> load_error;
};

namespace {

Status check(const ServingOptions& options) {
  if (!http::is_loopback(options.http.host) && !options.guard.keys.has_user_keys() &&
      !options.allow_no_auth) {
    return fail(ErrorCode::kInvalidArgument,
                "host {} can be reached from other machines and no API key is set; give "
                "--api-key-file or TRINE_API_KEY, or --allow-no-auth to serve everybody",
                options.http.host);
  }
  std::set<std::string> names;
  for (const ModelSpec& spec : options.specs) {
    if (!names.insert(spec.id).second) {
      return fail(ErrorCode::kInvalidArgument,
                  "two models are called '{}'; --served-name gives each its own name", spec.id);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Serving>> Serving::start(ServingOptions options) {
  TRINE_TRY(check(options));
  auto impl = std::make_unique<Impl>();
  impl->needs_key = options.guard.keys.has_user_keys();
  impl->has_admin_keys = options.guard.keys.has_admin_keys();
  // Unbounded: an event that was drawn must reach its answer; clients bound it by their buffers.
  impl->answers = std::make_unique<WorkerPool>(1, SIZE_MAX);
  impl->models =
      std::make_unique<ModelHost>(std::move(options.models), *impl->answers, impl->metrics);
  impl->text = std::make_unique<WorkerPool>(options.text_threads,
                                            static_cast<std::size_t>(options.max_text_queue));
  impl->api = std::make_unique<Api>(*impl->models, *impl->text, impl->metrics,
                                    ApiOptions{.max_body_bytes = options.http.parser.max_body_bytes,
                                               .progress_timeout_s = options.progress_timeout_s,
                                               .pooling = options.pooling,
                                               .version = options.version,
                                               .web_page = options.web_page});
  TRINE_TRY_ASSIGN(impl->http, http::Server::create(std::move(options.http),
                                                    std::move(options.guard), impl->api->routes()));
  impl->api->set_http(impl->http.get());
  impl->http->start();
  impl->num_to_load = options.specs.size();
  for (ModelSpec& spec : options.specs) {
    impl->models->load(std::move(spec), [state = impl.get()](const Status& status) {
      const std::unique_lock lock(state->mutex);
      if (!status.has_value() && !state->load_error.has_value()) {
        state->load_error = status.error();
      }
      if (--state->num_to_load == 0) {
        state->api->set_started();
      }
    });
  }
  return std::unique_ptr<Serving>(new Serving(std::move(impl)));
}

Serving::Serving(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Serving::~Serving() {
  impl_->api->drain();
  impl_->http->stop();
  impl_->text.reset();
  impl_->models.reset();
  impl_->answers.reset();
}

std::string Serving::url() const {
  return impl_->http->url();
}

std::uint16_t Serving::port() const {
  return impl_->http->port();
}

Serving::Loading Serving::loading(Error& error) const {
  const std::unique_lock lock(impl_->mutex);
  if (const auto& failed = impl_->load_error; failed.has_value()) {
    error = *failed;
    return Loading::kFailed;
  }
  return impl_->num_to_load == 0 ? Loading::kDone : Loading::kBusy;
}

std::vector<ModelStatus> Serving::models() const {
  return impl_->models->status();
}

bool Serving::needs_key() const {
  return impl_->needs_key;
}

bool Serving::has_admin_keys() const {
  return impl_->has_admin_keys;
}

void Serving::begin_drain() {
  impl_->api->drain();
  impl_->http->drain();
}

bool Serving::idle(double wait_s) const {
  return impl_->http->wait_idle(wait_s);
}

void Serving::cut_off() {
  impl_->models->abort_all(shutting_down());
}

}  // namespace trine::server
