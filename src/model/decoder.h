// The one decoder behind every family. Thread rule: as Model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "format/open.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/weights.h"

namespace trine {

class Decoder : public Model {
 public:
  // `checkpoint` owns the memory that `weights` views.
  Decoder(ModelConfig config, DecoderWeights weights,
          std::shared_ptr<const OpenedCheckpoint> checkpoint);

  const ModelConfig& config() const override { return config_; }

  KvGeometry kv_geometry(DType kv_dtype) const override;
  std::unique_ptr<Workspace> make_workspace() const override;
  Status forward(ops::Context& ctx, std::span<const Span> spans, Workspace& workspace,
                 std::vector<float>& logits, LayerObserver* observer) const override;

 private:
  struct StepWorkspace;

  // The step's plan: tokens, positions, rows of logits. Checks all of the caller's input.
  Status plan(std::span<const Span> spans, StepWorkspace& ws) const;
  Status plan_span(const Span& span, std::size_t span_idx, StepWorkspace& ws) const;
  void attention_block(ops::Context& ctx, const KvGeometry& geometry, std::int32_t layer_idx,
                       StepWorkspace& ws) const;
  void mlp_block(ops::Context& ctx, std::int32_t layer_idx, StepWorkspace& ws) const;
  void write_logits(ops::Context& ctx, StepWorkspace& ws, std::vector<float>& logits) const;
  // The last norm, in place, of rows of the residual stream.
  void final_norm(ops::Context& ctx, float* rows, std::int64_t count) const;
  // Logits of normed rows.
  void project(ops::Context& ctx, const float* rows, std::int64_t count, float* logits) const;
  void show_rows(ops::Context& ctx, std::span<const Span> spans, StepWorkspace& ws,
                 LayerObserver& observer) const;

  ModelConfig config_;
  DecoderWeights weights_;
  std::shared_ptr<const OpenedCheckpoint> checkpoint_;
};

}  // namespace trine
