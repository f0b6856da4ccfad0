// What the engine tests share: a recorder of events and an engine over the fakes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/fake_model.h"
#include "support/fake_tokenizer.h"

namespace trine::testing {

struct RecordedAnswer {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> pieces;  // text of each event
  std::string text;
  std::vector<double> logprobs;
  std::vector<std::vector<sampling::TokenLogprob>> top;
  std::optional<FinishReason> finish;
  std::string matched_stop;
  std::string error;
};

struct Record {
  std::map<std::int32_t, RecordedAnswer> answers;
  std::optional<RequestStats> stats;

  EventCallback callback() {
    return [this](const TokenEvent& event) {
      RecordedAnswer& answer = answers[event.answer];
      EXPECT_FALSE(answer.finish.has_value()) << "an event after the last one";
      if (event.token >= 0) {
        answer.tokens.push_back(event.token);
      }
      answer.pieces.emplace_back(event.text);
      answer.text += event.text;
      if (event.logprobs != nullptr) {
        answer.logprobs.push_back(event.logprobs->chosen);
        answer.top.push_back(event.logprobs->top);
      }
      answer.finish = event.finish;
      answer.matched_stop = event.matched_stop;
      if (event.error != nullptr) {
        answer.error = event.error->message;
      }
      if (event.stats != nullptr) {
        EXPECT_FALSE(stats.has_value());
        stats = *event.stats;
      }
    };
  }
};

// Letters: token i < 26 is the i-th lower-case letter; 26 is a space, 27 a newline, 28 the end
// token, 29 and 30 the halves of "é", 31 the text "xyz".
inline std::shared_ptr<const FakeTokenizer> letters() {
  std::vector<std::string> pieces;
  for (char c = 'a'; c <= 'z'; ++c) {
    pieces.emplace_back(1, c);
  }
  pieces.insert(pieces.end(), {" ", "\n", "<end>", "\xc3", "\xa9", "xyz"});
  return std::make_shared<FakeTokenizer>(std::move(pieces), std::vector<std::int32_t>{28});
}

inline std::vector<std::int32_t> ids(const std::string& text) {
  std::vector<std::int32_t> out;
  for (const char c : text) {
    out.push_back(c == ' ' ? 26 : c == '\n' ? 27 : c == '$' ? 28 : c == '#' ? 31 : c - 'a');
  }
  return out;
}

// A model that answers every prompt of `prompt_size` tokens with `answer`, then hash noise.
inline std::shared_ptr<FakeModel> scripted(std::size_t prompt_size,
                                           std::vector<std::int32_t> answer) {
  return std::make_shared<FakeModel>(FakeModel::Options{
      .vocab_size = 32,
      .script = [prompt_size, answer = std::move(answer)](
                    std::span<const std::int32_t> history) -> std::optional<std::int32_t> {
        const std::size_t at = history.size() - prompt_size;
        return history.size() >= prompt_size && at < answer.size() ? std::optional(answer[at])
                                                                   : std::nullopt;
      }});
}

inline std::unique_ptr<Engine> make_engine(std::shared_ptr<const Model> model,
                                           EngineOptions options = {}, bool with_text = true) {
  options.num_threads = options.num_threads == 0 ? 1 : options.num_threads;
  auto engine = Engine::create(std::move(model), with_text ? letters() : nullptr, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return *std::move(engine);
}

// No request holds a page any more, and everybody's books agree.
inline void expect_all_given_back(const Engine& engine) {
  const EngineMetrics now = engine.metrics();
  EXPECT_EQ(now.kv_pages_free + now.kv_pages_evictable, now.kv_pages);
  const Status status = engine.check_integrity();
  EXPECT_TRUE(status.has_value()) << status.error().message;
}

// Runs one request on a fresh engine.
inline Record generate(std::shared_ptr<const Model> model, GenerationRequest request,
                       EngineOptions options = {}) {
  const auto engine = make_engine(std::move(model), std::move(options));
  Record record;
  const auto id = engine->submit(std::move(request), record.callback());
  EXPECT_TRUE(id.has_value()) << id.error().message;
  engine->run_to_end();
  expect_all_given_back(*engine);
  return record;
}

}  // namespace trine::testing
