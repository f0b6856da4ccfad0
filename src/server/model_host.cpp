#include "server/model_host.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/printable.h"
#include "server/openai/prompt.h"

namespace trine::server {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostWaiters = 256;  // requests for a model that is being loaded
constexpr std::size_t kGrammarCacheBytes = std::size_t{256} << 20;
constexpr std::chrono::milliseconds kSweep{200};

std::int64_t bytes_of(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    const auto size = std::filesystem::file_size(path, error);
    return error ? 0 : static_cast<std::int64_t>(size);
  }
  std::int64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().extension() == ".safetensors") {
      std::error_code ignored;
      sum += static_cast<std::int64_t>(entry.file_size(ignored));
    }
  }
  return sum;
}

openai::ApiError unavailable(std::string message, std::string code) {
  return {.status = 503,
          .message = std::move(message),
          .type = "unavailable_error",
          .code = std::move(code),
          .retry_after_s = 1};
}

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

// Errors: corrupt_data for a value that no request could ask for.
Result<RequestDefaults> request_defaults(const GenerationDefaults& given, std::int32_t vocab_size) {
  RequestDefaults out;
  const auto take = [&out](std::string_view name, const auto& value, auto& to) {
    if (value.has_value()) {
      to = static_cast<std::remove_cvref_t<decltype(to)>>(*value);
      out.text +=
          fmt::format("{}{} {:g}", out.text.empty() ? "" : ", ", name, static_cast<double>(*value));
    }
  };
  sampling::SamplingParams& params = out.sampling;
  std::int64_t top_k = params.top_k;
  std::int64_t max_tokens = 1;
  take("temperature", given.temperature, params.temperature);
  take("top_k", given.top_k, top_k);
  take("top_p", given.top_p, params.top_p);
  take("min_p", given.min_p, params.min_p);
  take("repetition_penalty", given.repetition_penalty, params.repetition_penalty);
  take("max_new_tokens", given.max_tokens, max_tokens);
  Status valid;
  if (top_k < -1 || top_k > INT32_MAX || max_tokens < 1 || max_tokens > INT32_MAX) {
    valid = fail(ErrorCode::kCorruptData,
                 "top_k {} and max_new_tokens {} must be in [-1, {}] and [1, {}]", top_k,
                 max_tokens, INT32_MAX, INT32_MAX);
  } else {
    params.top_k = std::max(static_cast<std::int32_t>(top_k), 0);  // -1: off
    valid = sampling::validate(params, vocab_size);
  }
  if (!valid.has_value()) {
    return fail(ErrorCode::kCorruptData, "{}: {}; --generation-config none leaves it out",
                given.source, valid.error().message);
  }
  if (given.max_tokens.has_value()) {
    out.max_tokens = static_cast<std::int32_t>(max_tokens);
  }
  if (!out.text.empty()) {
    out.text += fmt::format(" ({})", given.source);
  }
  return out;
}

}  // namespace

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kDraining:
      return "draining";
    case ModelState::kFailed:
      return "failed";
  }
  return "unloaded";
}

struct ModelHost::Impl {
  struct Entry {
    ModelSpec spec;
    ModelState state = ModelState::kUnloaded;
    bool stopped = false;  // by an admin: not loaded on demand
    std::string error;
    std::shared_ptr<ServedModel> model;
    std::int32_t num_leases = 0;
    std::int64_t loaded_unix_s = 0;   // of the last load, kept while it is away
    std::int32_t context_tokens = 0;  // the same
    Clock::time_point idle_since = Clock::now();
    std::vector<OnModel> waiters;
  };

  struct Task {
    bool load = false;
    bool stop = false;  // an unload that an admin asked for
    std::string id;
    Done done;
  };

  ModelHostOptions options;
  WorkerPool* answers = nullptr;
  Metrics* metrics = nullptr;
  StepGate gate;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Entry>> entries;  // in order of arrival; never removed
  std::deque<Task> tasks;
  bool stopping = false;
  std::thread thread;

  Entry* find(const std::string& id) {
    for (const auto& entry : entries) {
      if (entry->spec.id == id) {
        return entry.get();
      }
    }
    return nullptr;
  }

  // With the mutex held. The lease's end is seen by the loader.
  Lease lease(Entry& entry) {
    ++entry.num_leases;
    ServedModel* model = entry.model.get();
    return {model, [this, at = &entry](const ServedModel* /*model*/) {
              const std::unique_lock lock(mutex);
              --at->num_leases;
              at->idle_since = Clock::now();
              // With the mutex held: who waits for the last lease may then end this object.
              changed.notify_all();
            }};
  }

