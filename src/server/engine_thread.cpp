#include "server/engine_thread.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"

namespace trine::server {

namespace {

// How old the figures of metrics() may be while the engine works.
constexpr double kMetricsEveryMs = 50.0;

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void StepGate::enter() {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = next_++;
  changed_.wait(lock, [&] { return serving_ == mine; });
}

void StepGate::leave() {
  {
    const std::unique_lock lock(mutex_);
    ++serving_;
  }
  changed_.notify_all();
}

bool is_stalled(const EngineProgress& progress, double limit_s) {
  return progress.has_work && progress.idle_ms > limit_s * 1e3;
}

struct EngineThread::Impl {
  std::unique_ptr<Engine> engine;
  WorkerPool* answers = nullptr;
  Metrics::Model* series = nullptr;
  StepGate* gate = nullptr;
  std::int32_t context_tokens = 0;
  int num_threads = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> inbox;
  bool poked = false;
  bool clear_cache = false;
  std::optional<openai::ApiError> abort_error;

  mutable std::mutex metrics_mutex;
  EngineMetrics snapshot;

  std::atomic<bool> stopping{false};
  std::atomic<bool> has_work{false};
  std::atomic<double> moved_ms{0.0};

  // Of the engine thread.
  struct Delivery {
    std::shared_ptr<Job> job;
    openai::AnswerEvent event;
  };

  // What the callbacks of one job share.
  struct Running {
    std::shared_ptr<Job> job;
    std::size_t num_open = 0;  // requests
    bool dropped = false;      // its events go nowhere
  };

  std::vector<std::shared_ptr<Running>> running;
  std::vector<Delivery> batch;
  std::vector<std::function<void()>> notices;  // before the batch
  EngineMetrics counted;                       // what the series know
  double step_ended_ms = 0.0;
  double published_ms = 0.0;
  std::thread thread;

  void run();
  bool take_commands();  // true: there was one
  void start_job(const std::shared_ptr<Job>& job);
  void on_event(const std::shared_ptr<Running>& of, std::int32_t prompt,
                std::vector<double>& last_token_ms, const TokenEvent& event);
  void step();
  void deliver();
  void publish();
};

// Tells the metrics page what the engine holds now.
void EngineThread::Impl::publish() {
  published_ms = now_ms();
  EngineMetrics now = engine->metrics();
  const std::unique_lock lock(metrics_mutex);
  snapshot = now;
}

void EngineThread::Impl::deliver() {
  for (std::function<void()>& notice : notices) {
    (void)answers->post(std::move(notice));
  }
  notices.clear();
  if (batch.empty()) {
    return;
  }
  (void)answers->post([events = std::move(batch)] {
    for (const Delivery& delivery : events) {
      delivery.job->event(delivery.event);
    }
  });
  batch.clear();
}

void EngineThread::Impl::on_event(const std::shared_ptr<Running>& of, std::int32_t prompt,
                                  std::vector<double>& last_token_ms, const TokenEvent& event) {
  double& last_ms = last_token_ms[static_cast<std::size_t>(event.answer)];
  if (event.token >= 0) {
    if (last_ms > 0.0) {
      series->inter_token(step_ended_ms - last_ms);
    }
    last_ms = step_ended_ms;
  }
  if (event.finish.has_value()) {
    series->answer_ended(*event.finish);
  }
  if (!of->dropped) {
    batch.push_back({.job = of->job, .event = openai::own(event, prompt)});
  }
  if (event.stats != nullptr) {
    series->request_ended(*event.stats, step_ended_ms - of->job->submitted_ms);
    --of->num_open;
  }
}

// All requests of a job are taken or none.
void EngineThread::Impl::start_job(const std::shared_ptr<Job>& job) {
  auto state = std::make_shared<Running>();
  state->job = job;
  std::vector<RequestId> ids;
  std::optional<openai::ApiError> refused;
  for (std::size_t i = 0; i < job->requests.size() && !refused.has_value(); ++i) {
    GenerationRequest& request = job->requests[i];
    request.cancel = &job->cancelled;
    request.joins_previous = i > 0;
    std::vector<double> last_token_ms(static_cast<std::size_t>(std::max(request.n, 1)), 0.0);
    const auto id = engine->submit(
        std::move(request),
        [this, state, prompt = static_cast<std::int32_t>(i), last = std::move(last_token_ms)](
            const TokenEvent& event) mutable { on_event(state, prompt, last, event); });
    if (id.has_value()) {
      ids.push_back(*id);
    } else if (engine->refusal().has_value() && id.error().code == ErrorCode::kUnavailable) {
      refused = openai::queue_full(*engine->refusal());
    } else {
      const std::string_view field = engine->refused_field();
      refused = openai::api_error(id.error(),
                                  field.empty() ? std::nullopt : std::optional(std::string(field)));
    }
  }
  job->requests.clear();
  state->num_open = ids.size();
  running.push_back(state);
  if (refused.has_value()) {
    state->dropped = true;
    for (const RequestId id : ids) {
      engine->cancel(id);
    }
    notices.emplace_back([job, error = *std::move(refused)] { job->refused(error); });
    return;
  }
  notices.emplace_back([job] { job->accepted(); });
}

bool EngineThread::Impl::take_commands() {
  std::deque<std::shared_ptr<Job>> jobs;
  std::optional<openai::ApiError> abort;
  bool clear = false;
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] {
      return stopping.load() || poked || clear_cache || !inbox.empty() || abort_error.has_value() ||
             !engine->idle();
    });
    poked = false;
    std::swap(clear, clear_cache);
    std::swap(abort, abort_error);
    std::swap(jobs, inbox);
  }
  const bool any = clear || abort.has_value() || !jobs.empty();
  if (clear) {
    engine->clear_prefix_cache();
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    start_job(job);
  }
  if (stopping.load() && !abort.has_value()) {
    abort = openai::ApiError{.status = 503,
                             .message = "the model was unloaded",
                             .type = "unavailable_error",
                             .code = "unloaded"};
  }
  if (abort.has_value()) {
    for (const auto& state : running) {
      if (!state->dropped) {
        state->dropped = true;
        state->job->cancelled.store(true);
        notices.emplace_back([job = state->job, error = *abort] { job->abort(error); });
      }
    }
  }
  return any;
}

