// Creation of the engine and the way of a request into its queue.
#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "platform/cpu.h"
#include "platform/memory.h"

namespace trine {

using namespace std::string_literals;  // NOLINT(google-build-using-namespace)

namespace {

std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

double steady_now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status check_options(const EngineOptions& options, std::int32_t model_context) {
  if (options.context_tokens < 0 || options.context_tokens > model_context) {
    return fail(ErrorCode::kInvalidArgument,
                "context_tokens is {}, must be in [0, {}] (the model's context)",
                options.context_tokens, model_context);
  }
  if (options.kv_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument, "kv_tokens is {}, must be at least 0",
                options.kv_tokens);
  }
  if (options.step_tokens < 1) {
    return fail(ErrorCode::kInvalidArgument, "step_tokens is {}, must be at least 1",
                options.step_tokens);
  }
  if (options.max_waiting < 1) {
    return fail(ErrorCode::kInvalidArgument, "max_waiting is {}, must be at least 1",
                options.max_waiting);
  }
  if (options.max_waiting_tokens < 1) {
    return fail(ErrorCode::kInvalidArgument, "max_waiting_tokens is {}, must be at least 1",
                options.max_waiting_tokens);
  }
  if (const double target = options.target_itl_ms.value_or(0.0); !(target >= 0.0)) {
    return fail(ErrorCode::kInvalidArgument, "target_itl_ms is {}, must be at least 0", target);
  }
  if (options.max_sequences < 1) {
    return fail(ErrorCode::kInvalidArgument, "max_sequences is {}, must be at least 1",
                options.max_sequences);
  }
  return {};
}

// Fills in the sizes that were left to us.
Status choose_sizes(const KvGeometry& geometry, std::int32_t model_context,
                    EngineOptions& options) {
  const auto page_bytes = geometry.checked_page_bytes();
  if (!page_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                "kv_dtype {} cannot hold keys and values of {} and {} dimensions; F32, F16, BF16 "
                "can, and I8 up to {} dimensions",
                dtype_info(geometry.dtype).name, geometry.head_dim_k, geometry.head_dim_v,
                kMaxCodeDim);
  }
  const std::int64_t half_memory = physical_memory_bytes() / 2;
  const std::int64_t fitting = std::max<std::int64_t>(half_memory / *page_bytes, 1) * kPageTokens;
  if (options.context_tokens == 0) {
    const std::int64_t pool = options.kv_tokens > 0 ? options.kv_tokens : fitting;
    options.context_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(model_context, pool));
  }
  if (options.kv_tokens == 0) {
    options.kv_tokens = std::max<std::int64_t>(
        options.context_tokens,
        std::min<std::int64_t>(
            std::min(4, options.max_sequences) * std::int64_t{options.context_tokens}, fitting));
  }
  if (pages_for(options.kv_tokens) > std::numeric_limits<std::int32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument, "kv_tokens is {}, must be at most {}",
                options.kv_tokens,
                std::int64_t{std::numeric_limits<std::int32_t>::max()} * kPageTokens);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const Model> model,
                                               std::shared_ptr<const text::Tokenizer> tokenizer,
                                               const EngineOptions& options) {
  TRINE_CHECK(model != nullptr);
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (!impl->options.now_ms) {
    impl->options.now_ms = steady_now_ms;
  }
  const ModelConfig& config = model->config();
  TRINE_TRY(check_options(options, config.context_length));
  const KvGeometry geometry = model->kv_geometry(options.kv_dtype);
  TRINE_TRY(choose_sizes(geometry, config.context_length, impl->options));
  impl->vocab_size = config.vocab_size;
  if (options.eos_ids) {
    impl->eos_ids = *options.eos_ids;
  } else {
    impl->eos_ids = config.eos_ids;
    if (tokenizer != nullptr) {
      const auto ids = tokenizer->stop_ids();
      impl->eos_ids.insert(impl->eos_ids.end(), ids.begin(), ids.end());
    }
  }
  std::sort(impl->eos_ids.begin(), impl->eos_ids.end());
  impl->eos_ids.erase(std::unique(impl->eos_ids.begin(), impl->eos_ids.end()), impl->eos_ids.end());
  TRINE_TRY_ASSIGN(impl->team, ThreadTeam::create(options.num_threads));
  impl->context.emplace(*impl->team);
  impl->scratches.resize(static_cast<std::size_t>(impl->team->num_threads()));
  for (sampling::Scratch& scratch : impl->scratches) {
    scratch.reserve(static_cast<std::size_t>(config.vocab_size));
  }
  TRINE_TRY_ASSIGN(
      impl->pool,
      PagePool::create(geometry, static_cast<std::int32_t>(pages_for(impl->options.kv_tokens))));
  if (options.kv_populate) {
    TRINE_TRY(impl->pool->populate());
  }
  log::debug(
      "engine: kernels {}, {} threads, context of {} tokens, kv cache in {} of {} pages of {} "
      "tokens, {} bytes at most, {} end tokens",
      isa_level_name(isa_level()), impl->team->num_threads(), impl->options.context_tokens,
      dtype_info(geometry.dtype).name, impl->pool->num_pages(), kPageTokens,
      std::int64_t{impl->pool->num_pages()} * geometry.checked_page_bytes().value_or(0),
      impl->eos_ids.size());
  if (options.prefix_cache) {
    PrefixIndex::Options index_options;
    for (std::uint64_t& part : index_options.key) {
      TRINE_TRY_ASSIGN(part, sampling::random_seed());
    }
    impl->index = std::make_unique<PrefixIndex>(*impl->pool, index_options);
  }
  impl->scheduler = std::make_unique<sched::Scheduler>(
      sched::Limits{.num_pages = impl->pool->num_pages(),
                    .max_sequences = options.max_sequences,
                    .max_waiting = options.max_waiting,
                    .max_waiting_tokens = options.max_waiting_tokens});
  impl->budget = std::make_unique<sched::StepBudget>(options.step_tokens, options.max_sequences,
                                                     options.target_itl_ms);
  impl->workspace = model->make_workspace();
  impl->model = std::move(model);
  impl->tokenizer = std::move(tokenizer);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() = default;

std::int32_t Engine::context_tokens() const {
  return impl_->options.context_tokens;
}

int Engine::num_threads() const {
  return impl_->team->num_threads();
}

PagePool& Engine::pool() {
  return *impl_->pool;
}

const std::vector<std::int32_t>& Engine::eos_ids() const {
  return impl_->eos_ids;
}

std::string_view Engine::refused_field() const {
  return impl_->refused_field;
}

const std::optional<sched::Refusal>& Engine::refusal() const {
  return impl_->refusal;
}

EngineMetrics Engine::metrics() const {
  EngineMetrics out = impl_->totals;
  out.requests = impl_->scheduler->stats();
  out.kv_pages = impl_->pool->num_pages();
  out.kv_pages_free = impl_->pool->num_free();
  out.kv_bytes = std::int64_t{out.kv_pages} * impl_->pool->geometry().page_bytes();
  if (impl_->index) {
    out.kv_pages_cached = impl_->index->num_pages();
    out.kv_pages_evictable = impl_->index->num_evictable();
    out.prefix_evictions = impl_->index->stats().evicted;
  }
  return out;
}

void Engine::clear_prefix_cache() {
  if (impl_->index) {
    impl_->index->clear();
  }
}

Status Engine::check_integrity() const {
  TRINE_TRY(impl_->pool->check_integrity());
  TRINE_TRY(impl_->scheduler->check_integrity());
  if (impl_->index) {
    TRINE_TRY(impl_->index->check_integrity());
  }
  const EngineMetrics now = metrics();
  if (idle() && (now.kv_pages_free + now.kv_pages_evictable != now.kv_pages ||
                 now.requests.running + now.requests.waiting != 0)) {
    return fail(ErrorCode::kInternal,
                "engine: idle, but {} of {} pages are free or cached, {} requests are scheduled",
                now.kv_pages_free + now.kv_pages_evictable, now.kv_pages,
                now.requests.running + now.requests.waiting);
  }
  return {};
}

bool Engine::idle() const {
  return impl_->requests.empty();
}

// Tokens of the vocabulary, and as many as the context has room for.
Status Engine::Impl::check_prompt(const GenerationRequest& params) {
  refused_field = params.names.prompt;
  if (params.prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} has no tokens, at least one needed",
                refused_field);
  }
  for (std::size_t i = 0; i < params.prompt.size(); ++i) {
    if (params.prompt[i] < 0 || params.prompt[i] >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}: token {} at position {} is not in the vocabulary [0, {})", refused_field,
                  params.prompt[i], i, vocab_size);
    }
  }
  const auto prompt_tokens = static_cast<std::int64_t>(params.prompt.size());
  const bool only_reads = params.max_tokens == 0 || params.pooling != Pooling::kNone;
  if (prompt_tokens + (only_reads ? 0 : 1) > options.context_tokens) {
    return fail(ErrorCode::kExhausted,
                "{} has {} tokens{}, the context holds {}; shorten it or raise the context",
                refused_field, prompt_tokens, only_reads ? "" : " and an answer needs one",
                options.context_tokens);
  }
  const std::int64_t max_tokens = only_reads ? 0 : params.max_tokens.value_or(1);
  refused_field = params.names.max_tokens;
  if (max_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument, "{} is {}, must be at least 0", refused_field,
                max_tokens);
  }
  if (prompt_tokens + max_tokens > options.context_tokens) {
    return fail(ErrorCode::kExhausted,
                "{} prompt tokens and {} {} need {} tokens, the context holds {}; lower {}, "
                "shorten the prompt or raise the context",
                prompt_tokens, max_tokens, refused_field, prompt_tokens + max_tokens,
                options.context_tokens, refused_field);
  }
  return {};
}

