// The in-process generation engine: requests in, token events out.
//
// A step is three verbs. schedule() decides which tokens of which sequences run, run() computes
// their logits and draws, commit() is the only one that changes state: lengths, histories, texts,
// finished requests. The first two can be repeated or thrown away without trace. Prompts are read
// in chunks beside the decoding of others, within a budget of tokens per step; sched/scheduler.h
// has the rules of admission and preemption. Whole pages of what was computed stay known after a
// request ends (kv/prefix_index.h) until their room is wanted. What a request answers does not
// depend on other requests, chunks, threads, page placement, cached pages or preemption
// (docs/numerics.md), only on the prompt, its parameters and its seed. Thread rule: one thread (the
// engine role) calls everything; a request's `cancel` flag may be set from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/request.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "sched/scheduler.h"
#include "text/tokenizer.h"

namespace trine {

struct EngineOptions {
  int num_threads = 0;  // 0 = one per usable core
  DType kv_dtype = DType::kF16;
  // Tokens a sequence may have. 0 = the model's, or less where its pages would take over half of
  // the memory.
  std::int32_t context_tokens = 0;
  // Tokens the page pool holds, for all sequences together. 0 = four contexts, or one for each of
  // max_sequences when those are fewer, within half of the memory.
  std::int64_t kv_tokens = 0;
  bool kv_populate = false;         // take the pool's memory at once, not when it is first used
  std::int32_t step_tokens = 512;   // budget of a step
  std::int32_t max_sequences = 64;  // answers in work at once
  bool prefix_cache = true;
  std::int32_t max_waiting = 512;             // requests in the queue
  std::int64_t max_waiting_tokens = 1 << 20;  // their prompts together
  // Time between tokens of running answers that prompts beside them should keep to. 0 = none;
  // nullopt = 2.5 times what a step takes that reads no prompt (sched/step_budget.h).
  std::optional<double> target_itl_ms = 0.0;
  // Ids that end an answer; without a value those of the tokenizer and of the model's config.
  std::optional<std::vector<std::int32_t>> eos_ids = std::nullopt;
  // Bytes of weights that one decode step reads, for the statistics. 0 = unknown.
  double weight_bytes_per_step = 0.0;
  // Milliseconds on a clock that never goes back; the system's steady clock when empty.
  std::function<double()> now_ms = {};
};

// What one step will compute. Indices refer to the engine's list of requests, which only commit()
// changes.
struct StepPlan {
  struct Item {
    std::size_t request_idx = 0;
    std::int32_t answer = 0;
    std::int32_t first = 0;  // position of the first token
    std::int32_t count = 0;
    bool wants_logits = false;  // the last known token is among them: a new one will be drawn
  };

  // One drawn token, filled by run().
  struct Draw {
    std::size_t request_idx = 0;
    std::int32_t answer = 0;
    std::int32_t token = -1;
    std::span<const float> row;  // the logits that it is drawn from, until the step ends
    sampling::Logprobs logprobs;
    std::optional<Error> error;
  };

  struct Admission {
    std::size_t request_idx = 0;
    std::int32_t cached_tokens = 0;
  };

  std::vector<Admission> admitted;
  std::vector<std::size_t> cancelled;
  std::vector<std::size_t> preempted;
  std::vector<std::size_t> expired;  // past their deadline
  std::vector<Item> items;
  std::vector<Draw> draws;  // the first num_draws are of this step
  std::size_t num_draws = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_decoding = 0;  // items of one token that feed back a drawn one
  double started_ms = 0.0;
  double finished_ms = 0.0;
  std::optional<Error> error;  // the step failed as a whole
};

// All that a metrics page shows, at one moment. Sums are since the engine's creation.
struct EngineMetrics {
  sched::Stats requests;
  std::int32_t kv_pages = 0;
  std::int32_t kv_pages_free = 0;
  std::int32_t kv_pages_cached = 0;      // that the prefix cache knows
  std::int32_t kv_pages_evictable = 0;   // of those, in use by no request
  std::int64_t kv_bytes = 0;             // of the whole pool
  std::int64_t prefix_query_tokens = 0;  // of prompts admitted with the cache on
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t prefix_evictions = 0;  // pages
  std::int64_t steps = 0;
  std::int64_t step_tokens = 0;       // computed
  std::int64_t prompt_tokens = 0;     // read, each once: computed or found in the prefix cache
  std::int64_t cached_tokens = 0;     // of those, found
  std::int64_t generated_tokens = 0;  // end tokens included
  double step_ms_last = 0.0;
  double step_ms_sum = 0.0;
  std::int64_t first_tokens = 0;  // requests that got one
  double queue_ms_sum = 0.0;      // of those
  double ttft_ms_sum = 0.0;
};

class Engine {
 public:
  // `tokenizer` may be null: then there is no text and no stop strings. Errors: invalid_argument
  // for an option, exhausted when the page pool does not fit, those of ThreadTeam::create.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const Model> model,
                                                std::shared_ptr<const text::Tokenizer> tokenizer,
                                                const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the request and puts it in the queue. Errors: invalid_argument naming the field;
  // exhausted when prompt and max_tokens pass the context or the pool, with the numbers;
  // unavailable when the queue is full: refusal() then has the numbers and when to retry.
  Result<RequestId> submit(GenerationRequest request, EventCallback on_event);
  // Ends the request at the next commit. Unknown ids (finished requests) are ignored.
  void cancel(RequestId id);

  const std::optional<sched::Refusal>& refusal() const;
  // The field that the last refused submit() is about, as the request names it; empty: none.
  std::string_view refused_field() const;
  // The next step; empty when nothing is to do.
  const StepPlan& schedule();
  // Computes it. An error of the model is kept in the plan, for commit() to report.
  void run();
  // Makes it so, and calls the events.
  void commit();
  // The three in a row. False when no request is left.
  bool step();
  // Steps until no request is left.
  void run_to_end();

  bool idle() const;
  std::int32_t context_tokens() const;
  int num_threads() const;
  PagePool& pool();
  EngineMetrics metrics() const;
  // Forgets all cached pages that no request uses.
  void clear_prefix_cache();
  // Scheduler, prefix cache and pool agree with themselves and each other; for idle checks.
  Status check_integrity() const;
  const std::vector<std::int32_t>& eos_ids() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine
