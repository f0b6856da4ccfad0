// The bundle of a model: what it says about the weights that a step reads.
#include "engine/bundle.h"

#include <cstddef>
#include <string_view>

#include <gtest/gtest.h>

#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

using testing::GgufStyle;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The bytes of the golden case's F32 tensors, `share` of the experts' ones; the table of embeddings
// only where it is the output too.
double expected_bytes(const testing::FamilyCase& golden, double share, bool tied) {
  double bytes = 0.0;
  for (const testing::TinyTensor& tensor : golden.tensors) {
    if (!has(tensor.name, "embed_tokens") || tied) {
      bytes += (has(tensor.name, ".experts.") ? share : 1.0) * 4.0 *
               static_cast<double>(tensor.values.size());
    }
  }
  return bytes;
}

TEST(Bundle, AStepReadsTheChosenExpertsOnly) {
  for (const char* name : {"mixtral", "qwen3-moe"}) {
    const testing::FamilyCase golden = testing::load_family_case(name);
    const testing::TempDir dir;
    testing::write_model_dir(dir.path(), golden.config, golden.tensors);
    const auto bundle = ModelBundle::load(dir.path().string(), {});
    ASSERT_TRUE(bundle.has_value()) << bundle.error().message;
    const ModelConfig& config = bundle->model->config();
    ASSERT_TRUE(config.moe.has_value());
    ASSERT_LT(config.moe->experts_per_token, config.moe->num_experts);
    const double share =
        static_cast<double>(config.moe->experts_per_token) / config.moe->num_experts;
    const double expected = expected_bytes(golden, share, config.tied_embeddings);
    EXPECT_NEAR(bundle->weight_bytes_per_step, expected, 0.5) << name;

    for (const auto experts : {GgufStyle::Experts::kMerged, GgufStyle::Experts::kGateUpMerged,
                               GgufStyle::Experts::kSingle}) {
      const auto file = dir.path() / "m.gguf";
      ASSERT_TRUE(testing::write_gguf_model(file, golden, {DType::kF32, experts}).has_value());
      const auto gguf = ModelBundle::load(file.string(), {});
      ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
      EXPECT_NEAR(gguf->weight_bytes_per_step, expected, 0.5) << name << static_cast<int>(experts);
    }
  }
}

TEST(Bundle, ATiedTableIsReadAsTheOutput) {
  for (const char* name : {"llama", "llama-bias-tied"}) {
    const testing::FamilyCase golden = testing::load_family_case(name);
    const testing::TempDir dir;
    testing::write_model_dir(dir.path(), golden.config, golden.tensors);
    const auto bundle = ModelBundle::load(dir.path().string(), {});
    ASSERT_TRUE(bundle.has_value()) << bundle.error().message;
    EXPECT_NEAR(bundle->weight_bytes_per_step,
                expected_bytes(golden, 1.0, bundle->model->config().tied_embeddings), 0.5)
        << name;
  }
}

}  // namespace
}  // namespace trine