Status Engine::Impl::check_request(const GenerationRequest& params) {
  TRINE_TRY(check_prompt(params));
  refused_field = "n"s;
  if (params.n < 1 || params.n > options.max_sequences) {
    return fail(ErrorCode::kInvalidArgument, "n is {}, must be in [1, {}]", params.n,
                options.max_sequences);
  }
  refused_field = "timeout_ms"s;
  if (params.timeout_ms && !(*params.timeout_ms > 0.0)) {
    return fail(ErrorCode::kInvalidArgument, "timeout_ms is {}, must be above 0",
                *params.timeout_ms);
  }
  refused_field = "min_tokens"s;
  if (params.max_tokens && params.sampling.min_tokens > *params.max_tokens) {
    return fail(ErrorCode::kInvalidArgument, "min_tokens is {}, must be at most {} ({})",
                params.sampling.min_tokens, params.names.max_tokens, *params.max_tokens);
  }
  refused_field = params.names.stop_ids;
  for (const std::int32_t id : params.stop_ids) {
    if (id < 0 || id >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument, "{}: token {} is not in the vocabulary [0, {})",
                  refused_field, id, vocab_size);
    }
  }
  refused_field = "stop"s;
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    if (params.stop[i].empty()) {
      return fail(ErrorCode::kInvalidArgument, "stop[{}] is empty, at least one character needed",
                  i);
    }
  }
  if (!params.stop.empty() && tokenizer == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "stop: this model has no tokenizer, so it has no text to stop at");
  }
  return check_ways(params);
}

