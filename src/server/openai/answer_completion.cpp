// /v1/completions.
#include <algorithm>
#include <numeric>
#include <utility>

#include "server/openai/answer_base.h"

namespace trine::server::openai {

namespace {

constexpr std::string_view kPrefix = "cmpl-";
constexpr std::string_view kObject = "text_completion";

class CompletionAnswer final : public AnswerBase {
 public:
  CompletionAnswer(const CompletionRequest& request, AnswerContext context)
      : AnswerBase(request, std::move(context), static_cast<std::int32_t>(request.prompts.size())),
        given_(request.n),
        echo_(request.echo),
        wants_logprobs_(request.logprobs),
        echo_texts_(request.prompts.size()),
        choices_(static_cast<std::size_t>(num_choices()), Choice(request.generation.skip_special)) {
    for (std::size_t i = 0; echo_ && i < request.prompts.size(); ++i) {
      if (const auto* text = std::get_if<std::string>(&request.prompts[i])) {
        echo_texts_[i] = *text;
      }
    }
  }

  void set_prompt(std::int32_t prompt, std::vector<std::int32_t> tokens) override {
    auto& text = echo_texts_[static_cast<std::size_t>(prompt)];
    if (echo_ && !text && context_.tokenizer != nullptr) {
      // Ids outside the vocabulary end the request elsewhere.
      text = context_.tokenizer->decode(tokens, request_.generation.skip_special)
                 .value_or(std::string());
    }
    AnswerBase::set_prompt(prompt, std::move(tokens));
  }

  void begin(std::vector<SseEvent>& out) override {
    if (!echo_ || wants_logprobs_) {  // else it waits for the prompt's log-probabilities
      return;
    }
    for (std::int32_t i = 0; i < num_choices(); ++i) {
      emit(i, choices_[static_cast<std::size_t>(i)], echo_text(i), std::nullopt, out);
    }
  }

  std::string body() const override {
    Json choices = Json::array();
    for (std::int32_t prompt = 0; prompt < static_cast<std::int32_t>(prompts_.size()); ++prompt) {
      for (const std::int32_t from : best_of(prompt)) {
        Choice choice = choices_[static_cast<std::size_t>(from)];
        Json one =
            choice_json(static_cast<std::int32_t>(choices.size()), choice,
                        (echo_ ? echo_text(from) : std::string()) + choice.text, choice.finish);
        if (request_.return_token_ids) {
          one["token_ids"] = choice.ids;
          one["prompt_token_ids"] = prompts_[static_cast<std::size_t>(prompt)].tokens;
        }
        choices.push_back(std::move(one));
      }
    }
    Json out = head(kPrefix, kObject);
    out["choices"] = std::move(choices);
    out["usage"] = usage_json();
    add_warnings(out);
    return dump(out);
  }

 private:
  struct Choice {
    explicit Choice(bool skip_special) : logprobs(skip_special) {}

    std::string text;
    OldLogprobs logprobs;
    std::vector<std::int32_t> ids;
    std::size_t ids_sent = 0;
    bool begun = false;  // its first chunk is out
    double sum = 0.0;    // of log-probabilities
    std::optional<FinishReason> finish;
    std::string matched;
  };

  void tell_prompt(const AnswerEvent& event, std::vector<SseEvent>& out) {
    const PromptPart& part = prompts_[static_cast<std::size_t>(event.prompt)];
    const std::int32_t first = event.prompt * per_prompt_;
    for (std::int32_t at = first; at < first + per_prompt_; ++at) {
      Choice& choice = choices_[static_cast<std::size_t>(at)];
      for (std::size_t i = 0; i < part.tokens.size(); ++i) {
        const bool known = i > 0 && i < event.prompt_logprobs.size();
        choice.logprobs.add(texts_, part.tokens[i], known ? &event.prompt_logprobs[i] : nullptr);
      }
      if (request_.stream) {
        emit(at, choice, echo_text(at), std::nullopt, out);
      }
    }
  }

