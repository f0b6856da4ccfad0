// forward(): refusals before anything is written, the observer, NaN, and no allocation once warm.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/moe.h"
#include "support/alloc_counter.h"
#include "support/hash_weights.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

using testing::FamilyCase;
using ::testing::HasSubstr;
using testing::Runner;
using testing::TempDir;

std::shared_ptr<const Model> tiny(const std::string& name, std::int32_t max_context = 0) {
  const FamilyCase golden = testing::load_family_case(name);
  TempDir dir;
  testing::write_model_dir(dir.path(), golden.config, golden.tensors);
  auto model = Model::load(dir.path().string(), Model::LoadOptions{max_context});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return *model;
}

class Forward : public ::testing::Test {
 protected:
  Forward() : runner_(tiny("llama", 64), 2), sequence_(*runner_.pool) {}

  Status forward(std::span<const std::int32_t> tokens, std::span<const std::int32_t> parents = {}) {
    const Span span{&sequence_, tokens, parents, Span::Logits::kLast};
    return runner_.model->forward(*runner_.context, {&span, 1}, *runner_.workspace, logits_);
  }

  void expect_error(const Status& status, ErrorCode code, const char* part) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, code);
    EXPECT_THAT(status.error().message, HasSubstr(part));
  }

  Runner runner_;
  KvSequence sequence_;
  std::vector<float> logits_;
};

TEST_F(Forward, RefusesIdsOutsideTheVocabulary) {
  ASSERT_TRUE(sequence_.reserve(3).has_value());
  const std::int32_t high[] = {1, 131};
  expect_error(forward(high), ErrorCode::kInvalidArgument, "token id 131 at index 1 of span 0");
  const std::int32_t negative[] = {-1};
  expect_error(forward(negative), ErrorCode::kInvalidArgument, "ids 0..130");
}

TEST_F(Forward, ContextOverflowNamesBothNumbers) {
  const std::vector<std::int32_t> tokens(65, 1);
  ASSERT_TRUE(sequence_.reserve(65).has_value());
  expect_error(forward(tokens), ErrorCode::kExhausted,
               "0 tokens in the sequence and 65 new ones make 65, the model's context is 64");
  EXPECT_TRUE(forward(std::span(tokens).first(64)).has_value());
  sequence_.commit(60);
  expect_error(forward(std::span(tokens).first(5)), ErrorCode::kExhausted,
               "60 tokens in the sequence and 5 new ones make 65");
}

TEST_F(Forward, RefusesBadSpans) {
  const std::int32_t tokens[] = {1, 2};
  expect_error(forward(tokens), ErrorCode::kInvalidArgument, "pages for 0 only");
  ASSERT_TRUE(sequence_.reserve(2).has_value());
  expect_error(forward({}), ErrorCode::kInvalidArgument, "no tokens");
  const std::int32_t one_parent[] = {-1};
  expect_error(forward(tokens, one_parent), ErrorCode::kInvalidArgument, "1 parents for 2 tokens");
  const std::int32_t forward_parent[] = {1, -1};
  expect_error(forward(tokens, forward_parent), ErrorCode::kInvalidArgument, "parent 1 of token 0");
  const std::int32_t low_parent[] = {-1, -2};
  expect_error(forward(tokens, low_parent), ErrorCode::kInvalidArgument, "parent -2 of token 1");
}

TEST_F(Forward, RefusesPagesOfAnotherModel) {
  KvGeometry geometry = runner_.model->kv_geometry(DType::kF32);
  geometry.num_layers += 1;
  auto pool = PagePool::create(geometry, 4);
  ASSERT_TRUE(pool.has_value());
  KvSequence foreign(**pool);
  ASSERT_TRUE(foreign.reserve(1).has_value());
  const std::int32_t tokens[] = {1};
  const Span span{&foreign, tokens, {}, Span::Logits::kLast};
  expect_error(runner_.model->forward(*runner_.context, {&span, 1}, *runner_.workspace, logits_),
               ErrorCode::kInvalidArgument, "made for another model");
}

TEST_F(Forward, AnEmptyStepGivesNothing) {
  logits_.assign(5, 1.0F);
  EXPECT_TRUE(
      runner_.model->forward(*runner_.context, {}, *runner_.workspace, logits_).has_value());
  EXPECT_TRUE(logits_.empty());
}

struct CountingObserver : LayerObserver {
  std::vector<std::int32_t> layers;
  std::vector<float> last;

  void on_layer(std::int32_t layer, std::span<const Span> spans, const float* hidden,
                std::int64_t num_rows) override {
    layers.push_back(layer);
    EXPECT_EQ(spans.size(), 1U);
    EXPECT_EQ(num_rows, 3);
    last.assign(hidden, hidden + num_rows * 64);
  }
};

