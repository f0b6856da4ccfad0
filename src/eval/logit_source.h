// Where the logits of a text's scored rows come from: a model that is stepped through the windows,
// or a file of what a model gave before.
//
// Rows are asked for in order, a few at a time, so that nothing holds the logits of a whole text.
// Thread rule: as Model::forward.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "eval/windows.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "ops/ops.h"

namespace trine::eval {

class LogitSource {
 public:
  virtual ~LogitSource() = default;

  // A window begins; rows of the one before are not asked for any more.
  virtual Status begin(const TokenText& text, const WindowPlan& plan, const Window& window) = 0;
  // The next `count` scored rows of the window, [count, num_ids] of the text: `logits` is resized.
  virtual Status next(std::int32_t count, std::vector<float>& logits) = 0;
  // For each prompt so many tokens, the most likely one each time, end tokens too.
  virtual Result<std::vector<std::vector<std::int32_t>>> continue_greedily(
      const std::vector<std::vector<std::int32_t>>& prompts, std::int32_t num_tokens) = 0;
};

// A model with a cache of its own.
class ModelSource : public LogitSource {
 public:
  struct Options {
    DType kv_dtype = DType::kF16;
    std::int32_t context = 0;  // most tokens of a sequence
    std::int32_t num_ids = 0;  // of the tokenizer; later columns of the model are padding
    // When not null, this model reads the rows before a window's first scored one, and the prompts
    // of continuations, and writes the keys and values that the first model goes on with. Its
    // cache must have the same geometry (check_shares_cache).
    std::shared_ptr<const Model> prefill = nullptr;
  };

  // `ops` outlives the source.
  static Result<std::unique_ptr<ModelSource>> create(std::shared_ptr<const Model> model,
                                                     ops::Context& ops, const Options& options);

  Status begin(const TokenText& text, const WindowPlan& plan, const Window& window) override;
  Status next(std::int32_t count, std::vector<float>& logits) override;
  Result<std::vector<std::vector<std::int32_t>>> continue_greedily(
      const std::vector<std::vector<std::int32_t>>& prompts, std::int32_t num_tokens) override;
  // How many of the tokens that another model continued each prompt with are this one's choice
  // too, counted from the first until they part.
  Result<std::vector<std::int32_t>> agreement(
      const std::vector<std::vector<std::int32_t>>& prompts,
      const std::vector<std::vector<std::int32_t>>& continuations);

 private:
  ModelSource(std::shared_ptr<const Model> model, ops::Context& ops, const Options& options,
              std::unique_ptr<PagePool> pool);

  // Tokens [length, upto) of `tokens` are read into the sequence, a step at a time, no logits.
  Status read(const Model& model, Model::Workspace& workspace, KvSequence& sequence,
              std::span<const std::int32_t> tokens, std::int32_t upto);
  // One step with the logits of all rows, [count, num_ids].
  Status step(KvSequence& sequence, std::span<const std::int32_t> tokens,
              std::vector<float>& logits);
  // A prompt but its last token, by the model that reads prompts.
  Status read_prompt(KvSequence& sequence, std::span<const std::int32_t> prompt);
  void drop_padding(std::vector<float>& logits) const;

  std::shared_ptr<const Model> model_;
  ops::Context* ops_;
  Options options_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Model::Workspace> workspace_;
  std::unique_ptr<Model::Workspace> prefill_workspace_;
  KvSequence sequence_;
  std::vector<std::int32_t> tokens_;  // of the window
};

// Whether `prefill` can write the cache that `model` reads: the same layers, heads, rotary
// embedding and vocabulary rows. Errors: invalid_argument naming what differs.
Status check_shares_cache(const Model& model, const Model& prefill, DType kv_dtype);

}  // namespace trine::eval
