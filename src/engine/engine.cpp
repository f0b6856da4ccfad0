// The step: schedule(), run(), commit().
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace trine {

std::size_t Engine::Impl::index_of(RequestId id) const {
  const auto at =
      std::lower_bound(requests.begin(), requests.end(), id,
                       [](const auto& request, RequestId wanted) { return request->id < wanted; });
  return at != requests.end() && (*at)->id == id ? static_cast<std::size_t>(at - requests.begin())
                                                 : requests.size();
}

std::int32_t Engine::Impl::cached_tokens(sched::JobId job) const {
  Request& request = *requests[index_of(job)];
  if (request.needs_whole_prompt()) {
    return 0;
  }
  return index->peek(request.root(), request.lead().history.tokens());
}

void Engine::Impl::drop_pages(Request& request) {
  for (Answer& answer : request.answers) {
    answer.kv.truncate(0);  // keeps the room of its table
  }
}

// The scheduler's ids become places in the list; what was cancelled meanwhile is left out.
void Engine::Impl::take_plan(const sched::Plan& decided) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->cancelled()) {
      plan.cancelled.push_back(i);
    }
  }
  const auto is_cancelled = [&](std::size_t i) {
    return std::binary_search(plan.cancelled.begin(), plan.cancelled.end(), i);
  };
  for (const sched::Plan::Admission& admission : decided.admitted) {
    const std::size_t i = index_of(admission.job);
    if (!is_cancelled(i)) {
      plan.admitted.push_back({.request_idx = i, .cached_tokens = admission.cached_tokens});
    }
  }
  for (const sched::Plan::Item& item : decided.items) {
    const std::size_t i = index_of(item.job);
    if (!is_cancelled(i)) {
      plan.items.push_back({.request_idx = i,
                            .answer = item.sequence,
                            .first = item.first,
                            .count = item.count,
                            .wants_logits = item.wants_logits});
      plan.num_tokens += item.count;
      plan.num_decoding += item.decoding ? 1 : 0;
    }
  }
  for (const sched::JobId id : decided.preempted) {
    plan.preempted.push_back(index_of(id));
  }
  for (const sched::JobId id : decided.expired) {
    plan.expired.push_back(index_of(id));
  }
}

const StepPlan& Engine::schedule() {
  Impl& impl = *impl_;
  StepPlan& plan = impl.plan;
  plan.admitted.clear();
  plan.cancelled.clear();
  plan.preempted.clear();
  plan.expired.clear();
  plan.items.clear();
  plan.num_draws = 0;
  plan.num_tokens = 0;
  plan.num_decoding = 0;
  plan.error.reset();
  plan.started_ms = impl.now_ms();
  for (const auto& request : impl.requests) {
    if (!request->admitted) {
      impl.drop_pages(*request);  // of a step that was run and thrown away
    }
  }
  const std::int32_t pages = impl.pool->num_free() + (impl.index ? impl.index->num_evictable() : 0);
  impl.take_plan(impl.scheduler->plan(plan.started_ms,
                                      impl.budget->tokens(impl.scheduler->num_decoding()), pages,
                                      impl.index ? &impl : nullptr));
  return plan;
}

// Before any page is evicted for this step: those found must not be among them.
void Engine::Impl::adopt_cached() {
  for (const StepPlan::Admission& admission : plan.admitted) {
    Request& request = *requests[admission.request_idx];
    Answer& lead = request.lead();
    if (lead.kv.length() == admission.cached_tokens) {
      continue;  // nothing to find, or run twice
    }
    found.clear();
    const std::int32_t tokens = index->find(
        request.root(),
        lead.history.tokens().first(static_cast<std::size_t>(admission.cached_tokens)), found);
    TRINE_CHECK(tokens == admission.cached_tokens);
    lead.kv.adopt(found);
  }
  found.clear();
}

Status Engine::Impl::reserve(KvSequence& kv, std::int32_t upto) {
  if (index) {
    // One page more for a copy of a shared one.
    const std::int32_t wanted =
        (upto + kPageTokens - 1) / kPageTokens - static_cast<std::int32_t>(kv.pages().size()) + 1;
    if (wanted > pool->num_free()) {
      (void)index->evict(wanted - pool->num_free());
    }
  }
  return kv.reserve(upto);
}

