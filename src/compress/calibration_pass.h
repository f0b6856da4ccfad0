// The calibration tokens on their way through a model, one block at a time: the residual stream of
// all of them is held, and each block is run in stages between which a quantizer looks at the
// inputs of the next linear layers.
//
// Memory: two or three times tokens * max(E, H*D) floats, whatever the depth of the model. All
// results are independent of the number of threads. Thread rule: the thread that owns the team.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "kv/kv_cache.h"
#include "model/block.h"
#include "model/decoder_parts.h"
#include "model/moe.h"
#include "ops/ops.h"

namespace trine {

// Rows of inputs, [num_rows, cols], `stride` floats apart; the calls are in the order of the
// tokens.
using RowsVisitor = std::function<void(const float* x, std::int64_t stride, std::int64_t num_rows)>;

class CalibrationPass {
 public:
  // Embeds the tokens. Errors: exhausted when the memory cannot be had.
  static Result<std::unique_ptr<CalibrationPass>> create(
      ops::Context& ctx, const DecoderParts& parts,
      std::vector<std::vector<std::int32_t>> sequences);

  std::int64_t num_tokens() const { return num_tokens_; }

  // The inputs of q, k and v.
  void visit_attention_inputs(const LayerWeights& layer, const RowsVisitor& visit);
  // Runs q, k, v and attention; what the output projection will read is kept and shown.
  Status mix(const LayerWeights& layer, std::int32_t layer_idx, const RowsVisitor& visit);
  // The output projection of what mix() kept is added to the stream.
  void attend(const LayerWeights& layer);
  // The inputs of the MLP, which are kept for what follows.
  void visit_mlp_inputs(const LayerWeights& layer, const RowsVisitor& visit);

  // Which of the kept rows an expert gets; weights as the router gives them. Router first.
  void route(const LayerWeights& layer);
  std::int64_t expert_tokens(std::size_t expert_idx) const;

  // Inputs of one MLP's gate and up, or of its down projection; an expert sees its own rows.
  // expert_idx is 0 for a dense MLP.
  void visit_gate_inputs(std::size_t expert_idx, const RowsVisitor& visit);
  void visit_activations(const MlpWeights& mlp, std::size_t expert_idx, const RowsVisitor& visit);
  // The MLP's, or an expert's weighted, outputs, gathered until finish_mlp() adds them to the
  // stream.
  void run_mlp(const MlpWeights& mlp, std::size_t expert_idx);
  void finish_mlp(const LayerWeights& layer);

  // Remembers the stream, to run a block twice.
  void save();
  void restore();

 private:
  CalibrationPass(ops::Context& ctx, const DecoderParts& parts)
      : ctx_(ctx), parts_(parts), rope_(parts.config) {}

  // Sequences that are run together.
  struct Chunk {
    std::size_t first_sequence = 0, num_sequences = 0;
    std::int64_t first_row = 0, num_rows = 0;
  };

  Status mix_chunk(const Chunk& chunk, const LayerWeights& layer, std::int32_t layer_idx);

  float* stream(std::int64_t row) { return hidden_.data() + row * parts_.config.embed_dim; }

  // Rows of the kept inputs that an MLP reads, a few at a time.
  void for_mlp_rows(std::size_t expert_idx,
                    const std::function<void(const float* x, std::span<const std::int32_t> rows,
                                             std::int64_t first, std::int64_t count)>& body);
  const float* activate(const MlpWeights& mlp, const float* x, std::int64_t count);

  ops::Context& ctx_;
  const DecoderParts& parts_;
  std::vector<std::vector<std::int32_t>> sequences_;
  std::vector<Chunk> chunks_;
  std::int64_t num_tokens_ = 0;
  std::vector<float> hidden_;  // [tokens, E]
  std::vector<float> saved_;
  std::vector<float> kept_;    // [tokens, max(E, H*D)]: mixed rows, then inputs of the MLP
  std::vector<float> branch_;  // [tokens, E]: what the MLP made
  std::unique_ptr<PagePool> pool_;
  RopeTables rope_;
  AttentionBuffers attention_;
  std::vector<float> normed_, gate_, up_, gathered_, out_;
  std::vector<std::vector<std::int32_t>> expert_rows_;  // of each expert, ascending
  std::vector<std::vector<float>> expert_weights_;
};

}  // namespace trine