  std::string echo_text(std::int32_t choice) const {
    return echo_texts_[static_cast<std::size_t>(choice / per_prompt_)].value_or(std::string());
  }

  Json choice_json(std::int32_t index, Choice& choice, std::string text,
                   std::optional<FinishReason> finish) const {
    Json out;
    out["index"] = index;
    out["text"] = std::move(text);
    out["logprobs"] = nullptr;
    if (wants_logprobs_) {
      out["logprobs"] = choice.logprobs.take();
    }
    out["finish_reason"] = nullptr;
    if (finish) {
      out["finish_reason"] = finish_name(*finish);
      if (!choice.matched.empty()) {
        out["stop_reason"] = choice.matched;
      }
    }
    return out;
  }

  void emit(std::int32_t index, Choice& choice, std::string text,
            std::optional<FinishReason> finish, std::vector<SseEvent>& out) {
    Json one = choice_json(index, choice, std::move(text), finish);
    if (request_.return_token_ids) {
      one["token_ids"] = std::vector<std::int32_t>(
          choice.ids.begin() + static_cast<std::ptrdiff_t>(choice.ids_sent), choice.ids.end());
      choice.ids_sent = choice.ids.size();
      if (!std::exchange(choice.begun, true)) {
        one["prompt_token_ids"] = prompts_[static_cast<std::size_t>(index / per_prompt_)].tokens;
      }
    }
    out.push_back({.name = "", .data = dump(chunk(kPrefix, kObject, Json::array({one})))});
  }

  void take(std::int32_t index, const AnswerEvent& event, std::vector<SseEvent>& out) override {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    if (echo_ && wants_logprobs_ && !event.prompt_logprobs.empty()) {
      tell_prompt(event, out);
    }
    choice.finish = event.finish;
    if (event.token >= 0) {
      choice.ids.push_back(event.token);
      if (event.logprobs) {
        choice.sum += event.logprobs->chosen;
      }
      if (wants_logprobs_) {
        choice.logprobs.add(texts_, event.token, event.logprobs ? &*event.logprobs : nullptr);
      }
    }
    choice.matched = event.matched_stop;
    if (!request_.stream) {
      choice.text += event.text;
      return;
    }
    if (!event.text.empty() || event.finish ||
        (event.token >= 0 && (wants_logprobs_ || request_.return_token_ids))) {
      emit(index, choice, event.text, event.finish, out);
    }
  }

  void close(std::vector<SseEvent>& out) override {
    if (!request_.stream) {
      return;
    }
    if (request_.include_usage) {
      Json last = chunk(kPrefix, kObject, Json::array());
      last["usage"] = usage_json();
      out.push_back({.name = "", .data = dump(last)});
    }
    out.push_back({.name = "", .data = "[DONE]"});
  }

  // The choices of a prompt that are given: the first n, or the n with the best mean.
  std::vector<std::int32_t> best_of(std::int32_t prompt) const {
    std::vector<std::int32_t> out(static_cast<std::size_t>(per_prompt_));
    std::iota(out.begin(), out.end(), prompt * per_prompt_);
    const auto mean = [&](std::int32_t i) {
      const Choice& choice = choices_[static_cast<std::size_t>(i)];
      return choice.sum / static_cast<double>(std::max<std::size_t>(choice.ids.size(), 1));
    };
    if (given_ < per_prompt_) {
      std::stable_sort(out.begin(), out.end(),
                       [&](std::int32_t a, std::int32_t b) { return mean(a) > mean(b); });
      out.resize(static_cast<std::size_t>(given_));
    }
    return out;
  }

  std::int32_t given_;
  bool echo_;
  bool wants_logprobs_;
  std::vector<std::optional<std::string>> echo_texts_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Answer> make_answer(const CompletionRequest& request, AnswerContext context) {
  return std::make_unique<CompletionAnswer>(request, std::move(context));
}

}  // namespace trine::server::openai
