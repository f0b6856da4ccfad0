// What requests want from the rows of their prompt: log-probabilities of its tokens, one vector.
#include <cmath>
#include <limits>

#include "engine/engine_impl.h"

namespace trine {

namespace {

// +infinity and NaN are no logits, and a row of -infinity is no law.
bool is_law(std::span<const float> row) {
  bool any = false;
  for (const float value : row) {
    if (!(value <= std::numeric_limits<float>::max())) {
      return false;
    }
    any = any || value >= std::numeric_limits<float>::lowest();
  }
  return any;
}

}  // namespace

Span::Shown Engine::Impl::shown(const Request& request) const {
  if (request.stats.generated_tokens > 0) {
    return Span::Shown::kNone;  // a preempted answer is read again: its prompt was told
  }
  if (request.params.prompt_logprobs) {
    return Span::Shown::kLogits;
  }
  return request.pools() ? Span::Shown::kHidden : Span::Shown::kNone;
}

void Engine::Impl::on_rows(std::size_t span_idx, std::int64_t first, std::int64_t count,
                           std::span<const float> hidden, std::span<const float> rows) {
  const StepPlan::Item& item = plan.items[span_idx];
  Request& request = *requests[item.request_idx];
  if (request.pools() && first == 0) {
    request.pooled_next = request.pooled;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = item.first + first + i;
    const auto row_of = [&](std::span<const float> all) {
      const std::size_t width = all.size() / static_cast<std::size_t>(count);
      return all.subspan(static_cast<std::size_t>(i) * width, width);
    };
    if (request.pools()) {
      pool_row(request, position, row_of(hidden));
    } else {
      score_prompt(request, position, row_of(rows));
    }
  }
}

// The row of a token says what the next one was worth.
void Engine::Impl::score_prompt(Request& request, std::int64_t position,
                                std::span<const float> row) {
  const auto next = static_cast<std::size_t>(position) + 1;
  if (next >= request.params.prompt.size() || request.prompt_error) {
    return;
  }
  if (!is_law(row)) {
    request.prompt_error =
        Error(ErrorCode::kInternal,
              fmt::format("position {}: the model gave logits that are no distribution", position));
    return;
  }
  sampling::raw_logprobs(row, request.params.prompt[next],
                         request.params.prompt_logprobs.value_or(0), scratches[0],
                         request.prompt_logprobs[next]);
}

// Sums go from the first token on, one after the other, so chunks change no bit.
void Engine::Impl::pool_row(Request& request, std::int64_t position, std::span<const float> row) {
  const bool begins = position == 0 || request.params.pooling == Pooling::kLast;
  request.pooled_next.resize(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    request.pooled_next[i] = (begins ? 0.0 : request.pooled_next[i]) + double{row[i]};
  }
}

void Engine::Impl::commit_read(Request& request, std::int32_t answer_idx) {
  if (request.pools()) {
    commit_pooled(request);
    return;
  }
  const bool tells_prompt = request.params.prompt_logprobs.has_value() &&
                            request.num_unfinished == request.params.n;  // with the first event
  end_answer(request, answer_idx, FinishReason::kLength, nullptr,
             {.text = {}, .prompt_logprobs = tells_prompt ? &request.prompt_logprobs : nullptr});
}

void Engine::Impl::commit_pooled(Request& request) {
  const double scale = request.params.pooling == Pooling::kMean
                           ? 1.0 / static_cast<double>(request.stats.prompt_tokens)
                           : 1.0;
  std::vector<float> vector;
  vector.reserve(request.pooled.size());
  for (const double value : request.pooled) {
    vector.push_back(static_cast<float>(value * scale));
    if (!std::isfinite(vector.back())) {
      const Error error(ErrorCode::kInternal,
                        "the model gave a vector with values that are not "
                        "finite");
      end_answer(request, 0, FinishReason::kError, &error, {});
      return;
    }
  }
  end_answer(request, 0, FinishReason::kStop, nullptr, {.text = {}, .embedding = &vector});
}

}  // namespace trine