void EngineThread::Impl::step() {
  if (!has_work.load()) {
    moved_ms.store(now_ms());
    has_work.store(true);
  }
  gate->enter();
  const double started_ms = now_ms();
  const StepPlan& plan = engine->schedule();
  const std::int32_t num_tokens = plan.num_tokens;
  engine->run();
  gate->leave();
  step_ended_ms = now_ms();
  engine->commit();
  const EngineMetrics now = engine->metrics();
  series->tokens(now.prompt_tokens - counted.prompt_tokens,
                 now.cached_tokens - counted.cached_tokens,
                 now.generated_tokens - counted.generated_tokens);
  counted = now;
  if (num_tokens > 0) {
    series->step(num_tokens, step_ended_ms - started_ms);
  }
  moved_ms.store(step_ended_ms);
}

void EngineThread::Impl::run() {
  publish();
  for (;;) {
    if (take_commands()) {
      publish();
      deliver();  // a refusal does not wait for a step
    }
    if (!engine->idle()) {
      step();
    }
    std::erase_if(running, [](const auto& state) { return state->num_open == 0; });
    const bool idle = engine->idle();
    if (idle) {
      has_work.store(false);
#ifdef TRINE_DCHECK_ENABLED
      TRINE_CHECK(engine->check_integrity().has_value());
#endif
    }
    // Before the events go out: who has an answer sees it counted.
    if (idle || now_ms() - published_ms > kMetricsEveryMs) {
      publish();
    }
    deliver();
    if (idle && stopping.load()) {
      return;
    }
  }
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, WorkerPool& answers,
                           Metrics::Model& metrics, StepGate& gate)
    : impl_(std::make_unique<Impl>()) {
  impl_->engine = std::move(engine);
  impl_->answers = &answers;
  impl_->series = &metrics;
  impl_->gate = &gate;
  impl_->context_tokens = impl_->engine->context_tokens();
  impl_->num_threads = impl_->engine->num_threads();
  impl_->snapshot = impl_->engine->metrics();
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

EngineThread::~EngineThread() {
  impl_->stopping.store(true);
  poke();
  impl_->thread.join();
}

bool EngineThread::submit(std::shared_ptr<Job> job) {
  job->submitted_ms = now_ms();
  {
    const std::unique_lock lock(impl_->mutex);
    if (impl_->inbox.size() >= kMaxInbox) {
      return false;
    }
    impl_->inbox.push_back(std::move(job));
  }
  impl_->changed.notify_one();
  return true;
}

void EngineThread::poke() {
  {
    const std::unique_lock lock(impl_->mutex);
    impl_->poked = true;
  }
  impl_->changed.notify_one();
}

void EngineThread::abort_all(const openai::ApiError& error) {
  {
    const std::unique_lock lock(impl_->mutex);
    impl_->abort_error = error;
  }
  impl_->changed.notify_one();
}

void EngineThread::clear_prefix_cache() {
  {
    const std::unique_lock lock(impl_->mutex);
    impl_->clear_cache = true;
  }
  impl_->changed.notify_one();
}

EngineMetrics EngineThread::metrics() const {
  const std::unique_lock lock(impl_->metrics_mutex);
  return impl_->snapshot;
}

EngineProgress EngineThread::progress() const {
  return {.has_work = impl_->has_work.load(), .idle_ms = now_ms() - impl_->moved_ms.load()};
}

std::int32_t EngineThread::context_tokens() const {
  return impl_->context_tokens;
}

int EngineThread::num_threads() const {
  return impl_->num_threads;
}

}  // namespace trine::server
