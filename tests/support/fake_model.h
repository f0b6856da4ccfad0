// A model without weights for tests of the engine: logits are a cheap hash of the tokens that a row
// may see.
//
// The observer is shown (token, tokens so far) as hidden values. Tokens travel through the real
// pages: forward() stores each new token where keys of its position belong and reads the history
// back from there, so a wrong page, length, fork or rollback changes the logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/model.h"

namespace trine::testing {

class FakeModel : public Model {
 public:
  struct Options {
    std::int32_t vocab_size = 64;
    std::int32_t context_length = 512;
    std::int32_t window = 0;  // that the config states; rows see everything
    // Favours a token after a history (the logit 40 beside hashes in [0, 4)): scripts an answer.
    std::function<std::optional<std::int32_t>(std::span<const std::int32_t> history)> script = {};
    // Changes rows before they are returned; for models that break a rule.
    std::function<void(std::span<const Span> spans, std::vector<float>& logits)> spoil = {};
    std::vector<std::int32_t> eos_ids = {};
  };

  explicit FakeModel(Options options);

  const ModelConfig& config() const override { return config_; }

  KvGeometry kv_geometry(DType kv_dtype) const override;
  std::unique_ptr<Workspace> make_workspace() const override;
  Status forward(ops::Context& ctx, std::span<const Span> spans, Workspace& workspace,
                 std::vector<float>& logits, LayerObserver* observer) const override;
  // Tokens of all spans so far, as a measure of work.
  mutable std::int64_t num_tokens_run = 0;
  mutable std::int64_t num_steps = 0;

 private:
  void append_row(std::span<const std::int32_t> history, std::vector<float>& out) const;

  Options options_;
  ModelConfig config_;
};

}  // namespace trine::testing
