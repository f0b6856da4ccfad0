// The invariance contract (docs/numerics.md): the logits of a position have the same bits whatever
// the chunking, the batch, the thread count and the placement of pages. Compared with memcmp.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "support/hash_weights.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

using testing::FamilyCase;
using testing::Runner;
using testing::TempDir;

constexpr std::size_t kTokens = 90;  // three pages, past the windows of the tiny models

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::shared_ptr<const Model> load_case(const std::string& name) {
  Result<std::shared_ptr<const Model>> model;
  if (name == "docs-1m") {
    model = Model::load(std::string(TRINE_SOURCE_DIR) + "/assets/models/docs-1m");
  } else if (name.ends_with("-q8")) {  // packed, with int8 activations
    const FamilyCase golden = testing::load_family_case(name.substr(0, name.size() - 3));
    TempDir dir;
    const auto path = dir.path() / "m.gguf";
    EXPECT_TRUE(testing::write_gguf_model(path, golden, {DType::kQ8_0}).has_value());
    model = Model::load(path.string());
  } else {
    const FamilyCase golden = testing::load_family_case(name);
    TempDir dir;  // the mapped file outlives its directory entry
    testing::write_model_dir(dir.path(), golden.config, golden.tensors, DType::kBF16);
    model = Model::load(dir.path().string());
  }
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model.has_value() ? *model : nullptr;
}

class Invariance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = load_case(GetParam());
    ASSERT_NE(model_, nullptr);
    vocab_ = static_cast<std::size_t>(model_->config().vocab_size);
    tokens_ = testing::hash_tokens(kTokens, model_->config().vocab_size);
    base_ = Runner(model_, 1, DType::kF16).logits(tokens_);
    ASSERT_EQ(base_.size(), kTokens * vocab_);
  }

  std::span<const float> row(std::size_t position) const {
    return {base_.data() + position * vocab_, vocab_};
  }

  std::shared_ptr<const Model> model_;
  std::size_t vocab_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<float> base_;  // all at once, one thread, lowest pages first
};

TEST_P(Invariance, Chunking) {
  for (const std::size_t chunk :
       {std::size_t{1}, std::size_t{7}, std::size_t{32}, std::size_t{33}}) {
    EXPECT_TRUE(same_bits(Runner(model_, 1, DType::kF16).logits(tokens_, chunk), base_)) << chunk;
  }
}

TEST_P(Invariance, QuantizedKeysAndValues) {
  const auto whole = Runner(model_, 1, DType::kI8).logits(tokens_);
  EXPECT_FALSE(same_bits(whole, base_));
  Runner runner(model_, 3, DType::kI8);
  runner.pool->set_placement(PagePool::Placement::kShuffled, 5);
  EXPECT_TRUE(same_bits(runner.logits(tokens_, 7), whole));
}

TEST_P(Invariance, ThreadsAndPagePlacement) {
  for (const int threads : {2, 3}) {
    Runner runner(model_, threads, DType::kF16);
    runner.pool->set_placement(PagePool::Placement::kShuffled, static_cast<std::uint64_t>(threads));
    EXPECT_TRUE(same_bits(runner.logits(tokens_, 16), base_)) << threads;
  }
}

TEST_P(Invariance, BatchMates) {
  Runner runner(model_, 2, DType::kF16);
  KvSequence mine(*runner.pool);
  KvSequence other(*runner.pool);
  std::vector<std::int32_t> noise = tokens_;
  std::reverse(noise.begin(), noise.end());
  const std::span<const std::int32_t> all(tokens_);
  const std::span<const std::int32_t> mates(noise);
  std::vector<float> logits;
  // 20 of mine beside 1 of the other, then 1 beside 30, then the rest beside 5; mine comes first,
  // then last.
  const std::size_t cuts[] = {0, 20, 21, kTokens};
  const std::size_t mate_cuts[] = {0, 1, 31, 36};
  for (std::size_t i = 0; i < 3; ++i) {
    const Span a{&mine, all.subspan(cuts[i], cuts[i + 1] - cuts[i]), {}, Span::Logits::kAll};
    const Span b{&other,
                 mates.subspan(mate_cuts[i], mate_cuts[i + 1] - mate_cuts[i]),
                 {},
                 Span::Logits::kLast};
    const Span forward_order[] = {a, b};
    const Span backward_order[] = {b, a};
    ASSERT_TRUE(runner.step(i == 0 ? forward_order : backward_order, logits).has_value());
    const std::size_t first = i == 0 ? 0 : vocab_;
    const std::size_t count = a.tokens.size() * vocab_;
    ASSERT_EQ(logits.size(), count + vocab_);
    EXPECT_TRUE(same_bits({logits.data() + first, count}, {base_.data() + cuts[i] * vocab_, count}))
        << i;
  }
}

