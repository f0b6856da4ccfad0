// Log-probabilities and pooled vectors of prompts: equal to one teacher-forced forward pass to the
// last bit, whatever the chunks, cached pages, company and preemptions.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

using Rows = std::vector<sampling::Logprobs>;

bool same(const sampling::Logprobs& a, const sampling::Logprobs& b) {
  if (a.chosen != b.chosen || a.top.size() != b.top.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.top.size(); ++i) {
    if (a.top[i].token != b.top[i].token || a.top[i].logprob != b.top[i].logprob) {
      return false;
    }
  }
  return true;
}

void expect_same(const Rows& a, const Rows& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 1; i < a.size(); ++i) {
    EXPECT_TRUE(same(a[i], b[i])) << "token " << i << ": " << a[i].chosen << " " << b[i].chosen;
  }
}

std::shared_ptr<const Model> docs_model() {
  auto model = Model::load(TRINE_SOURCE_DIR "/assets/models/docs-1m");
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return *model;
}

std::vector<std::int32_t> text(std::int32_t size, std::int32_t salt = 5) {
  std::vector<std::int32_t> out;
  for (std::int32_t t = 0; t < size; ++t) {
    out.push_back((t * 37 + t * t * 11 + salt) % 8192);
  }
  return out;
}

// One pass over the whole prompt, without an engine.
struct Forced {
  Rows logprobs;
  std::vector<float> hidden;  // [T, E]
};

Forced forced(const Model& model, const std::vector<std::int32_t>& prompt, std::int32_t top) {
  struct Keep : LayerObserver {
    std::vector<float> hidden;

    void on_layer(std::int32_t, std::span<const Span>, const float*, std::int64_t) override {}

    void on_rows(std::size_t, std::int64_t, std::int64_t, std::span<const float> rows,
                 std::span<const float>) override {
      hidden.insert(hidden.end(), rows.begin(), rows.end());
    }
  };

  auto team = ThreadTeam::create(1).value();
  ops::Context context(*team);
  auto pool = PagePool::create(model.kv_geometry(DType::kF16), 64).value();
  KvSequence sequence(*pool);
  const auto size = static_cast<std::int32_t>(prompt.size());
  EXPECT_TRUE(sequence.reserve(size).has_value());
  const Span span{.sequence = &sequence,
                  .tokens = prompt,
                  .parents = {},
                  .logits = Span::Logits::kAll,
                  .shown = Span::Shown::kHidden};
  std::vector<float> logits;
  Keep keep;
  auto workspace = model.make_workspace();
  EXPECT_TRUE(model.forward(context, {&span, 1}, *workspace, logits, &keep).has_value());
  Forced out{.logprobs = Rows(prompt.size()), .hidden = std::move(keep.hidden)};
  sampling::Scratch scratch;
  const std::size_t width = logits.size() / prompt.size();
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    sampling::raw_logprobs(std::span<const float>(logits).subspan((i - 1) * width, width),
                           prompt[i], top, scratch, out.logprobs[i]);
  }
  return out;
}

struct Told {
  Rows rows;
  std::vector<float> embedding;
  int times = 0;
  std::string error;
  std::optional<RequestStats> stats;

  EventCallback callback() {
    return [this](const TokenEvent& event) {
      if (event.prompt_logprobs != nullptr) {
        rows = *event.prompt_logprobs;
        ++times;
      }
      if (event.embedding != nullptr) {
        embedding = *event.embedding;
        ++times;
      }
      error = event.error != nullptr ? event.error->message : error;
      if (event.stats != nullptr) {
        stats = *event.stats;
      }
    };
  }
};

GenerationRequest scored(std::vector<std::int32_t> prompt, std::int32_t top) {
  GenerationRequest request{.prompt = std::move(prompt), .max_tokens = 3, .ignore_eos = true};
  request.sampling.seed = 1;
  request.prompt_logprobs = top;
  return request;
}

