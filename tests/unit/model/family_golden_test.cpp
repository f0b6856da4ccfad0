// Logits of tiny models of every family against transformers (tests/golden/families/PROVENANCE.md).
#include <algorithm>

#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace trine {
namespace {

using testing::FamilyCase;
using testing::load_family_case;
using testing::relative_error;
using testing::Runner;
using testing::TempDir;

constexpr double kTolerance = 2e-4;  // max |a - b| / max |b| of a row

class FamilyGolden : public ::testing::TestWithParam<std::string> {};

// Every stored position, for one spelling of the configuration.
void expect_parity(const FamilyCase& golden, const std::string& config) {
  TempDir dir;
  testing::write_model_dir(dir.path(), config, golden.tensors);
  const auto model = Model::load(dir.path().string(), Model::LoadOptions{golden.max_context});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto vocab = static_cast<std::size_t>((*model)->config().vocab_size);
  Runner runner(*model);
  const std::vector<float> logits = runner.logits(golden.tokens, 512);
  ASSERT_EQ(logits.size(), golden.tokens.size() * vocab);
  ASSERT_EQ(golden.logits.size(), golden.positions.size() * vocab);
  double worst = 0.0;
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    const auto position = static_cast<std::size_t>(golden.positions[i]);
    const double error = relative_error({logits.data() + position * vocab, vocab},
                                        {golden.logits.data() + i * vocab, vocab});
    worst = std::max(worst, error);
    EXPECT_LE(error, kTolerance) << golden.name << " at position " << position;
  }
  ::testing::Test::RecordProperty("worst_relative_error", fmt::format("{:.1e}", worst));
}

TEST_P(FamilyGolden, HubSpelling) {
  const FamilyCase golden = load_family_case(GetParam());
  expect_parity(golden, golden.config);
}

TEST_P(FamilyGolden, Transformers5Spelling) {
  const FamilyCase golden = load_family_case(GetParam());
  expect_parity(golden, golden.config_v5);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden, ::testing::ValuesIn(testing::family_case_names()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trine