  std::int64_t loaded_bytes() const {
    std::int64_t sum = 0;
    for (const auto& entry : entries) {
      if (entry->model != nullptr) {
        sum += entry->model->weight_bytes + entry->model->kv_bytes;
      }
    }
    return sum;
  }

  void run();
  void sweep();
  Status do_load(Entry& entry);
  Result<std::shared_ptr<ServedModel>> open(const ModelSpec& spec);
  Status make_room(std::int64_t bytes, const Entry& entry);
  Status do_unload(Entry& entry, bool stop);
};

Result<std::shared_ptr<ServedModel>> ModelHost::Impl::open(const ModelSpec& spec) {
  auto out = std::make_shared<ServedModel>();
  out->spec = spec;
  TRINE_TRY_ASSIGN(out->bundle, ModelBundle::load(spec.path, options.load));
  const ModelText& text = *out->bundle.text;
  TRINE_TRY_ASSIGN(out->tokenizer, text.tokenizer());
  if (options.generation_config) {
    TRINE_TRY_ASSIGN(out->defaults,
                     request_defaults(text.generation(), out->bundle.model->config().vocab_size));
  }
  EngineOptions engine_options = options.engine;
  engine_options.eos_ids = end_ids(text, out->bundle.model->config());
  engine_options.weight_bytes_per_step = out->bundle.weight_bytes_per_step;
  TRINE_TRY_ASSIGN(auto engine, Engine::create(out->bundle.model, out->tokenizer, engine_options));
  out->weight_bytes = bytes_of(spec.path);
  out->kv_bytes = engine->metrics().kv_bytes;
  out->grammars = std::make_unique<grammar::GrammarCache>(
      grammar::TokenTrie::build(*out->tokenizer), kGrammarCacheBytes);
  if (const auto chat = text.chat_template(true); chat.has_value()) {
    out->tool_family = openai::detect_tool_family({.chat_template = chat->get(),
                                                   .bos_token = text.bos_token(),
                                                   .eos_token = text.eos_token(),
                                                   .now_unix_s = std::time(nullptr)});
  }
  out->loaded_unix_s = std::time(nullptr);
  out->engine =
      std::make_unique<EngineThread>(std::move(engine), *answers, metrics->model(spec.id), gate);
  return out;
}

// Unloads idle models, the longest unused first, until `bytes` more fit the budget.
Status ModelHost::Impl::make_room(std::int64_t bytes, const Entry& entry) {
  const std::int64_t budget = options.memory_budget_bytes;
  while (budget > 0) {
    Entry* victim = nullptr;
    std::int64_t used = 0;
    {
      const std::unique_lock lock(mutex);
      used = loaded_bytes();
      for (const auto& other : entries) {
        if (other.get() != &entry && other->state == ModelState::kReady && other->num_leases == 0 &&
            (victim == nullptr || other->idle_since < victim->idle_since)) {
          victim = other.get();
        }
      }
    }
    if (used + bytes <= budget) {
      break;
    }
    if (victim == nullptr) {
      return fail(ErrorCode::kExhausted,
                  "{} bytes are needed, {} of the budget of {} are in use and no other model is "
                  "idle; raise --memory-budget or lower --kv-tokens",
                  bytes, used, budget);
    }
    log::info("model {} gives way to {}", victim->spec.id, entry.spec.id);
    TRINE_TRY(do_unload(*victim, false));
  }
  return {};
}

Status ModelHost::Impl::do_load(Entry& entry) {
  {
    const std::unique_lock lock(mutex);
    entry.stopped = false;
    if (entry.model != nullptr) {
      return {};
    }
    entry.state = ModelState::kLoading;
  }
  Status status = make_room(bytes_of(entry.spec.path), entry);
  std::shared_ptr<ServedModel> model;
  if (status.has_value()) {
    Result<std::shared_ptr<ServedModel>> opened = open(entry.spec);
    if (opened.has_value()) {
      model = *std::move(opened);
      // The size of the cache is known only now.
      status = make_room(model->weight_bytes + model->kv_bytes, entry);
    } else {
      status = tl::unexpected(std::move(opened).error());
    }
  }
  std::vector<std::pair<OnModel, openai::ApiResult<Lease>>> calls;
  {
    const std::unique_lock lock(mutex);
    entry.idle_since = Clock::now();
    if (status.has_value()) {
      entry.model = model;
      entry.state = ModelState::kReady;
      entry.error.clear();
      entry.loaded_unix_s = model->loaded_unix_s;
      entry.context_tokens = model->engine->context_tokens();
    } else {
      entry.state = ModelState::kFailed;
      entry.error = status.error().message;
    }
    for (OnModel& waiter : entry.waiters) {
      if (status.has_value()) {
        calls.emplace_back(std::move(waiter), lease(entry));
      } else {
        calls.emplace_back(
            std::move(waiter),
            tl::unexpected(unavailable(
                // Why is for the log and for GET /admin/models: it names paths of this machine.
                fmt::format("model {} could not be loaded; the server's log says why",
                            entry.spec.id),
                "model_failed")));
      }
    }
    entry.waiters.clear();
  }
  for (auto& [waiter, result] : calls) {
    waiter(std::move(result));
  }
  return status;
}