TEST(PromptLogprobs, AreThoseOfOnePass) {
  const auto model = docs_model();
  const auto prompt = text(150);
  const Rows wanted = forced(*model, prompt, 4).logprobs;
  for (const std::int32_t chunk : {1, 7, 33, 512}) {
    for (const std::int32_t n : {1, 3}) {
      auto engine =
          Engine::create(model, nullptr, {.num_threads = 1, .step_tokens = chunk}).value();
      for (int again = 0; again < 2; ++again) {  // the second time the cache knows the prompt
        Told told;
        GenerationRequest request = scored(prompt, 4);
        request.n = n;
        ASSERT_TRUE(engine->submit(std::move(request), told.callback()).has_value());
        engine->run_to_end();
        EXPECT_EQ(told.times, 1);
        expect_same(told.rows, wanted);
        ASSERT_TRUE(told.stats.has_value());
        EXPECT_EQ(told.stats->cached_tokens, 0);
      }
      // Who does not ask has the pages that the others left.
      Told plain;
      GenerationRequest request = scored(prompt, 4);
      request.prompt_logprobs.reset();
      ASSERT_TRUE(engine->submit(std::move(request), plain.callback()).has_value());
      engine->run_to_end();
      EXPECT_EQ(plain.times, 0);
      EXPECT_GT(plain.stats->cached_tokens, 0);
      EXPECT_TRUE(engine->check_integrity().has_value());
    }
  }
}

TEST(PromptLogprobs, SurvivePreemptionAndCompany) {
  const auto model = docs_model();
  auto engine =
      Engine::create(model, nullptr, {.num_threads = 2, .kv_tokens = 288, .step_tokens = 50})
          .value();
  engine->pool().set_poison(true);
  std::vector<Told> told(5);
  for (std::int32_t i = 0; i < 5; ++i) {
    GenerationRequest request = scored(text(40 + 20 * i, i), 1);
    request.max_tokens = 60;
    ASSERT_TRUE(engine->submit(std::move(request), told[static_cast<std::size_t>(i)].callback())
                    .has_value());
  }
  engine->run_to_end();
  EXPECT_GT(engine->metrics().requests.preempted, 0);
  for (std::int32_t i = 0; i < 5; ++i) {
    const Told& one = told[static_cast<std::size_t>(i)];
    EXPECT_EQ(one.times, 1);
    expect_same(one.rows, forced(*model, text(40 + 20 * i, i), 1).logprobs);
  }
}

TEST(PromptLogprobs, OfOneToken) {
  Told told;
  const auto engine =
      make_engine(std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32}));
  ASSERT_TRUE(engine->submit(scored(ids("a"), 2), told.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.rows.size(), 1u);
}

// Spoils what the observer is shown.
class Spoiled : public FakeModel {
 public:
  Spoiled(float value, bool all) : FakeModel({.vocab_size = 32}), value_(value), all_(all) {}

  Status forward(ops::Context& ctx, std::span<const Span> spans, Workspace& workspace,
                 std::vector<float>& logits, LayerObserver* observer) const override {
    struct Change : LayerObserver {
      LayerObserver* to = nullptr;
      float value = 0.0f;
      bool all = false;

      void on_layer(std::int32_t, std::span<const Span>, const float*, std::int64_t) override {}

      void on_rows(std::size_t span, std::int64_t first, std::int64_t count,
                   std::span<const float> hidden, std::span<const float> rows) override {
        std::vector<float> bad(rows.begin(), rows.end());
        std::vector<float> bad_hidden(hidden.begin(), hidden.end());
        for (std::vector<float>* values : {&bad, &bad_hidden}) {
          if (!values->empty()) {
            values->back() = value;
          }
        }
        if (all) {
          bad.assign(bad.size(), value);
        }
        to->on_rows(span, first, count, bad_hidden, bad);
      }
    };

    Change change;
    change.to = observer;
    change.value = value_;
    change.all = all_;
    return FakeModel::forward(ctx, spans, workspace, logits,
                              observer != nullptr ? &change : nullptr);
  }

 private:
  float value_;
  bool all_;
};

TEST(PromptLogprobs, LogitsThatAreNoneEndTheRequest) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [value, all] : {std::pair{kNan, false}, {kInf, false}, {-kInf, true}}) {
    Told told;
    const auto engine = make_engine(std::make_shared<Spoiled>(value, all));
    ASSERT_TRUE(engine->submit(scored(ids("abcd"), 1), told.callback()).has_value());
    engine->run_to_end();
    EXPECT_THAT(told.error,
                HasSubstr("position 0: the model gave logits that are no distribution"));
    expect_all_given_back(*engine);
  }
  // One impossible token is none of that.
  Told told;
  const auto engine = make_engine(std::make_shared<Spoiled>(-kInf, false));
  ASSERT_TRUE(engine->submit(scored(ids("ab#"), 1), told.callback()).has_value());
  engine->run_to_end();
  EXPECT_EQ(told.error, "");
  EXPECT_EQ(told.rows[2].chosen, -std::numeric_limits<double>::infinity());
}

TEST(PromptLogprobs, TooManyEntriesAreRefused) {
  const auto engine = make_engine(
      std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32, .context_length = 50000}));
  const auto refused = engine->submit(scored(std::vector<std::int32_t>(42000, 1), 100), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("make 4242000 entries, at most 4194304"));
}