// Grammar, log-probabilities of the prompt, pooling.
Status Engine::Impl::check_ways(const GenerationRequest& params) {
  refused_field = "grammar"s;
  if (params.grammar != nullptr) {
    if (tokenizer == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  "grammar: this model has no tokenizer, so it has no text to hold to one");
    }
    const std::int32_t bound = params.grammar->vocabulary().vocab_size();
    if (bound != tokenizer->vocab_size()) {
      return fail(ErrorCode::kInvalidArgument,
                  "grammar: bound to a vocabulary of {} tokens, this model's tokenizer has {}",
                  bound, tokenizer->vocab_size());
    }
  }
  refused_field = "prompt_logprobs"s;
  if (params.prompt_logprobs) {
    // What an answer holds of them at once.
    constexpr std::int64_t kMostEntries = 4 << 20;
    const auto prompt_tokens = static_cast<std::int64_t>(params.prompt.size());
    const std::int64_t entries = prompt_tokens * (std::int64_t{*params.prompt_logprobs} + 1);
    if (*params.prompt_logprobs < 0 || entries > kMostEntries) {
      return fail(ErrorCode::kExhausted,
                  "prompt_logprobs: {} alternatives for each of {} prompt tokens make {} entries, "
                  "at most {}; ask for fewer or shorten the prompt",
                  *params.prompt_logprobs, prompt_tokens, entries, kMostEntries);
    }
  }
  refused_field = "pooling"s;
  if (params.pooling != Pooling::kNone &&
      (params.n != 1 || params.prompt_logprobs || params.grammar != nullptr)) {
    return fail(ErrorCode::kInvalidArgument,
                "pooling: nothing is drawn, so n must be 1, and there is no grammar and no "
                "prompt_logprobs");
  }
  refused_field.clear();
  return {};
}

