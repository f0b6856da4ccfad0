#include "eval/task_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "eval/documents.h"
#include "text/unicode.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

// Tokens that two texts begin with.
std::size_t common_prefix(const Ids& a, const Ids& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

std::size_t num_chars(std::string_view text) {
  std::size_t out = 0;
  for (std::size_t at = 0; at < text.size(); at += text::code_point_at(text, at).size) {
    ++out;
  }
  return out;
}

// What an answer should have been, for its script.
std::string expected_text(const Task& task) {
  std::string out = task.json;
  if (task.kind != TaskKind::kRegex) {
    for (const std::string& answer : task.answers) {
      out += " " + answer;
    }
  }
  for (const std::string& label : task.labels) {
    out += " " + label;
  }
  return out;
}

// Asks an engine all tasks and waits for the answers.
class Runner {
 public:
  Runner(const std::vector<Task>& tasks, std::string name, const ModelBundle& bundle,
         const TaskRunOptions& options)
      : tasks_(tasks), name_(std::move(name)), bundle_(bundle), options_(options) {}

  Result<std::vector<TaskAnswer>> run() {
    TRINE_TRY_ASSIGN(tokenizer_, bundle_.text->tokenizer());
    EngineOptions options = options_.engine;
    options.max_waiting = kQueue;
    options.max_waiting_tokens = std::int64_t{1} << 40;
    options.eos_ids = end_ids(*bundle_.text, bundle_.model->config());
    TRINE_TRY_ASSIGN(engine_, Engine::create(bundle_.model, tokenizer_, options));
    answers_.resize(tasks_.size());
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      Status asked = tasks_[i].kind == TaskKind::kChoice ? ask_choices(i) : ask(i);
      if (!asked.has_value()) {
        return tl::unexpected(in_line(i, std::move(asked).error()));
      }
      // Enough for full batches; more would only hold memory.
      while (open_ >= kOpen) {
        TRINE_TRY(step());
      }
    }
    while (open_ > 0) {
      TRINE_TRY(step());
    }
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      Status scored = tasks_[i].kind == TaskKind::kChoice ? choose(i) : score(i);
      if (!scored.has_value()) {
        return tl::unexpected(in_line(i, std::move(scored).error()));
      }
    }
    std::vector<TaskAnswer> out;
    for (Open& one : answers_) {
      out.push_back(std::move(one.answer));
    }
    return out;
  }

 private:
  static constexpr std::int64_t kOpen = 128;    // requests that are sent before the first answers
  static constexpr std::int32_t kQueue = 4096;  // more than those and the choices of one task

  // A log-likelihood that was asked for.
  struct Likelihood {
    double sum = 0.0;
    std::int32_t tokens = 0;
  };

  struct Open {
    TaskAnswer answer;
    Ids ids;                  // generated
    std::size_t waiting = 0;  // requests without an answer
    std::vector<Likelihood> choices;
    std::vector<Likelihood> unconditional;
  };

  Error in_line(std::size_t i, Error error) const {
    return std::move(error).with_context(fmt::format("{}:{}", name_, tasks_[i].line));
  }

  Status step() {
    if (!engine_->step() && open_ > 0) {
      return fail(ErrorCode::kInternal, "the engine left {} requests unanswered", open_);
    }
    if (error_.has_value()) {
      return tl::unexpected(*error_);
    }
    return {};
  }

  Result<Ids> prompt_ids(const Task& task) const {
    if (!task.messages.empty()) {
      return encode_messages(task.messages, true, *bundle_.text, bundle_.model->config());
    }
    return tokenizer_->encode(task.prompt, text::EncodeOptions{});
  }

  void done(std::size_t i) {
    --open_;
    if (--answers_[i].waiting == 0) {
      options_.progress(++finished_);
    }
  }

  // Sends a request; `take` gets its events.
  Status submit(std::size_t i, GenerationRequest request,
                std::function<void(const TokenEvent&)> take) {
    request.sampling.temperature = 0.0;
    request.sampling.seed = options_.seed;
    request.cancel = options_.cancel;
    ++open_;
    ++answers_[i].waiting;
    TRINE_TRY(engine_->submit(
        std::move(request), [this, i, take = std::move(take)](const TokenEvent& event) {
          take(event);
          if (!event.finish.has_value()) {
            return;
          }
          if (event.error != nullptr && !error_.has_value()) {
            error_ = in_line(i, *event.error);
          } else if (event.finish == FinishReason::kCancelled && !error_.has_value()) {
            error_ = Error(ErrorCode::kCancelled, fmt::format("interrupted after {} of {} tasks",
                                                              finished_, tasks_.size()));
          }
          done(i);
        }));
    return {};
  }

  Status ask(std::size_t i) {
    const Task& task = tasks_[i];
    GenerationRequest request;
    TRINE_TRY_ASSIGN(request.prompt, prompt_ids(task));
    const std::int64_t room =
        std::int64_t{engine_->context_tokens()} - static_cast<std::int64_t>(request.prompt.size());
    // The default is a wish; a number in the file is a demand, which the engine checks.
    request.max_tokens = task.max_tokens.value_or(
        static_cast<std::int32_t>(std::clamp<std::int64_t>(room, 1, kDefaultMaxTokens)));
    request.stop = task.stop;
    Open& open = answers_[i];
    return submit(i, std::move(request), [&open](const TokenEvent& event) {
      if (event.token >= 0) {
        open.ids.push_back(event.token);
      }
      open.answer.text += event.text;
      if (event.finish.has_value()) {
        open.answer.cut = event.finish == FinishReason::kLength;
      }
    });
  }

  // The log-likelihood of ids[start...] behind those before them.
  Status ask_likelihood(std::size_t i, Ids ids, std::size_t start, Likelihood& out) {
    GenerationRequest request;
    request.prompt = std::move(ids);
    request.prompt_logprobs = 0;
    request.max_tokens = 0;
    return submit(i, std::move(request), [&out, start](const TokenEvent& event) {
      if (event.prompt_logprobs == nullptr) {
        return;
      }
      for (std::size_t at = start; at < event.prompt_logprobs->size(); ++at) {
        out.sum += (*event.prompt_logprobs)[at].chosen;
        ++out.tokens;
      }
    });
  }

  Status ask_choices(std::size_t i) {
    const Task& task = tasks_[i];
    TRINE_TRY_ASSIGN(const Ids prompt, prompt_ids(task));
    std::vector<Ids> whole;
    std::size_t start = prompt.size();
    for (const std::string& choice : task.choices) {
      Ids ids;
      if (task.messages.empty()) {
        // Encoded as one text: tokens may reach over the prompt's end.
        TRINE_TRY_ASSIGN(ids, tokenizer_->encode(task.prompt + choice, text::EncodeOptions{}));
      } else {
        ids = prompt;
        TRINE_TRY_ASSIGN(const Ids tail,
                         tokenizer_->encode(choice, text::EncodeOptions{.add_special = false}));
        ids.insert(ids.end(), tail.begin(), tail.end());
      }
      start = std::min(start, common_prefix(ids, prompt));
      whole.push_back(std::move(ids));
    }
    // All choices are scored from the same token on, behind at least one.
    if (start == 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "\"prompt\": the first token of the choices has none before it; the tokenizer "
                  "adds no begin token");
    }
    Open& open = answers_[i];
    open.choices.resize(task.choices.size());
    open.unconditional.resize(task.choices.size());
    for (std::size_t c = 0; c < whole.size(); ++c) {
      if (whole[c].size() == start) {
        return fail(ErrorCode::kInvalidArgument, "\"choices\": '{}' adds no token to the prompt",
                    task.choices[c]);
      }
      if (task.normalize == Task::Normalize::kUnconditional) {
        TRINE_TRY_ASSIGN(Ids alone, tokenizer_->encode(task.choices[c], text::EncodeOptions{}));
        if (!tokenizer_->bos().has_value() || alone.empty() || alone[0] != *tokenizer_->bos()) {
          return fail(ErrorCode::kUnsupported,
                      "\"normalize\": unconditional needs a begin token, the tokenizer adds none");
        }
        TRINE_TRY(ask_likelihood(i, std::move(alone), 1, open.unconditional[c]));
      }
      TRINE_TRY(ask_likelihood(i, std::move(whole[c]), start, open.choices[c]));
    }
    return {};
  }

  Status choose(std::size_t i) {
    const Task& task = tasks_[i];
    Open& open = answers_[i];
    for (std::size_t c = 0; c < task.choices.size(); ++c) {
      const Likelihood& likelihood = open.choices[c];
      double value = likelihood.sum;
      if (task.normalize == Task::Normalize::kChars) {
        value /= static_cast<double>(num_chars(task.choices[c]));
      } else if (task.normalize == Task::Normalize::kTokens) {
        value /= likelihood.tokens;
      } else if (task.normalize == Task::Normalize::kUnconditional) {
        value -= open.unconditional[c].sum;
      }
      open.answer.choices.push_back(value);
    }
    const auto best = std::max_element(open.answer.choices.begin(), open.answer.choices.end());
    const auto chosen = static_cast<std::size_t>(best - open.answer.choices.begin());
    open.answer.text = task.choices[chosen];
    open.answer.read_as = open.answer.text;
    open.answer.score = chosen == task.right_choice ? 1.0 : 0.0;
    return {};
  }

  Status score(std::size_t i) {
    const Task& task = tasks_[i];
    Open& open = answers_[i];
    TaskAnswer& answer = open.answer;
    TRINE_TRY_ASSIGN(const Score score, score_answer(task, answer.text));
    answer.score = score.value;
    answer.read_as = score.read_as;
    answer.invalid_json = score.invalid_json;
    answer.tokens = static_cast<std::int32_t>(open.ids.size());
    answer.empty = answer.text.find_first_not_of(" \t\r\n") == std::string::npos;
    answer.circles = runs_in_circles(open.ids);
    answer.switched_language =
        switches_language(answer.text, asked_text(task) + " " + expected_text(task));
    return {};
  }

  const std::vector<Task>& tasks_;
  std::string name_;
  const ModelBundle& bundle_;
  const TaskRunOptions& options_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::vector<Open> answers_;
  std::int64_t open_ = 0;  // requests
  std::int64_t finished_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<TaskAnswer>> run_tasks(const std::vector<Task>& tasks, const std::string& name,
                                          const ModelBundle& bundle,
                                          const TaskRunOptions& options) {
  return Runner(tasks, name, bundle, options).run();
}

}  // namespace trine::eval
