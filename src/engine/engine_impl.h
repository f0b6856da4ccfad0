// The engine's inside, shared by its .cpp files: requests in work and what a step needs.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/stop_matcher.h"
#include "kv/prefix_index.h"
#include "ops/ops.h"
#include "platform/thread_team.h"
#include "sched/scheduler.h"
#include "sched/step_budget.h"

namespace trine {

// One of a request's n answers.
struct Answer {
  explicit Answer(PagePool& pool) : kv(pool) {}

  KvSequence kv;
  sampling::TokenHistory history;
  std::uint64_t seed = 0;
  std::optional<text::StreamDecoder> decoder;
  StopMatcher stops;
  std::optional<grammar::Matcher> matcher;  // with a grammar; moved by commit() alone
  bool finished = false;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(history.tokens().size()); }
};

struct Request {
  RequestId id = 0;
  GenerationRequest params;
  EventCallback on_event;
  std::optional<sampling::LogitsPipeline> pipeline;
  std::vector<std::int32_t> stop_ids;  // all that end an answer, ascending
  std::int32_t max_tokens = 0;
  bool admitted = false;
  bool started = false;     // admitted once; a preemption does not undo it
  bool fanned_out = false;  // answers 1.. have forked the prompt
  bool cancel_asked = false;
  std::vector<Answer> answers;
  std::int32_t num_unfinished = 0;
  RequestStats stats;
  std::int32_t prompt_read = 0;  // tokens of the prompt that were read once; never less
  // What the prompt's rows gave; run() writes, and repeats itself when it is repeated.
  std::vector<sampling::Logprobs> prompt_logprobs;
  std::optional<Error> prompt_error;
  std::vector<double> pooled_next;  // sum, or the last row, after the step in work
  std::vector<double> pooled;       // the same, committed
  double submitted_ms = 0.0;
  double started_ms = 0.0;
  double first_token_ms = 0.0;

  PrefixRoot root() const { return {.tenant = params.tenant, .salt = params.cache_salt}; }

  // The prompt is read and nothing drawn.
  bool only_reads() const { return max_tokens == 0; }

  bool pools() const { return params.pooling != Pooling::kNone; }

  // Every row of the prompt is looked at, so none may come from the prefix cache.
  bool needs_whole_prompt() const {
    return stats.generated_tokens == 0 &&
           (params.prompt_logprobs.has_value() || params.pooling == Pooling::kMean);
  }

  // The answer that reads the prompt for all.
  Answer& lead() {
    std::size_t at = 0;
    while (at + 1 < answers.size() && answers[at].finished) {
      ++at;
    }
    return answers[at];
  }

  bool cancelled() const {
    return cancel_asked ||
           (params.cancel != nullptr && params.cancel->load(std::memory_order_relaxed));
  }
};

struct Engine::Impl : sched::PrefixOracle, LayerObserver {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  EngineOptions options;
  std::vector<std::int32_t> eos_ids;
  std::int32_t vocab_size = 0;
  std::unique_ptr<ThreadTeam> team;
  std::optional<ops::Context> context;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<PrefixIndex> index;  // null: no prefix cache
  std::unique_ptr<sched::Scheduler> scheduler;
  std::unique_ptr<sched::StepBudget> budget;
  std::optional<sched::Refusal> refusal;
  std::string refused_field;
  EngineMetrics totals;  // its sums
  std::unique_ptr<Model::Workspace> workspace;
  std::vector<std::unique_ptr<Request>> requests;  // in order of arrival
  RequestId next_id = 1;
  StepPlan plan;
  std::vector<Span> spans;
  std::vector<PageRef> found;
  std::vector<float> logits;
  std::vector<sampling::Scratch> scratches;  // of each member of the team
  std::vector<std::uint64_t> allowed;        // tokens, of the draw in work
  std::string text;                          // of the event in work

  double now_ms() const { return options.now_ms(); }

  Result<std::unique_ptr<Request>> make_request(GenerationRequest params, EventCallback on_event);
  Status check_request(const GenerationRequest& params);
  Status check_prompt(const GenerationRequest& params);
  Status check_ways(const GenerationRequest& params);

  std::int32_t cached_tokens(sched::JobId job) const override;
  std::size_t index_of(RequestId id) const;  // requests.size() when it is gone
  void drop_pages(Request& request);
  void take_plan(const sched::Plan& decided);
  void adopt_cached();
  Status reserve(KvSequence& kv, std::int32_t upto);
  void commit_admissions();
  void commit_items();

  // prompt_rows.cpp
  Span::Shown shown(const Request& request) const;

  void on_layer(std::int32_t /*layer*/, std::span<const Span> /*spans*/, const float* /*hidden*/,
                std::int64_t /*num_rows*/) override {}

  void on_rows(std::size_t span_idx, std::int64_t first, std::int64_t count,
               std::span<const float> hidden, std::span<const float> logits) override;
  void score_prompt(Request& request, std::int64_t position, std::span<const float> row);
  void pool_row(Request& request, std::int64_t position, std::span<const float> row);
  void commit_pooled(Request& request);
  // The end of an answer of which nothing was to be drawn.
  void commit_read(Request& request, std::int32_t answer_idx);

  Status run_forward();
  void draw_tokens();
  // The tokens that the answer's grammar, its end tokens and min_tokens leave; no words without a
  // grammar. Errors: exhausted for a work budget, unsupported when no token is left.
  Result<sampling::AllowedTokens> allowed_tokens(const Request& request, const Answer& answer);
  void plan_draws();
  void draw_one(StepPlan::Draw& draw, sampling::Scratch& scratch);

  void fan_out_if_read(Request& request);
  void commit_draw(const StepPlan::Draw& draw, bool first_of_request);
  void commit_token(Request& request, const StepPlan::Draw& draw);
  void end_answer(Request& request, std::int32_t answer_idx, FinishReason reason,
                  const Error* error, TokenEvent event);
  void end_request(Request& request, FinishReason reason, const Error* error);
};

}  // namespace trine
