// The step: schedule(), run(), commit().
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace trine {

const StepPlan& Engine::schedule() {
  Impl& impl = *impl_;
  StepPlan& plan = impl.plan;
  plan.admitted.clear();
  plan.cancelled.clear();
  plan.items.clear();
  plan.num_draws = 0;
  plan.num_tokens = 0;
  plan.error.reset();
  plan.started_ms = impl.now_ms();

  std::int64_t pages_left = impl.pool->num_pages();
  std::int32_t sequences_left = impl.options.max_sequences;
  for (const auto& request : impl.requests) {
    if (request->admitted) {
      pages_left -= request->pages;
      sequences_left -= request->params.n;
    }
  }
  bool queue_open = true;
  for (std::size_t i = 0; i < impl.requests.size(); ++i) {
    const Request& request = *impl.requests[i];
    if (request.cancelled()) {
      plan.cancelled.push_back(i);
      continue;
    }
    if (!request.admitted) {
      // In order of arrival: a small request does not overtake a large one that waits for pages.
      queue_open = queue_open && request.pages <= pages_left && request.params.n <= sequences_left;
      if (!queue_open) {
        continue;
      }
      pages_left -= request.pages;
      sequences_left -= request.params.n;
      plan.admitted.push_back(i);
    }
  }

  // Decoding sequences first, so that a long prompt delays nobody by more than its chunk; then
  // prompts. Both are the same thing: known tokens that have no keys and values yet.
  for (const bool decoding : {true, false}) {
    for (std::size_t i = 0; i < impl.requests.size(); ++i) {
      const Request& request = *impl.requests[i];
      if (request.cancelled() ||
          (!request.admitted &&
           std::find(plan.admitted.begin(), plan.admitted.end(), i) == plan.admitted.end())) {
        continue;
      }
      const std::int32_t active = request.fanned_out ? request.params.n : 1;
      for (std::int32_t a = 0; a < active; ++a) {
        const Answer& answer = request.answers[static_cast<std::size_t>(a)];
        const std::int32_t first = answer.kv.length();
        const std::int32_t unread = answer.num_tokens() - first;
        const std::int32_t count = std::min(unread, impl.options.step_tokens - plan.num_tokens);
        if (answer.finished || decoding != request.fanned_out || count <= 0) {
          continue;
        }
        plan.items.push_back({.request_idx = i,
                              .answer = a,
                              .first = first,
                              .count = count,
                              .wants_logits = count == unread});
        plan.num_tokens += count;
      }
    }
  }
  return plan;
}

Status Engine::Impl::run_forward() {
  spans.clear();
  for (const StepPlan::Item& item : plan.items) {
    Answer& answer = requests[item.request_idx]->answers[static_cast<std::size_t>(item.answer)];
    TRINE_TRY(answer.kv.reserve(item.first + item.count));
    spans.push_back(
        {.sequence = &answer.kv,
         .tokens = answer.history.tokens().subspan(static_cast<std::size_t>(item.first),
                                                   static_cast<std::size_t>(item.count)),
         .parents = {},
         .logits = item.wants_logits ? Span::Logits::kLast : Span::Logits::kNone});
  }
  TRINE_CHECK(context.has_value());
  return model->forward(*context, spans, *workspace, logits);
}

void Engine::Impl::draw_one(const Request& request, std::size_t request_idx,
                            std::int32_t answer_idx, std::span<const float> row) {
  if (plan.num_draws == plan.draws.size()) {
    plan.draws.emplace_back();
  }
  StepPlan::Draw& draw = plan.draws[plan.num_draws++];
  draw.request_idx = request_idx;
  draw.answer = answer_idx;
  draw.token = -1;
  draw.error.reset();
  const Answer& answer = request.answers[static_cast<std::size_t>(answer_idx)];
  TRINE_CHECK(request.pipeline.has_value());
  const Result<std::int32_t> token =
      sampling::sample(*request.pipeline, row, answer.history, answer.seed, scratch);
  if (!token.has_value()) {
    draw.error = token.error();
    return;
  }
  draw.token = *token;
  if (request.params.sampling.logprobs) {
    sampling::raw_logprobs(row, draw.token, *request.params.sampling.logprobs, scratch,
                           draw.logprobs);
  }
}

void Engine::Impl::draw_tokens() {
  const auto width = static_cast<std::size_t>(vocab_size);
  std::size_t row = 0;
  for (const StepPlan::Item& item : plan.items) {
    if (!item.wants_logits) {
      continue;
    }
    TRINE_CHECK((row + 1) * width <= logits.size());
    const std::span<const float> values =
        std::span<const float>(logits).subspan(row * width, width);
    ++row;
    const Request& request = *requests[item.request_idx];
    if (request.fanned_out) {
      draw_one(request, item.request_idx, item.answer, values);
      continue;
    }
    for (std::int32_t a = 0; a < request.params.n;
         ++a) {  // the prompt is read: every answer starts here
      draw_one(request, item.request_idx, a, values);
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

void Engine::Impl::fan_out(Request& request) {
  request.fanned_out = true;
  for (std::size_t a = 1; a < request.answers.size(); ++a) {
    request.answers[a].kv = request.answers.front().kv.fork();
    request.answers[a].kv.reserve_table(request.stats.prompt_tokens + request.max_tokens);
  }
}

void Engine::Impl::end_answer(Request& request, std::int32_t answer_idx, FinishReason reason,
                              const Error* error, TokenEvent event) {
  Answer& answer = request.answers[static_cast<std::size_t>(answer_idx)];
  answer.finished = true;
  answer.kv = KvSequence(*pool);
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
// stop string, budget.
void Engine::Impl::commit_token(Request& request, const StepPlan::Draw& draw) {
  Answer& answer = request.answers[static_cast<std::size_t>(draw.answer)];
  if (draw.error) {
    const Error error = *draw.error;
    text.clear();
    end_answer(request, draw.answer, FinishReason::kError, &error, {});
    return;
  }
  answer.history.append(draw.token);
  ++request.stats.generated_tokens;
  const bool stop_id =
      std::binary_search(request.stop_ids.begin(), request.stop_ids.end(), draw.token);
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
    if (!finish && (stop_id || last)) {
      show(answer.decoder->finish());
    }
  }
  const std::string_view matched = finish ? answer.stops.matched() : std::string_view();
  if (!finish && stop_id) {
    finish = FinishReason::kStop;
  } else if (!finish && last) {
    finish = FinishReason::kLength;
  }
  if (finish && matched.empty()) {
    answer.stops.finish(text);
  }
  TokenEvent event{.request = request.id,
                   .answer = draw.answer,
                   .token = draw.token,
                   .text = text,
                   .logprobs = request.params.sampling.logprobs ? &draw.logprobs : nullptr,
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
  if (stats.generated_tokens == 0) {
    request.first_token_ms = plan.finished_ms;
    stats.ttft_ms = plan.finished_ms - request.submitted_ms;
    stats.prefill_ms = plan.finished_ms - request.started_ms;
  } else if (first_of_request) {
    ++stats.decode_steps;
    stats.decode_ms = plan.finished_ms - request.first_token_ms;
  }
  commit_token(request, draw);
}

void Engine::commit() {
  Impl& impl = *impl_;
  StepPlan& plan = impl.plan;
  plan.finished_ms = impl.now_ms();
  for (const std::size_t i : plan.admitted) {
    Request& request = *impl.requests[i];
    request.admitted = true;
    request.started_ms = plan.started_ms;
    request.stats.queue_ms = plan.started_ms - request.submitted_ms;
  }
  for (const StepPlan::Item& item : plan.items) {
    Request& request = *impl.requests[item.request_idx];
    if (plan.error) {
      impl.end_request(request, FinishReason::kError, &*plan.error);
      continue;
    }
    request.answers[static_cast<std::size_t>(item.answer)].kv.commit(item.count);
    if (item.wants_logits && !request.fanned_out) {
      impl.fan_out(request);
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
  std::erase_if(impl.requests, [](const auto& request) { return request->num_unfinished == 0; });
  plan.items.clear();  // committing twice would do nothing
  plan.admitted.clear();
  plan.cancelled.clear();
  plan.num_draws = 0;
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