TEST(Embeddings, AreTheRowsBehindTheLastNorm) {
  const auto model = docs_model();
  const auto prompt = text(100);
  const std::vector<float> rows = forced(*model, prompt, 0).hidden;
  const std::size_t width = rows.size() / prompt.size();
  ASSERT_EQ(width, static_cast<std::size_t>(model->config().embed_dim));
  std::vector<float> mean;
  for (std::size_t i = 0; i < width; ++i) {
    double sum = 0.0;
    for (std::size_t t = 0; t < prompt.size(); ++t) {
      sum += double{rows[t * width + i]};
    }
    mean.push_back(static_cast<float>(sum * (1.0 / static_cast<double>(prompt.size()))));
  }
  const std::vector<float> last(rows.end() - static_cast<std::ptrdiff_t>(width), rows.end());
  for (const std::int32_t chunk : {1, 9, 512}) {
    auto engine = Engine::create(model, nullptr, {.num_threads = 2, .step_tokens = chunk}).value();
    for (const bool again : {false, true}) {
      for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
        Told told;
        ASSERT_TRUE(
            engine->submit({.prompt = prompt, .pooling = pooling}, told.callback()).has_value());
        engine->run_to_end();
        EXPECT_EQ(told.times, 1);
        EXPECT_EQ(told.embedding, pooling == Pooling::kMean ? mean : last);
        EXPECT_EQ(told.stats->generated_tokens, 0);
        // The last row may stand on cached pages, a mean may not.
        EXPECT_EQ(told.stats->cached_tokens > 0, pooling == Pooling::kLast) << again;
      }
    }
    EXPECT_TRUE(engine->check_integrity().has_value());
  }
}

TEST(Embeddings, BesideAnswersAndUnderPreemption) {
  const auto model = docs_model();
  auto engine =
      Engine::create(model, nullptr, {.num_threads = 1, .kv_tokens = 288, .step_tokens = 50})
          .value();
  std::vector<Told> alone(4), together(4);
  for (std::vector<Told>* all : {&alone, &together}) {
    engine->clear_prefix_cache();
    for (std::int32_t i = 0; i < 4; ++i) {
      if (all == &together) {
        GenerationRequest other = scored(text(30, 70 + i), 0);
        other.max_tokens = 90;
        ASSERT_TRUE(engine->submit(std::move(other), {}).has_value());
      }
      GenerationRequest request{.prompt = text(60 + i * 40, i), .pooling = Pooling::kMean};
      ASSERT_TRUE(engine->submit(std::move(request), (*all)[static_cast<std::size_t>(i)].callback())
                      .has_value());
      if (all == &alone) {
        engine->run_to_end();
      }
    }
    engine->run_to_end();
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(alone[i].embedding, together[i].embedding) << i;
    EXPECT_FALSE(alone[i].embedding.empty());
  }
}

TEST(Embeddings, AStepThatIsThrownAwayLeavesNoTrace) {
  const auto model = docs_model();
  std::vector<Told> told(2);
  for (const bool twice : {false, true}) {
    auto engine = Engine::create(model, nullptr, {.num_threads = 1, .step_tokens = 16}).value();
    ASSERT_TRUE(engine
                    ->submit({.prompt = text(50), .pooling = Pooling::kMean},
                             told[twice ? 1 : 0].callback())
                    .has_value());
    while (!engine->idle()) {
      engine->schedule();
      engine->run();
      if (twice) {
        engine->schedule();
        engine->run();
        engine->run();
      }
      engine->commit();
    }
  }
  EXPECT_EQ(told[0].embedding, told[1].embedding);
}

TEST(Embeddings, ValuesThatAreNotFiniteEndTheRequest) {
  Told told;
  const auto engine =
      make_engine(std::make_shared<Spoiled>(std::numeric_limits<float>::infinity(), false));
  ASSERT_TRUE(engine->submit({.prompt = ids("abc"), .pooling = Pooling::kMean}, told.callback())
                  .has_value());
  engine->run_to_end();
  EXPECT_THAT(told.error, HasSubstr("not finite"));
}

TEST(Embeddings, NothingIsDrawnSoNothingMayAskForIt) {
  const auto engine =
      make_engine(std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32}));
  GenerationRequest request{.prompt = ids("abc"), .n = 2, .pooling = Pooling::kLast};
  const auto refused = engine->submit(request, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("pooling: nothing is drawn"));
}

}  // namespace
}  // namespace trine
