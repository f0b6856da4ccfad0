// The trained models in assets/models against transformers (tests/golden/docs/PROVENANCE.md).
#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

using testing::Runner;

class DocsGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(DocsGolden, LogitsEqualTransformers) {
  const std::filesystem::path root(TRINE_SOURCE_DIR);
  const std::string name = GetParam();
  const auto meta = parse_json(testing::read_file(root / "tests/golden/docs" / (name + ".json")));
  ASSERT_TRUE(meta.has_value());
  const auto ids = meta->at("ids").get<std::vector<std::int32_t>>();
  const std::string bytes = testing::read_file(root / "tests/golden/docs" / (name + ".f32"));
  std::vector<float> golden(bytes.size() / sizeof(float));
  std::memcpy(golden.data(), bytes.data(), golden.size() * sizeof(float));

  const auto model = Model::load((root / "assets/models" / name).string());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  Runner runner(*model, 2);
  const std::vector<float> logits = runner.logits(ids);
  const auto vocab = static_cast<std::size_t>((*model)->config().vocab_size);
  ASSERT_EQ(logits.size(), ids.size() * vocab);
  std::size_t row = 0;
  for (const auto position : meta->at("positions").get<std::vector<std::size_t>>()) {
    EXPECT_LE(testing::relative_error({logits.data() + position * vocab, vocab},
                                      {golden.data() + row * vocab, vocab}),
              2e-4)
        << "position " << position;
    ++row;
  }
  EXPECT_EQ(row * vocab, golden.size());
}

INSTANTIATE_TEST_SUITE_P(All, DocsGolden, ::testing::Values("docs-8m", "docs-1m"),
                         [](const auto& param_info) {
                           return std::string(param_info.param).substr(5);
                         });

}  // namespace
}  // namespace trine