Status ModelHost::Impl::do_unload(Entry& entry, bool stop) {
  std::shared_ptr<ServedModel> model;
  std::vector<OnModel> refused;
  {
    std::unique_lock lock(mutex);
    if (entry.model == nullptr) {  // as it should be: only the word that it stays so is new
      entry.stopped = entry.stopped || stop;
      entry.state = stop ? ModelState::kUnloaded : entry.state;
      return {};
    }
    entry.state = ModelState::kDraining;
    entry.stopped = stop;
    const auto free = [&] { return entry.num_leases == 0; };
    if (!changed.wait_for(lock, seconds(options.drain_timeout_s), free)) {
      entry.model->engine->abort_all(
          unavailable(fmt::format("model {} is being unloaded", entry.spec.id), "unloaded"));
      // Each of them ends at the next step.
      changed.wait(lock, free);
    }
    model = std::move(entry.model);
    entry.model = nullptr;
    entry.state = ModelState::kUnloaded;
    if (stop) {
      refused.swap(entry.waiters);
    } else if (!entry.waiters.empty()) {  // asked for while it was on its way out
      entry.state = ModelState::kLoading;
      tasks.push_back({.load = true, .stop = false, .id = entry.spec.id, .done = {}});
    }
  }
  model.reset();  // ends the engine's thread and frees its memory
  for (const OnModel& waiter : refused) {
    waiter(tl::unexpected(
        unavailable(fmt::format("model {} is unloaded", entry.spec.id), "model_unloaded")));
  }
  return {};
}

// Models that nobody asked for during their keep-alive time go.
void ModelHost::Impl::sweep() {
  const std::unique_lock lock(mutex);
  for (const auto& entry : entries) {
    if (options.keep_alive_s > 0.0 && entry->state == ModelState::kReady &&
        entry->num_leases == 0 &&
        Clock::now() - entry->idle_since > seconds(options.keep_alive_s)) {
      entry->state = ModelState::kDraining;
      tasks.push_back({.load = false, .stop = false, .id = entry->spec.id, .done = {}});
    }
  }
}

void ModelHost::Impl::run() {
  for (;;) {
    Task task;
    Entry* entry = nullptr;
    {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, kSweep, [this] { return stopping || !tasks.empty(); });
      if (stopping) {
        return;
      }
      if (!tasks.empty()) {
        task = std::move(tasks.front());
        tasks.pop_front();
        entry = find(task.id);
      }
    }
    if (entry == nullptr) {
      sweep();
      continue;
    }
    Status done = task.load ? do_load(*entry) : do_unload(*entry, task.stop);
    if (!done.has_value()) {
      done = tl::unexpected(std::move(done).error().with_context("model " + task.id));
      log::error("{}", done.error().message);
    }
    if (task.done) {
      task.done(done);
    }
  }
}

ModelHost::ModelHost(ModelHostOptions options, WorkerPool& answers, Metrics& metrics)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->answers = &answers;
  impl_->metrics = &metrics;
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

ModelHost::~ModelHost() {
  {
    const std::unique_lock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
  for (const auto& entry : impl_->entries) {
    entry->model.reset();  // its answers are ended with an error
  }
  // Jobs give their leases back on the answers thread.
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] {
    return std::all_of(impl_->entries.begin(), impl_->entries.end(),
                       [](const auto& entry) { return entry->num_leases == 0; });
  });
}

void ModelHost::load(ModelSpec spec, Done done) {
  {
    const std::unique_lock lock(impl_->mutex);
    const std::string id = spec.id;
    if (impl_->find(id) == nullptr) {
      impl_->entries.push_back(std::make_unique<Impl::Entry>());
      impl_->entries.back()->spec = std::move(spec);
      impl_->entries.back()->state = ModelState::kLoading;
    }
    impl_->tasks.push_back({.load = true, .stop = false, .id = id, .done = std::move(done)});
  }
  impl_->changed.notify_all();
}