Status Engine::Impl::run_forward() {
  adopt_cached();
  spans.clear();
  bool any_shown = false;
  for (const StepPlan::Item& item : plan.items) {
    const Request& request = *requests[item.request_idx];
    Answer& answer = requests[item.request_idx]->answers[static_cast<std::size_t>(item.answer)];
    TRINE_TRY(reserve(answer.kv, item.first + item.count));
    spans.push_back(
        {.sequence = &answer.kv,
         .tokens = answer.history.tokens().subspan(static_cast<std::size_t>(item.first),
                                                   static_cast<std::size_t>(item.count)),
         .parents = {},
         .logits =
             item.wants_logits && !request.only_reads() ? Span::Logits::kLast : Span::Logits::kNone,
         .shown = shown(request)});
    any_shown = any_shown || spans.back().shown != Span::Shown::kNone;
  }
  TRINE_CHECK(context.has_value());
  return model->forward(*context, spans, *workspace, logits, any_shown ? this : nullptr);
}

// Which draws the step has, and of what.
void Engine::Impl::plan_draws() {
  const auto width = static_cast<std::size_t>(vocab_size);
  std::size_t row = 0;
  const auto add = [&](std::size_t request_idx, std::int32_t answer,
                       std::span<const float> values) {
    if (plan.num_draws == plan.draws.size()) {
      plan.draws.emplace_back();
    }
    StepPlan::Draw& draw = plan.draws[plan.num_draws++];
    draw.request_idx = request_idx;
    draw.answer = answer;
    draw.token = -1;
    draw.row = values;
    draw.error.reset();
  };
  for (const StepPlan::Item& item : plan.items) {
    if (!item.wants_logits) {
      continue;
    }
    const Request& request = *requests[item.request_idx];
    std::span<const float> values;
    if (!request.only_reads()) {
      TRINE_CHECK((row + 1) * width <= logits.size());
      values = std::span<const float>(logits).subspan(row * width, width);
      ++row;
    }
    const Answer& answer = request.answers[static_cast<std::size_t>(item.answer)];
    if (answer.history.num_output() > 0) {
      add(item.request_idx, item.answer, values);
      continue;
    }
    for (std::int32_t a = 0; a < request.params.n;
         ++a) {  // the prompt is read: every answer starts here
      add(item.request_idx, a, values);
    }
  }
}

void Engine::Impl::draw_one(StepPlan::Draw& draw, sampling::Scratch& scratch) {
  const Request& request = *requests[draw.request_idx];
  const Answer& answer = request.answers[static_cast<std::size_t>(draw.answer)];
  TRINE_CHECK(request.pipeline.has_value());
  if (request.prompt_error || request.only_reads()) {
    draw.error = request.prompt_error;
    return;
  }
  const Result<sampling::AllowedTokens> possible = allowed_tokens(request, answer);
  if (!possible.has_value()) {
    draw.error = possible.error();
    return;
  }
  const Result<std::int32_t> token = sampling::sample(*request.pipeline, draw.row, answer.history,
                                                      answer.seed, scratch, *possible);
  if (!token.has_value()) {
    draw.error = token.error();
    return;
  }
  draw.token = *token;
  if (request.params.sampling.logprobs) {
    sampling::raw_logprobs(draw.row, draw.token, *request.params.sampling.logprobs, scratch,
                           draw.logprobs);
  }
}

// Draws know nothing of each other, so the team shares them. Grammars have one buffer of masks and
// are for this thread only.
void Engine::Impl::draw_tokens() {
  plan_draws();
  const auto has_grammar = [this](const StepPlan::Draw& draw) {
    const Request& request = *requests[draw.request_idx];
    return request.answers[static_cast<std::size_t>(draw.answer)].matcher.has_value();
  };
  const std::span<StepPlan::Draw> draws = std::span(plan.draws).first(plan.num_draws);
  const auto free = std::count_if(draws.begin(), draws.end(),
                                  [&](const StepPlan::Draw& draw) { return !has_grammar(draw); });
  const bool shared = free > 1 && team->num_threads() > 1;
  if (shared) {
    team->run([&](int thread_idx) {
      const auto members = static_cast<std::size_t>(team->num_threads());
      for (auto i = static_cast<std::size_t>(thread_idx); i < draws.size(); i += members) {
        if (!has_grammar(draws[i])) {
          draw_one(draws[i], scratches[static_cast<std::size_t>(thread_idx)]);
        }
      }
    });
  }
  for (StepPlan::Draw& draw : draws) {
    if (!shared || has_grammar(draw)) {
      draw_one(draw, scratches[0]);
    }
  }
}

void Engine::run() {
  Impl& impl = *impl_;
  impl.plan.num_draws = 0;
  if (impl.plan.items.empty()) {
    return;
  }
  Status status = impl.run_forward();
  if (!status.has_value()) {
    impl.plan.error = std::move(status).error();
    return;
  }
  impl.draw_tokens();
}

