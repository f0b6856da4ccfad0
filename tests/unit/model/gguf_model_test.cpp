// The tiny models as GGUF files: the format's conventions are undone, so logits equal those of the
// HF directory.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "support/hash_weights.h"
#include "support/tiny_gguf.h"

namespace trine {
namespace {

using testing::FamilyCase;
using testing::GgufStyle;
using testing::load_family_case;
using testing::relative_error;
using testing::Runner;
using testing::TempDir;

class GgufFamily : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> sayable_cases() {
  std::vector<std::string> names = testing::family_case_names();
  std::erase_if(names, [](const std::string& name) {
    return !testing::gguf_can_say(load_family_case(name));
  });
  return names;
}

std::vector<float> gguf_logits(const FamilyCase& golden, const GgufStyle& style) {
  TempDir dir;
  const auto path = dir.path() / "model.gguf";
  const Status written = testing::write_gguf_model(path, golden, style);
  EXPECT_TRUE(written.has_value()) << written.error().message;
  const auto model = Model::load(path.string(), Model::LoadOptions{golden.max_context});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model.has_value() ? Runner(*model).logits(golden.tokens, 512) : std::vector<float>{};
}

std::vector<float> hf_logits(const FamilyCase& golden, DType dtype = DType::kF32) {
  TempDir dir;
  testing::write_model_dir(dir.path(), golden.config, golden.tensors, dtype);
  const auto model = Model::load(dir.path().string(), Model::LoadOptions{golden.max_context});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model.has_value() ? Runner(*model).logits(golden.tokens, 512) : std::vector<float>{};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(GgufFamily, LogitsEqualTheGolden) {
  const FamilyCase golden = load_family_case(GetParam());
  const std::vector<float> logits = gguf_logits(golden, {});
  const std::size_t vocab = golden.logits.size() / golden.positions.size();
  ASSERT_EQ(logits.size(), golden.tokens.size() * vocab);
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    const auto position = static_cast<std::size_t>(golden.positions[i]);
    EXPECT_LE(relative_error({logits.data() + position * vocab, vocab},
                             {golden.logits.data() + i * vocab, vocab}),
              2e-4)
        << "position " << position;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamily, ::testing::ValuesIn(sayable_cases()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufModel, HasTheBitsOfTheHfDirectoryWhereNothingIsReordered) {
  for (const char* name : {"qwen2", "qwen3-moe", "phi3"}) {
    const FamilyCase golden = load_family_case(name);
    EXPECT_TRUE(same_bits(gguf_logits(golden, {}), hf_logits(golden))) << name;
  }
}

TEST(GgufModel, EveryWayToStoreExpertsGivesTheSameBits) {
  const FamilyCase golden = load_family_case("mixtral");
  const std::vector<float> merged = gguf_logits(golden, {});
  EXPECT_TRUE(
      same_bits(merged, gguf_logits(golden, {DType::kF32, GgufStyle::Experts::kGateUpMerged})));
  EXPECT_TRUE(same_bits(merged, gguf_logits(golden, {DType::kF32, GgufStyle::Experts::kSingle})));
}

TEST(GgufModel, HalfPrecisionMatricesStayClose) {
  const FamilyCase golden = load_family_case("qwen3");
  const std::vector<float> exact = gguf_logits(golden, {});
  const std::vector<float> half = gguf_logits(golden, {DType::kF16, GgufStyle::Experts::kMerged});
  ASSERT_EQ(exact.size(), half.size());
  EXPECT_FALSE(same_bits(exact, half));
  EXPECT_LT(relative_error(half, exact), 0.02);
}

// int8 activations change the logits a little, float32 ones are the file's own weights.
TEST(GgufModel, ActivationsInt8StayCloseToFloat) {
  for (const char* name : {"llama", "qwen3", "gemma3"}) {  // a router would turn small into large
    const FamilyCase golden = load_family_case(name);
    TempDir dir;
    const auto path = dir.path() / "m.gguf";
    ASSERT_TRUE(testing::write_gguf_model(path, golden, {DType::kQ8_0}).has_value());
    std::vector<std::vector<float>> logits;
    for (const auto activations :
         {Model::LoadOptions::Activations::kF32, Model::LoadOptions::Activations::kInt8}) {
      const auto model = Model::load(path.string(), Model::LoadOptions{.activations = activations});
      ASSERT_TRUE(model.has_value()) << model.error().message;
      const auto tokens = testing::hash_tokens(40, (*model)->config().vocab_size);
      logits.push_back(testing::Runner(*model).logits(tokens));
    }
    EXPECT_FALSE(same_bits(logits[0], logits[1])) << name;
    EXPECT_LT(relative_error(logits[1], logits[0]), 0.1) << name;
  }
}

TEST(GgufModel, SaysWhatItRead) {
  const FamilyCase golden = load_family_case("mixtral");
  TempDir dir;
  ASSERT_TRUE(testing::write_gguf_model(dir.path() / "m.gguf", golden).has_value());
  const auto model = Model::load((dir.path() / "m.gguf").string());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const ModelConfig& config = (*model)->config();
  EXPECT_EQ(config.family, "mixtral");
  EXPECT_EQ(config.vocab_size, 131);
  EXPECT_EQ(config.context_length, 512);
  EXPECT_EQ(config.rope_layout, ops::RopeLayout::kInterleaved);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, std::vector<std::int32_t>{2});
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->num_experts, 4);
}

}  // namespace
}  // namespace trine