TEST_F(Forward, ObserverSeesEveryLayerAndTheResidualStream) {
  ASSERT_TRUE(sequence_.reserve(3).has_value());
  const std::int32_t tokens[] = {1, 2, 3};
  const Span span{&sequence_, tokens, {}, Span::Logits::kAll};
  CountingObserver observer;
  std::vector<float> plain;
  ASSERT_TRUE(
      runner_.model->forward(*runner_.context, {&span, 1}, *runner_.workspace, logits_, &observer)
          .has_value());
  ASSERT_TRUE(
      runner_.model->forward(*runner_.context, {&span, 1}, *runner_.workspace, plain).has_value());
  EXPECT_EQ(observer.layers, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(plain, logits_);  // watching changes nothing
  EXPECT_GT(*std::max_element(observer.last.begin(), observer.last.end()), 0.0F);
}

TEST_F(Forward, AllocatesNothingOnceWarm) {
  const std::vector<std::int32_t> tokens = testing::hash_tokens(40, 131);
  ASSERT_TRUE(sequence_.reserve(41).has_value());
  const Span prefill{&sequence_, tokens, {}, Span::Logits::kAll};
  for (int warm = 0; warm < 2; ++warm) {
    ASSERT_TRUE(runner_.model->forward(*runner_.context, {&prefill, 1}, *runner_.workspace, logits_)
                    .has_value());
  }
  sequence_.commit(40);
  const Span decode{&sequence_, std::span(tokens).first(1), {}, Span::Logits::kLast};
  const std::int64_t before = test::num_allocations();
  const Status status =
      runner_.model->forward(*runner_.context, {&decode, 1}, *runner_.workspace, logits_);
  const std::int64_t after = test::num_allocations();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(after - before, 0);
}

TEST(ForwardMoe, AllocatesNothingOnceWarm) {
  Runner runner(tiny("mixtral"));
  KvSequence sequence(*runner.pool);
  const std::vector<std::int32_t> tokens = testing::hash_tokens(40, 131);
  std::vector<float> logits;
  ASSERT_TRUE(sequence.reserve(40).has_value());
  const Span span{&sequence, tokens, {}, Span::Logits::kLast};
  ASSERT_TRUE(
      runner.model->forward(*runner.context, {&span, 1}, *runner.workspace, logits).has_value());
  const std::int64_t before = test::num_allocations();
  ASSERT_TRUE(
      runner.model->forward(*runner.context, {&span, 1}, *runner.workspace, logits).has_value());
  EXPECT_EQ(test::num_allocations() - before, 0);
}

// A NaN in the weights comes out as NaN; nothing crashes and nothing hides it.
TEST(ForwardNan, ComesOutAsNan) {
  for (const char* name : {"llama", "mixtral"}) {
    FamilyCase golden = testing::load_family_case(name);
    for (testing::TinyTensor& tensor : golden.tensors) {
      if (tensor.name == "model.layers.1.self_attn.v_proj.weight") {
        tensor.values[0] = std::nanf("");
      }
    }
    TempDir dir;
    testing::write_model_dir(dir.path(), golden.config, golden.tensors);
    const auto model = Model::load(dir.path().string());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const std::vector<float> logits = Runner(*model).logits(std::span(golden.tokens).first(5));
    for (const float value : logits) {
      ASSERT_TRUE(std::isnan(value)) << name;
    }
  }
}

TEST(Router, TakesTheLargestAndTheLowerIndexOnATie) {
  const float probs[] = {0.1F, 0.3F, 0.3F, 0.3F};
  std::uint8_t chosen[4];
  float weights[4];
  route_top_k(probs, 2, true, chosen, weights);
  EXPECT_THAT(chosen, ::testing::ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(weights, ::testing::ElementsAre(0.0F, 0.5F, 0.5F, 0.0F));
  route_top_k(probs, 2, false, chosen, weights);
  EXPECT_THAT(weights, ::testing::ElementsAre(0.0F, 0.3F, 0.3F, 0.0F));
}

TEST(Router, ANanLosesAgainstNumbersAndIsStillChosenWhenNothingIsLeft) {
  const float nan = std::nanf("");
  const float probs[] = {nan, 0.2F, nan, 0.1F};
  std::uint8_t chosen[4];
  float weights[4];
  route_top_k(probs, 2, true, chosen, weights);
  EXPECT_THAT(chosen, ::testing::ElementsAre(0, 1, 0, 1));
  route_top_k(probs, 3, true, chosen, weights);
  EXPECT_THAT(chosen, ::testing::ElementsAre(1, 1, 0, 1));
  EXPECT_TRUE(std::isnan(weights[0]));
  const float all_nan[] = {nan, nan};
  route_top_k(all_nan, 1, true, {chosen, 2}, {weights, 2});
  EXPECT_EQ(chosen[0], 1);
  EXPECT_EQ(chosen[1], 0);
}

}  // namespace
}  // namespace trine