Result<std::unique_ptr<Request>> Engine::Impl::make_request(GenerationRequest params,
                                                            EventCallback on_event) {
  TRINE_TRY(check_request(params));
  auto request = std::make_unique<Request>();
  request->stop_ids = params.stop_ids;
  if (!params.ignore_eos) {
    request->stop_ids.insert(request->stop_ids.end(), eos_ids.begin(), eos_ids.end());
  }
  std::sort(request->stop_ids.begin(), request->stop_ids.end());
  auto pipeline = sampling::LogitsPipeline::create(params.sampling, vocab_size, request->stop_ids);
  if (!pipeline.has_value()) {
    // Its messages begin with the field.
    const std::string_view message = pipeline.error().message;
    refused_field = message.substr(0, message.find_first_of(" :["));
    return tl::unexpected(std::move(pipeline).error());
  }
  const auto prompt_tokens = static_cast<std::int32_t>(params.prompt.size());
  request->max_tokens = params.pooling != Pooling::kNone
                            ? 0
                            : params.max_tokens.value_or(options.context_tokens - prompt_tokens);
  if (params.prompt_logprobs) {
    request->prompt_logprobs.resize(params.prompt.size());
  }
  const std::int64_t pages =
      sched::Scheduler::longest_course(prompt_tokens, request->max_tokens, params.n);
  if (pages > pool->num_pages()) {
    refused_field = params.n > 1 ? "n"s : params.names.max_tokens;
    return fail(
        ErrorCode::kExhausted,
        "{} answers of {} prompt tokens and up to {} more need {} pages of kv cache, there are {}; "
        "lower n or {}, or raise kv_tokens",
        params.n, prompt_tokens, request->max_tokens, pages, pool->num_pages(),
        params.names.max_tokens);
  }
  std::uint64_t seed = 0;
  if (params.sampling.seed) {
    seed = *params.sampling.seed;
  } else {
    TRINE_TRY_ASSIGN(seed, sampling::random_seed());
  }
  request->answers.reserve(static_cast<std::size_t>(params.n));
  for (std::int32_t i = 0; i < params.n; ++i) {
    Answer& answer = request->answers.emplace_back(*pool);
    answer.seed = seed + static_cast<std::uint64_t>(i);
    answer.history.reset(params.prompt, vocab_size, pipeline->needs_counts(), request->max_tokens);
    answer.stops = StopMatcher(params.stop, params.include_stop);
    if (params.grammar != nullptr) {
      TRINE_TRY_ASSIGN(answer.matcher, grammar::Matcher::create(params.grammar));
    }
    if (tokenizer != nullptr) {
      answer.decoder.emplace(tokenizer, params.skip_special);
      // The answer's text is what it adds to the prompt: a first token's leading space is kept. The
      // token is in the vocabulary, and its own text was the prompt's.
      (void)answer.decoder->push(params.prompt.back());
    }
  }
  request->pipeline = *std::move(pipeline);
  request->answers.front().kv.reserve_table(prompt_tokens + request->max_tokens);
  request->num_unfinished = params.n;
  request->stats = {.seed = seed,
                    .prompt_tokens = prompt_tokens,
                    .weight_bytes_per_step = options.weight_bytes_per_step,
                    .num_answers = params.n};
  request->submitted_ms = now_ms();
  request->on_event = std::move(on_event);
  request->params = std::move(params);
  return request;
}

Result<RequestId> Engine::submit(GenerationRequest params, EventCallback on_event) {
  TRINE_TRY_ASSIGN(auto request, impl_->make_request(std::move(params), std::move(on_event)));
  const std::optional<sched::Refusal> refused =
      request->params.joins_previous ? std::nullopt : impl_->scheduler->refuse();
  impl_->refusal = refused;
  if (refused) {
    const sched::Refusal& why = *refused;
    return fail(
        ErrorCode::kUnavailable,
        "the queue is full: {} requests (at most {}) with {} tokens (at most {}) wait; retry "
        "in {:.0f} s",
        why.num_waiting, why.max_waiting, why.waiting_tokens, why.max_waiting_tokens,
        why.retry_after_s);
  }
  request->id = impl_->next_id++;
  const RequestId id = request->id;
  std::optional<double> deadline_ms;
  if (const std::optional<double>& timeout_ms = request->params.timeout_ms; timeout_ms) {
    deadline_ms = request->submitted_ms + *timeout_ms;
  }
  impl_->scheduler->submit(id, {.tenant = request->params.tenant,
                                .priority = request->params.priority,
                                .deadline_ms = deadline_ms,
                                .prompt_tokens = request->stats.prompt_tokens,
                                .max_tokens = request->max_tokens,
                                .num_answers = request->params.n});
  impl_->requests.push_back(std::move(request));
  return id;
}

void Engine::cancel(RequestId id) {
  for (const auto& request : impl_->requests) {
    if (request->id == id) {
      request->cancel_asked = true;
    }
  }
}

}  // namespace trine