TEST_P(Invariance, OnlyTheWantedRows) {
  Runner runner(model_, 1, DType::kF16);
  KvSequence sequence(*runner.pool);
  std::vector<float> logits;
  const std::span<const std::int32_t> all(tokens_);
  const Span silent{&sequence, all.first(40), {}, Span::Logits::kNone};
  ASSERT_TRUE(runner.step({&silent, 1}, logits).has_value());
  EXPECT_TRUE(logits.empty());
  const Span last{&sequence, all.subspan(40), {}, Span::Logits::kLast};
  ASSERT_TRUE(runner.step({&last, 1}, logits).has_value());
  EXPECT_TRUE(same_bits(logits, row(kTokens - 1)));
}

// A tree of drafts: every path through it has the bits of the plain chain of its tokens.
TEST_P(Invariance, TreePathsEqualChains) {
  Runner runner(model_, 2, DType::kF16);
  KvSequence sequence(*runner.pool);
  std::vector<float> logits;
  const std::span<const std::int32_t> all(tokens_);
  constexpr std::size_t kPrefix = 30;
  const Span prefix{&sequence, all.first(kPrefix), {}, Span::Logits::kNone};
  ASSERT_TRUE(runner.step({&prefix, 1}, logits).has_value());
  // Two roots; token 0 - 2 - 4 is the true continuation, 1 - 3 and 5 (a child of 0) are other
  // paths.
  const std::int32_t wrong = (tokens_[kPrefix] + 1) % model_->config().vocab_size;
  const std::vector<std::int32_t> draft{tokens_[kPrefix],     wrong, tokens_[kPrefix + 1], wrong,
                                        tokens_[kPrefix + 2], wrong};
  const std::vector<std::int32_t> parents{-1, -1, 0, 1, 2, 0};
  const Span tree{&sequence, draft, parents, Span::Logits::kAll};
  ASSERT_TRUE(sequence.reserve(static_cast<std::int32_t>(kPrefix + draft.size())).has_value());
  ASSERT_TRUE(
      runner.model->forward(*runner.context, {&tree, 1}, *runner.workspace, logits).has_value());
  const auto draft_row = [&](std::size_t i) {
    return std::span<const float>(logits.data() + i * vocab_, vocab_);
  };
  EXPECT_TRUE(same_bits(draft_row(0), row(kPrefix)));
  EXPECT_TRUE(same_bits(draft_row(2), row(kPrefix + 1)));
  EXPECT_TRUE(same_bits(draft_row(4), row(kPrefix + 2)));
  std::vector<std::int32_t> chain(tokens_.begin(), tokens_.begin() + kPrefix);
  chain.push_back(wrong);
  chain.push_back(wrong);
  const std::vector<float> plain = Runner(model_, 1, DType::kF16).logits(chain);
  EXPECT_TRUE(same_bits(draft_row(1), {plain.data() + kPrefix * vocab_, vocab_}));
  EXPECT_TRUE(same_bits(draft_row(3), {plain.data() + (kPrefix + 1) * vocab_, vocab_}));
}

// Rows of a step that was not committed (rejected drafts) leave no trace.
TEST_P(Invariance, UncommittedRowsAreOverwritten) {
  Runner runner(model_, 1, DType::kF16);
  KvSequence sequence(*runner.pool);
  std::vector<float> logits;
  const std::span<const std::int32_t> all(tokens_);
  const Span prefix{&sequence, all.first(30), {}, Span::Logits::kNone};
  ASSERT_TRUE(runner.step({&prefix, 1}, logits).has_value());
  const std::vector<std::int32_t> rejected(8, 3);
  const Span drafts{&sequence, rejected, {}, Span::Logits::kAll};
  ASSERT_TRUE(sequence.reserve(38).has_value());
  ASSERT_TRUE(
      runner.model->forward(*runner.context, {&drafts, 1}, *runner.workspace, logits).has_value());
  const Span rest{&sequence, all.subspan(30), {}, Span::Logits::kAll};
  ASSERT_TRUE(runner.step({&rest, 1}, logits).has_value());
  EXPECT_TRUE(same_bits(logits, {base_.data() + 30 * vocab_, 60 * vocab_}));
}

INSTANTIATE_TEST_SUITE_P(All, Invariance,
                         ::testing::Values("llama", "llama-bias-tied", "llama-yarn", "mistral",
                                           "qwen2-window", "qwen3", "qwen3-moe", "qwen3-moe-sparse",
                                           "mixtral", "gemma3", "phi3", "phi3-longrope-long",
                                           "docs-1m", "llama-q8", "mixtral-q8", "gemma3-q8"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trine
