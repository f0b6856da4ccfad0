// Scales that are folded leave a block's function as it was, for every family.
#include "compress/fold.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "compress/block_quantizer.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

using ::trine::testing::load_family_case;
using ::trine::testing::TempDir;

// Scales between 1/4 and 4, other ones for each `stream`.
std::vector<float> scales(std::size_t count, std::uint64_t stream) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto block = philox(7, stream, RngPurpose::kTest, static_cast<std::uint32_t>(i));
    out[i] = std::exp2(4.0F * (static_cast<float>(block[0]) / 4294967296.0F - 0.5F));
  }
  return out;
}

void fold_all(const DecoderParts& parts, BlockWeights& block) {
  LayerWeights& layer = block.layer;
  const float offset = parts.config.norm_weight_offset;
  const std::vector<float> of_qkv = scales(layer.attn_norm.size(), 1);
  fold_into_norm(layer.attn_norm, offset, of_qkv);
  for (const ops::WeightView* view : {&layer.q, &layer.k, &layer.v}) {
    scale_columns(*block.of(*view), of_qkv);
  }
  const std::vector<std::int32_t> tied = tied_value_channels(parts.config);
  const std::vector<float> of_values = scales(static_cast<std::size_t>(layer.v.rows), 2);
  std::vector<float> of_output;
  for (const std::int32_t channel : tied) {
    of_output.push_back(of_values[static_cast<std::size_t>(channel)]);
  }
  divide_rows(*block.of(layer.v), layer.v_bias, of_values);
  scale_columns(*block.of(layer.o), of_output);
  const auto fold_down = [&](MlpWeights& mlp) {
    const std::vector<float> s = scales(static_cast<std::size_t>(mlp.up.rows), 3);
    divide_rows(*block.of(mlp.up), mlp.up_bias, s);
    scale_columns(*block.of(mlp.down), s);
  };
  if (layer.experts.empty()) {
    const std::vector<float> of_mlp = scales(layer.ffn_norm.size(), 4);
    fold_into_norm(layer.ffn_norm, offset, of_mlp);
    scale_columns(*block.of(layer.mlp.gate), of_mlp);
    scale_columns(*block.of(layer.mlp.up), of_mlp);
    fold_down(layer.mlp);
  }
  for (MlpWeights& expert : layer.experts) {
    fold_down(expert);
  }
}

class Fold : public ::testing::TestWithParam<std::string> {};

TEST_P(Fold, LeavesTheFunctionOfABlock) {
  const auto family = load_family_case(GetParam());
  const TempDir dir;
  trine::testing::write_model_dir(dir.path(), family.config, family.tensors);
  const auto parts = open_decoder(dir.path().string(), family.max_context);
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  const auto team = ThreadTeam::create(1);
  ops::Context ctx(**team);
  const QuantizeOptions options;
  const std::int32_t last = parts->config.num_layers - 1;
  std::vector<std::vector<float>> outputs;
  for (const bool folds : {false, true}) {
    auto pass = CalibrationPass::create(ctx, *parts, {family.tokens});
    ASSERT_TRUE(pass.has_value()) << pass.error().message;
    BlockQuantizer quantizer(ctx, *parts, options, pass->get(), nullptr);
    for (std::int32_t i = 0; i <= last; ++i) {
      const auto block = BlockWeights::load(**team, *parts, i);
      ASSERT_TRUE(block.has_value()) << block.error().message;
      if (folds) {
        fold_all(*parts, **block);
      }
      ASSERT_TRUE(quantizer.pass_through(**block, i).has_value());
    }
    // The stream shows in the inputs that the first block would make of it.
    outputs.emplace_back();
    (*pass)->visit_attention_inputs(
        parts->weights.layers[0], [&](const float* x, std::int64_t stride, std::int64_t num_rows) {
          for (std::int64_t r = 0; r < num_rows; ++r) {
            outputs.back().insert(outputs.back().end(), x + r * stride,
                                  x + r * stride + parts->config.embed_dim);
          }
        });
  }
  ASSERT_EQ(outputs[0].size(), outputs[1].size());
  ASSERT_FALSE(outputs[0].empty());
  EXPECT_LT(trine::testing::relative_error(outputs[1], outputs[0]), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, Fold, ::testing::ValuesIn(trine::testing::family_case_names()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace trine
