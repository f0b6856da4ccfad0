// Quantizes the blocks of a model one after the other, each with inputs that the blocks before it,
// already quantized, make of the calibration tokens.
//
// Stages of a block, as the residual stream passes: the input of q, k, v; that of the output
// projection; that of gate and up; that of down. A mixture of experts has the last two for each
// expert, with the tokens that were routed to it. Thread rule: the thread that owns the team.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/block_weights.h"
#include "compress/calibration_pass.h"
#include "compress/options.h"
#include "quant/input_moments.h"

namespace trine {

// What calibration saw of the inputs of one or several linear layers.
struct LinearInputs {
  std::vector<float> second_moments;  // [K, K]; empty for methods that do not use them
  std::vector<float> importance, mean_abs, max_abs;  // [K]
  std::vector<float> samples;                        // [num_samples, K]
  std::int64_t num_samples = 0;
  std::int64_t num_tokens = 0;

  // The inputs are divided by s [K] from now on.
  void divide(std::span<const float> s);
};

class BlockQuantizer {
 public:
  // pass: null for methods without calibration. Set `*cancel` to end quantize() early.
  BlockQuantizer(ops::Context& ctx, const DecoderParts& parts, const QuantizeOptions& options,
                 CalibrationPass* pass, const std::atomic<bool>* cancel)
      : ctx_(ctx), parts_(parts), options_(options), pass_(pass), cancel_(cancel) {}

  // Quantizes the block's linear layers in place and moves the calibration tokens past it. Errors:
  // corrupt_data when activations stop being finite, naming the layer; cancelled.
  Status quantize(BlockWeights& block, std::int32_t layer_idx);
  // Moves the tokens past a block that is done.
  Status pass_through(BlockWeights& block, std::int32_t layer_idx);

 private:
  // The stages of the inputs; the MLP's for one expert.
  struct MlpInputs {
    LinearInputs gate, down;
  };

  struct AttentionInputs {
    LinearInputs qkv, output;
  };

  Status quantize_in_stages(BlockWeights& block, std::int32_t layer_idx);
  Status quantize_at_once(BlockWeights& block, std::int32_t layer_idx);
  // Scales that only the scan of the whole block in full precision can tell; folds them.
  Status scale_block(BlockWeights& block, std::int32_t layer_idx);
  Status run_mlps(BlockWeights& block);
  // Runs the block as it is, shows each MLP and its inputs, and takes the tokens back.
  Result<AttentionInputs> scan(BlockWeights& block, std::int32_t layer_idx, bool products,
                               const std::function<void(MlpWeights&, MlpInputs&)>& on_mlp);
  void scale_mlp(BlockWeights& block, MlpWeights& mlp, MlpInputs& inputs);
  void scale_attention(BlockWeights& block, AttentionInputs& inputs);

  Result<LinearInputs> collect(std::int64_t cols, std::int64_t tokens, bool products,
                               std::string_view module,
                               const std::function<Status(const RowsVisitor&)>& run);
  Result<MlpInputs> collect_mlp(BlockWeights& block, MlpWeights& mlp, std::size_t expert_idx,
                                bool products);

  void awq_norm(BlockWeights& block, std::span<BlockLinear* const> consumers,
                std::vector<float>& norm, const std::string& name, LinearInputs& inputs);
  void awq_output(BlockWeights& block, LinearInputs& inputs);
  void awq_down(BlockWeights& block, MlpWeights& mlp, LinearInputs& inputs);
  void smooth(BlockWeights& block, std::span<BlockLinear* const> consumers,
              std::vector<float>* norm, const std::string& name, LinearInputs& inputs);

  void quantize_linear(BlockLinear& linear, const LinearInputs* inputs);

  bool cancelled() const { return cancel_ != nullptr && cancel_->load(); }

  ops::Context& ctx_;
  const DecoderParts& parts_;
  const QuantizeOptions& options_;
  CalibrationPass* pass_;
  const std::atomic<bool>* cancel_;
};

}  // namespace trine