void ModelHost::load_by_name(const std::string& name, Done done) {
  {
    const std::unique_lock lock(impl_->mutex);
    if (const Impl::Entry* entry = impl_->find(name); entry != nullptr) {
      impl_->tasks.push_back({.load = true, .stop = false, .id = name, .done = std::move(done)});
      impl_->changed.notify_all();
      return;
    }
  }
  Result<std::string> path = impl_->options.resolve
                                 ? impl_->options.resolve(name)
                                 : Result<std::string>(fail(ErrorCode::kNotFound, "no such model"));
  if (!path.has_value()) {
    done(tl::unexpected(std::move(path).error()));
    return;
  }
  load({.id = name, .path = *std::move(path)}, std::move(done));
}

void ModelHost::unload(const std::string& id, Done done) {
  {
    const std::unique_lock lock(impl_->mutex);
    Impl::Entry* entry = impl_->find(id);
    if (entry != nullptr) {
      if (entry->state == ModelState::kReady) {
        entry->state = ModelState::kDraining;  // from now on, not when its turn comes
        entry->stopped = true;
      }
      impl_->tasks.push_back({.load = false, .stop = true, .id = id, .done = std::move(done)});
      impl_->changed.notify_all();
      return;
    }
  }
  done(fail(ErrorCode::kNotFound, "model {} is not served here", printable(id)));
}

void ModelHost::acquire(const std::string& id, OnModel on_model) {
  openai::ApiResult<Lease> result = Lease();
  {
    const std::unique_lock lock(impl_->mutex);
    Impl::Entry* entry =
        id.empty() && !impl_->entries.empty() ? impl_->entries.front().get() : impl_->find(id);
    if (entry == nullptr) {
      result = tl::unexpected(openai::model_not_found(id));
    } else if (entry->state == ModelState::kReady) {
      result = impl_->lease(*entry);
    } else if (entry->stopped) {
      result = tl::unexpected(
          unavailable(fmt::format("model {} is {}", entry->spec.id, model_state_name(entry->state)),
                      "model_unloaded"));
    } else if (entry->waiters.size() >= kMostWaiters) {
      result = tl::unexpected(
          unavailable(fmt::format("model {} is being loaded and {} requests wait for it already",
                                  entry->spec.id, kMostWaiters),
                      "model_loading"));
    } else {
      entry->waiters.push_back(std::move(on_model));
      // One that only makes room or was long unused is loaded again when it is gone.
      if (entry->state != ModelState::kLoading && entry->state != ModelState::kDraining) {
        entry->state = ModelState::kLoading;
        impl_->tasks.push_back({.load = true, .stop = false, .id = entry->spec.id, .done = {}});
        impl_->changed.notify_all();
      }
      return;
    }
  }
  on_model(std::move(result));
}

std::vector<ModelStatus> ModelHost::status() const {
  std::vector<ModelStatus> out;
  const std::unique_lock lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    ModelStatus& status = out.emplace_back();
    status.spec = entry->spec;
    status.state = entry->state;
    status.error = entry->error;
    status.num_leases = entry->num_leases;
    status.on_demand = !entry->stopped && entry->state != ModelState::kFailed;
    status.loaded_unix_s = entry->loaded_unix_s;
    status.context_tokens = entry->context_tokens;
    if (entry->model != nullptr) {
      status.weight_bytes = entry->model->weight_bytes;
      status.kv_bytes = entry->model->kv_bytes;
      status.defaults = entry->model->defaults.text;
      status.engine = entry->model->engine->metrics();
      status.progress = entry->model->engine->progress();
      status.queue_full =
          status.engine.requests.waiting >= impl_->options.engine.max_waiting ||
          status.engine.requests.waiting_tokens >= impl_->options.engine.max_waiting_tokens;
    }
  }
  return out;
}

std::int32_t ModelHost::longest_context() const {
  std::int32_t longest = 0;
  const std::unique_lock lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    if (entry->model != nullptr) {
      longest = std::max(longest, entry->model->engine->context_tokens());
    }
  }
  return longest;
}

void ModelHost::abort_all(const openai::ApiError& error) {
  const std::unique_lock lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    if (entry->model != nullptr) {
      entry->model->engine->abort_all(error);
    }
  }
}

void ModelHost::clear_prefix_caches() {
  const std::unique_lock lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    if (entry->model != nullptr) {
      entry->model->engine->clear_prefix_cache();
    }
  }
}

}  // namespace trine::server
