// A loaded decoder: immutable weights plus the one forward path, a step over spans.
//
// Whole prefill, chunked prefill, decode, speculative verification and teacher-forced evaluation
// are the same call with different spans. Logits of a (sequence, position) are bit-identical
// whatever else is in the step. Thread rule: Model is immutable and shared (shared_ptr<const
// Model>); forward() runs on the engine thread with a StepRunner that belongs to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "kv/kv_cache.h"
#include "model/config.h"
#include "ops/ops.h"

namespace trine {

// Consecutive new tokens of one sequence in one step.
struct Span {
  KvSequence* sequence = nullptr;         // reserve() covered the new tokens
  std::span<const std::int32_t> tokens;   // n >= 1 new token ids
  std::span<const std::int32_t> parents;  // empty for a chain, else n entries (see AttentionSpan)
  // Rows whose logits are wanted: kNone, kLast or kAll of this span.
  enum class Logits : std::uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
  // Whether every row of this span is shown to the observer: what the last norm makes of it, and
  // with kLogits its logits too.
  enum class Shown : std::uint8_t { kNone, kHidden, kLogits } shown = Shown::kNone;
};

// Called on the engine thread when the keys and values of `layer` are written for all spans of the
// step. Layer-wise KV transfer, calibration and feature taps hang on it. `hidden` is [T, E], the
// residual stream after the layer.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  virtual void on_layer(std::int32_t layer, std::span<const Span> spans, const float* hidden,
                        std::int64_t num_rows) = 0;

  // Rows [first, first + count) of a span that asks to be shown, after the last layer; spans and
  // rows come in order, a few rows at a time, so that nothing holds the logits of a whole prompt.
  // `hidden` is [count, E] behind the last norm, `logits` [count, V] or empty. Valid during the
  // call.
  virtual void on_rows(std::size_t /*span_idx*/, std::int64_t /*first*/, std::int64_t /*count*/,
                       std::span<const float> /*hidden*/, std::span<const float> /*logits*/) {}
};

class Model {
 public:
  struct LoadOptions {
    // Most tokens a sequence may have; 0 keeps the file's, more than the file's is an error. It
    // also decides between LongRoPE's two sets of factors
    // (docs/adr/longrope-by-configured-context.md).
    std::int32_t max_context = 0;
    // kInt8: matrices of quantized types are packed and multiply int8 activations, the fast way.
    // kF32: every matrix stays in its file's form and is multiplied in float32, the exact way.
    enum class Activations : std::uint8_t { kInt8, kF32 } activations = Activations::kInt8;
    int num_threads = 1;  // that pack; 0: one per core
  };

  // Opens a GGUF file or a directory with config.json and safetensors. Errors: not_found,
  // corrupt_data and unsupported, naming tensor or key, value and limit; invalid_argument for a
  // max_context out of range.
  static Result<std::shared_ptr<const Model>> load(const std::string& path,
                                                   const LoadOptions& options);

  static Result<std::shared_ptr<const Model>> load(const std::string& path) {
    return load(path, LoadOptions{});
  }

  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual KvGeometry kv_geometry(DType kv_dtype) const = 0;

  // Memory a step needs, reused from step to step.
  class Workspace;
  virtual std::unique_ptr<Workspace> make_workspace() const = 0;

  // Runs one step. Writes keys and values of every new token; commits nothing (the caller does).
  // `logits` receives one row of V floats per wanted row, in span order. Errors, before anything is
  // written: invalid_argument for a token id outside the vocabulary, a parent that does not come
  // before its child, pages that reserve() did not cover or of another geometry; exhausted past the
  // model's context (both numbers in the message).
  virtual Status forward(ops::Context& ctx, std::span<const Span> spans, Workspace& workspace,
                         std::vector<float>& logits, LayerObserver* observer = nullptr) const = 0;
};

class Model::Workspace {
 public:
  virtual ~Workspace() = default;
};

}  // namespace trine
