// Tiny models in the layouts of quantized checkpoints against transformers on their dequantized
// weights (tests/golden/quantized_checkpoints/PROVENANCE.md).
#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "format/open.h"
#include "model/config_sources.h"
#include "model/pack_weights.h"
#include "support/hash_weights.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using Activations = Model::LoadOptions::Activations;
using testing::read_file;
using testing::relative_error;
using testing::Runner;

constexpr double kExact = 1e-4;  // max |a - b| / max |b| of a row, float32 activations
// Int8 activations, one scale per 32 to 128 values or, where the file says so, per row: random
// weights of width 64 make this much of it, the worst of all tokens; a wrong scale, order or zero
// point gives 0.3 and more.
constexpr double kInt8 = 0.08;
constexpr std::size_t kTokens = 24;

fs::path golden_dir() {
  return fs::path(TRINE_SOURCE_DIR) / "tests/golden/quantized_checkpoints";
}

std::vector<std::string> case_names() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(golden_dir())) {
    if (entry.is_directory()) {
      out.push_back(entry.path().filename().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

class QuantizedGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return (golden_dir() / GetParam()).string(); }

  std::shared_ptr<const Model> load(Activations activations, int num_threads = 1) const {
    auto model = Model::load(path(), Model::LoadOptions{0, activations, num_threads});
    EXPECT_TRUE(model.has_value()) << model.error().message;
    return model.has_value() ? *model : nullptr;
  }

  std::vector<float> golden() const {
    const std::string bytes = read_file(fs::path(path()) / "logits.f32");
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

  void expect_logits(Activations activations, double tolerance) const {
    const auto model = load(activations);
    ASSERT_NE(model, nullptr);
    const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
    const auto tokens = testing::hash_tokens(kTokens, model->config().vocab_size);
    const std::vector<float> wanted = golden();
    ASSERT_EQ(wanted.size(), kTokens * vocab);
    Runner runner(model);
    const std::vector<float> logits = runner.logits(tokens);
    double worst = 0.0;
    for (std::size_t i = 0; i < kTokens; ++i) {
      worst = std::max(worst, relative_error({logits.data() + i * vocab, vocab},
                                             {wanted.data() + i * vocab, vocab}));
    }
    EXPECT_LE(worst, tolerance);
    ::testing::Test::RecordProperty("worst_relative_error", fmt::format("{:.1e}", worst));
  }
};

TEST_P(QuantizedGolden, Float32ActivationsAreExact) {
  expect_logits(Activations::kF32, kExact);
}

TEST_P(QuantizedGolden, Int8ActivationsAreClose) {
  expect_logits(Activations::kInt8, kInt8);
}

// A row alone equals the row in a batch, on one thread and on three.
TEST_P(QuantizedGolden, RowsDoNotDependOnTheBatch) {
  for (const Activations activations : {Activations::kInt8, Activations::kF32}) {
    const auto model = load(activations, 3);
    ASSERT_NE(model, nullptr);
    const auto tokens = testing::hash_tokens(kTokens, model->config().vocab_size);
    Runner one(model);
    Runner three(model, 3);
    const std::vector<float> whole = one.logits(tokens);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}}) {
      const std::vector<float> logits = three.logits(tokens, chunk);
      ASSERT_EQ(std::memcmp(whole.data(), logits.data(), whole.size() * sizeof(float)), 0);
    }
  }
}

TEST_P(QuantizedGolden, EveryByteIsCounted) {
  const auto opened = open_checkpoint(path());
  ASSERT_TRUE(opened.has_value());
  auto config = model_config_from_folder(path());
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const auto packed = weight_memory(*opened, *config, true);
  const auto mapped = weight_memory(*opened, *config, false);
  ASSERT_TRUE(packed.has_value() && mapped.has_value());
  std::uint64_t all = 0;
  for (const TensorInfo& tensor : opened->weights().tensors()) {
    all += tensor.data.size();
  }
  EXPECT_EQ(mapped->mapped_bytes, all);
  std::uint64_t quantized = 0;
  std::int64_t weights = 0;
  for (const QuantizedTotal& total : packed->quantized) {
    quantized += total.bytes;
    weights += total.num_weights;
  }
  EXPECT_GT(weights, 20000);
  const bool floats = GetParam().find("fp8") != std::string::npos;
  EXPECT_EQ(packed->mapped_bytes, floats ? all : all - quantized);
  EXPECT_EQ(packed->packed_bytes > 0, !floats);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedGolden, ::testing::ValuesIn(case_names()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trine