// The same rule as the scheduler's: the lead stops for the others where their tokens part.
void Engine::Impl::fan_out_if_read(Request& request) {
  Answer& lead = request.lead();
  const std::int32_t target =
      request.num_unfinished == 1 ? lead.num_tokens() : request.stats.prompt_tokens;
  if (request.fanned_out || lead.kv.length() != target) {
    return;
  }
  request.fanned_out = true;
  for (Answer& answer : request.answers) {
    if (&answer != &lead && !answer.finished) {
      answer.kv = lead.kv.fork();
      answer.kv.reserve_table(request.stats.prompt_tokens + request.max_tokens);
    }
  }
}

void Engine::Impl::end_answer(Request& request, std::int32_t answer_idx, FinishReason reason,
                              const Error* error, TokenEvent event) {
  Answer& answer = request.answers[static_cast<std::size_t>(answer_idx)];
  answer.finished = true;
  answer.kv = KvSequence(*pool);
  scheduler->finish(request.id, answer_idx);
  event.request = request.id;
  event.answer = answer_idx;
  event.finish = reason;
  event.error = error;
  if (--request.num_unfinished == 0) {
    event.stats = &request.stats;
  }
  if (request.on_event) {
    request.on_event(event);
  }
}

void Engine::Impl::end_request(Request& request, FinishReason reason, const Error* error) {
  for (std::int32_t a = 0; a < request.params.n; ++a) {
    Answer& answer = request.answers[static_cast<std::size_t>(a)];
    if (answer.finished) {
      continue;
    }
    text.clear();
    if (answer.decoder) {  // what was held back belongs to the answer
      std::string tail = answer.decoder->finish();
      answer.stops.push(tail, text);
      answer.stops.finish(text);
    }
    end_answer(request, a, reason, error, {.text = text});
  }
}

// The order of checks on a new token is the contract, so it stays in one place: stop id,
// stop string, end of the grammar, budget.
void Engine::Impl::commit_token(Request& request, const StepPlan::Draw& draw) {
  Answer& answer = request.answers[static_cast<std::size_t>(draw.answer)];
  if (draw.error) {
    const Error error = *draw.error;
    text.clear();
    end_answer(request, draw.answer, FinishReason::kError, &error, {});
    return;
  }
  const bool stop_id =
      std::binary_search(request.stop_ids.begin(), request.stop_ids.end(), draw.token);
  if (answer.matcher && !stop_id) {
    const Status taken = answer.matcher->accept(draw.token);
    if (!taken.has_value()) {
      text.clear();
      end_answer(request, draw.answer, FinishReason::kError, &taken.error(), {});
      return;
    }
  }
  const bool complete = !stop_id && answer.matcher && answer.matcher->is_complete();
  answer.history.append(draw.token);
  scheduler->add_token(request.id, draw.answer);
  ++request.stats.generated_tokens;
  ++totals.generated_tokens;
  const bool stops_count = answer.history.num_output() >= request.params.sampling.min_tokens;
  const bool last = answer.history.num_output() == request.max_tokens;
  std::optional<FinishReason> finish;
  text.clear();
  const auto show = [&](std::string_view piece) {
    if (!stops_count) {
      text += piece;
    } else if (answer.stops.push(piece, text)) {
      finish = FinishReason::kStop;
    }
  };
  if (answer.decoder) {
    if (!stop_id || request.params.include_stop) {
      Result<std::string> piece = std::string();
      // Rows past the tokenizer's ids pad the model's matrix; such a token has no text.
      if (draw.token < tokenizer->vocab_size()) {
        piece = answer.decoder->push(draw.token);
      }
      if (!piece.has_value()) {
        const Error error = std::move(piece).error();
        end_answer(request, draw.answer, FinishReason::kError, &error, {});
        return;
      }
      show(*piece);
    }
    if (!finish && (stop_id || complete || last)) {
      show(answer.decoder->finish());
    }
  }
  const std::string_view matched = finish ? answer.stops.matched() : std::string_view();
  if (!finish && (stop_id || complete)) {
    finish = FinishReason::kStop;
  } else if (!finish && last) {
    finish = FinishReason::kLength;
  }
  if (finish && matched.empty()) {
    answer.stops.finish(text);
  }
  const bool tells_prompt =
      request.params.prompt_logprobs.has_value() && request.stats.generated_tokens == 1;
  TokenEvent event{.request = request.id,
                   .answer = draw.answer,
                   .token = draw.token,
                   .text = text,
                   .logprobs = request.params.sampling.logprobs ? &draw.logprobs : nullptr,
                   .prompt_logprobs = tells_prompt ? &request.prompt_logprobs : nullptr,
                   .finish = {},
                   .matched_stop = matched};
  if (finish) {
    end_answer(request, draw.answer, *finish, nullptr, event);
  } else if (request.on_event) {
    request.on_event(event);
  }
}

void Engine::Impl::commit_draw(const StepPlan::Draw& draw, bool first_of_request) {
  Request& request = *requests[draw.request_idx];
  RequestStats& stats = request.stats;
  if (request.only_reads() && !draw.error) {
    commit_read(request, draw.answer);
    return;
  }
  if (stats.generated_tokens == 0) {
    request.first_token_ms = plan.finished_ms;
    stats.ttft_ms = plan.finished_ms - request.submitted_ms;
    stats.prefill_ms = plan.finished_ms - request.started_ms;
    ++totals.first_tokens;
    totals.queue_ms_sum += stats.queue_ms;
    totals.ttft_ms_sum += stats.ttft_ms;
  } else if (first_of_request) {
    ++stats.decode_steps;
    stats.decode_ms = plan.finished_ms - request.first_token_ms;
  }
  commit_token(request, draw);
}

void Engine::Impl::commit_admissions() {
  for (const StepPlan::Admission& admission : plan.admitted) {
    Request& request = *requests[admission.request_idx];
    request.admitted = true;
    if (request.started) {
      continue;
    }
    request.started = true;
    request.started_ms = plan.started_ms;
    request.stats.queue_ms = plan.started_ms - request.submitted_ms;
    request.stats.cached_tokens = admission.cached_tokens;
    request.prompt_read = admission.cached_tokens;
    totals.prompt_tokens += admission.cached_tokens;
    totals.cached_tokens += admission.cached_tokens;
    totals.prefix_query_tokens += index ? request.stats.prompt_tokens : 0;
    totals.prefix_hit_tokens += admission.cached_tokens;
  }
}

void Engine::Impl::commit_items() {
  for (const StepPlan::Item& item : plan.items) {
    Request& request = *requests[item.request_idx];
    Answer& answer = request.answers[static_cast<std::size_t>(item.answer)];
    answer.kv.commit(item.count);
    const std::int32_t read = std::min(item.first + item.count, request.stats.prompt_tokens);
    totals.prompt_tokens += std::max(read - request.prompt_read, 0);
    request.prompt_read = std::max(request.prompt_read, read);
    if (request.pools()) {
      request.pooled = request.pooled_next;
    }
    if (index && item.first / kPageTokens != (item.first + item.count) / kPageTokens) {
      index->publish(request.root(),
                     answer.history.tokens().first(static_cast<std::size_t>(answer.kv.length())),
                     answer.kv.pages());
    }
    fan_out_if_read(request);
  }
}

void Engine::commit() {
  Impl& impl = *impl_;
  StepPlan& plan = impl.plan;
  plan.finished_ms = impl.now_ms();
  const double step_ms = plan.finished_ms - plan.started_ms;
  impl.commit_admissions();
  if (!plan.error) {
    impl.commit_items();
  }
  impl.scheduler->commit(step_ms);
  if (!plan.items.empty()) {
    impl.budget->observe(plan.num_tokens, plan.num_decoding, step_ms);
    ++impl.totals.steps;
    impl.totals.step_tokens += plan.num_tokens;
    impl.totals.step_ms_last = step_ms;
    impl.totals.step_ms_sum += step_ms;
  }
  for (const std::size_t i : plan.preempted) {
    Request& request = *impl.requests[i];
    request.admitted = false;
    request.fanned_out = false;
    ++request.stats.num_preemptions;
    impl.drop_pages(request);
  }
  if (plan.error) {
    for (const StepPlan::Item& item : plan.items) {
      impl.end_request(*impl.requests[item.request_idx], FinishReason::kError, &*plan.error);
    }
  }
  // Draws of one request stand together.
  for (std::size_t i = 0; i < plan.num_draws; ++i) {
    impl.commit_draw(plan.draws[i],
                     i == 0 || plan.draws[i].request_idx != plan.draws[i - 1].request_idx);
  }
  for (const std::size_t i : plan.cancelled) {
    impl.end_request(*impl.requests[i], FinishReason::kCancelled, nullptr);
  }
  for (const std::size_t i : plan.expired) {
    Request& request = *impl.requests[i];
    const Error error(ErrorCode::kCancelled,
                      fmt::format("timeout_ms is {}, and {:.0f} ms have passed since submit",
                                  request.params.timeout_ms.value_or(0.0),
                                  plan.finished_ms - request.submitted_ms));
    impl.end_request(request, FinishReason::kError, &error);
  }
  std::erase_if(impl.requests, [](const auto& request) { return request->num_unfinished == 0; });
  plan.items.clear();  // committing twice would do nothing
  plan.admitted.clear();
  plan.cancelled.clear();
  plan.preempted.clear();
  plan.expired.clear();
  plan.num_draws = 0;
  plan.error.reset();
}

bool Engine::step() {
  schedule();
  run();
  commit();
  return !idle();
}

void Engine::run_to_end() {
  while (step()) {
  }
}

}  // namespace trine
