#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/block.h"
#include "ops/attention.h"

namespace trine {
namespace {

// Rows that the observer is shown at once: their logits are all that is held.
constexpr std::int64_t kShownRows = 32;

// Steps of one size allocate once; the contents are overwritten by every step.
float* grown(std::vector<float>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
  return buffer.data();
}

}  // namespace

struct Decoder::StepWorkspace : Model::Workspace {
  explicit StepWorkspace(const ModelConfig& config) : rope(config) {}

  // The plan of the step.
  std::vector<std::int32_t> tokens, positions;  // [T]
  std::vector<std::int64_t> logit_rows;
  std::vector<ops::AttentionSpan> spans;
  // Activations, row-major.
  std::vector<float> hidden, normed, branch;  // [T, E]: residual stream, block input, block output
  std::vector<float> mixed;                   // [T, H*D]: what attention made
  AttentionBuffers attention;
  std::vector<float> final_rows;    // [logit rows, E]
  std::vector<float> shown_logits;  // [kShownRows, V]
  RopeTables rope;
  MlpBuffers mlp;

  std::int64_t num_rows() const { return static_cast<std::int64_t>(tokens.size()); }
};

Decoder::Decoder(ModelConfig config, DecoderWeights weights,
                 std::shared_ptr<const OpenedCheckpoint> checkpoint)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      checkpoint_(std::move(checkpoint)) {}

KvGeometry Decoder::kv_geometry(DType kv_dtype) const {
  return {config_.num_layers, config_.num_kv_heads, config_.head_dim, config_.head_dim, kv_dtype};
}

std::unique_ptr<Model::Workspace> Decoder::make_workspace() const {
  return std::make_unique<StepWorkspace>(config_);
}

Status Decoder::plan_span(const Span& span, std::size_t span_idx, StepWorkspace& ws) const {
  const auto count = static_cast<std::int64_t>(span.tokens.size());
  if (span.sequence == nullptr || count == 0) {
    return fail(ErrorCode::kInvalidArgument, "span {} has no {}", span_idx,
                span.sequence == nullptr ? "sequence" : "tokens");
  }
  const std::int64_t first = span.sequence->length();
  if (first + count > config_.context_length) {
    return fail(ErrorCode::kExhausted,
                "{} tokens in the sequence and {} new ones make {}, the model's context is {}",
                first, count, first + count, config_.context_length);
  }
  const auto pages = span.sequence->page_data();
  if (static_cast<std::int64_t>(pages.size()) * kPageTokens < first + count) {
    return fail(ErrorCode::kInvalidArgument,
                "span {}: {} tokens, but the sequence has pages for {} only", span_idx,
                first + count, static_cast<std::int64_t>(pages.size()) * kPageTokens);
  }
  if (!span.parents.empty() && span.parents.size() != span.tokens.size()) {
    return fail(ErrorCode::kInvalidArgument, "span {}: {} parents for {} tokens", span_idx,
                span.parents.size(), span.tokens.size());
  }
  const auto first_row = ws.num_rows();
  for (std::size_t i = 0; i < span.tokens.size(); ++i) {
    if (span.tokens[i] < 0 || span.tokens[i] >= config_.vocab_size) {
      return fail(ErrorCode::kInvalidArgument,
                  "token id {} at index {} of span {}: the vocabulary has ids 0..{}",
                  span.tokens[i], i, span_idx, config_.vocab_size - 1);
    }
    auto position = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
    if (!span.parents.empty()) {
      const std::int32_t parent = span.parents[i];
      if (parent < -1 || parent >= static_cast<std::int32_t>(i)) {
        return fail(ErrorCode::kInvalidArgument,
                    "span {}: parent {} of token {} does not come before it", span_idx, parent, i);
      }
      position = parent < 0 ? static_cast<std::int32_t>(first)
                            : ws.positions[static_cast<std::size_t>(first_row + parent)] + 1;
    }
    ws.tokens.push_back(span.tokens[i]);
    ws.positions.push_back(position);
    if (span.logits == Span::Logits::kAll ||
        (span.logits == Span::Logits::kLast && i + 1 == span.tokens.size())) {
      ws.logit_rows.push_back(first_row + static_cast<std::int64_t>(i));
    }
  }
  ws.spans.push_back({pages, static_cast<std::int32_t>(first), static_cast<std::int32_t>(count),
                      first_row, span.parents.empty() ? nullptr : span.parents.data()});
  return {};
}

Status Decoder::plan(std::span<const Span> spans, StepWorkspace& ws) const {
  ws.tokens.clear();
  ws.positions.clear();
  ws.logit_rows.clear();
  ws.spans.clear();
  for (std::size_t s = 0; s < spans.size(); ++s) {
    TRINE_TRY(plan_span(spans[s], s, ws));
    const KvGeometry& geometry = spans[s].sequence->pool().geometry();
    const KvGeometry wanted = kv_geometry(geometry.dtype);
    if (geometry.num_layers != wanted.num_layers || geometry.num_kv_heads != wanted.num_kv_heads ||
        geometry.head_dim_k != wanted.head_dim_k || geometry.head_dim_v != wanted.head_dim_v ||
        geometry.dtype != spans[0].sequence->pool().geometry().dtype) {
      return fail(ErrorCode::kInvalidArgument,
                  "span {}: its page pool was made for another model or another KV type", s);
    }
  }
  return {};
}

void Decoder::attention_block(ops::Context& ctx, const KvGeometry& geometry, std::int32_t layer_idx,
                              StepWorkspace& ws) const {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const std::int64_t rows = ws.num_rows();
  attention_norm(ctx, config_, layer, ws.hidden.data(), rows, ws.normed.data());
  attention_mix(ctx, config_, config_.layers[static_cast<std::size_t>(layer_idx)], layer,
                {geometry, ws.spans, ws.rope, rows, layer_idx}, ws.normed.data(), ws.attention,
                ws.mixed.data());
  attention_output(ctx, config_, layer, ws.mixed.data(), rows, ws.branch.data(), ws.hidden.data());
}

void Decoder::mlp_block(ops::Context& ctx, std::int32_t layer_idx, StepWorkspace& ws) const {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const std::int64_t rows = ws.num_rows();
  mlp_norm(ctx, config_, layer, ws.hidden.data(), rows, ws.normed.data());
  if (config_.layers[static_cast<std::size_t>(layer_idx)].moe) {
    moe_mlp(ctx, config_, layer, ws.normed.data(), rows, ws.mlp, ws.branch.data());
  } else {
    dense_mlp(ctx, config_.activation, layer.mlp, ws.normed.data(), rows, ws.mlp, ws.branch.data());
  }
  mlp_output(ctx, config_, layer, rows, ws.branch.data(), ws.hidden.data());
}

void Decoder::write_logits(ops::Context& ctx, StepWorkspace& ws, std::vector<float>& logits) const {
  const std::int64_t embed = config_.embed_dim;
  const auto count = static_cast<std::int64_t>(ws.logit_rows.size());
  logits.resize(static_cast<std::size_t>(count * config_.vocab_size));
  if (count == 0) {
    return;
  }
  float* rows = grown(ws.final_rows, count * embed);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(rows + i * embed,
                ws.hidden.data() + ws.logit_rows[static_cast<std::size_t>(i)] * embed,
                static_cast<std::size_t>(embed) * sizeof(float));
  }
  final_norm(ctx, rows, count);
  project(ctx, rows, count, logits.data());
}

void Decoder::final_norm(ops::Context& ctx, float* rows, std::int64_t count) const {
  const std::int64_t embed = config_.embed_dim;
  ops::rms_norm(ctx, rows, weights_.final_norm.data(), config_.norm_weight_offset, config_.norm_eps,
                embed, count, embed, rows);
}

void Decoder::project(ops::Context& ctx, const float* rows, std::int64_t count,
                      float* logits) const {
  ops::linear(ctx, weights_.output, nullptr, rows, config_.embed_dim, count, logits,
              config_.vocab_size);
  if (config_.final_softcap > 0.0F) {
    const float cap = config_.final_softcap;
    for (std::int64_t i = 0; i < count * config_.vocab_size; ++i) {
      logits[i] = cap * static_cast<float>(std::tanh(static_cast<double>(logits[i] / cap)));
    }
  }
}

void Decoder::show_rows(ops::Context& ctx, std::span<const Span> spans, StepWorkspace& ws,
                        LayerObserver& observer) const {
  const std::int64_t embed = config_.embed_dim;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    if (spans[s].shown == Span::Shown::kNone) {
      continue;
    }
    const bool with_logits = spans[s].shown == Span::Shown::kLogits;
    const auto size = static_cast<std::int64_t>(spans[s].tokens.size());
    for (std::int64_t first = 0; first < size; first += kShownRows) {
      const std::int64_t count = std::min(kShownRows, size - first);
      float* rows = grown(ws.final_rows, count * embed);
      std::memcpy(rows, ws.hidden.data() + (ws.spans[s].first_row + first) * embed,
                  static_cast<std::size_t>(count * embed) * sizeof(float));
      final_norm(ctx, rows, count);
      const std::int64_t width = with_logits ? config_.vocab_size : 0;
      float* logits = grown(ws.shown_logits, count * width);
      if (with_logits) {
        project(ctx, rows, count, logits);
      }
      observer.on_rows(s, first, count, {rows, static_cast<std::size_t>(count * embed)},
                       {logits, static_cast<std::size_t>(count * width)});
    }
  }
}

Status Decoder::forward(ops::Context& ctx, std::span<const Span> spans, Workspace& workspace,
                        std::vector<float>& logits, LayerObserver* observer) const {
  auto* ws = dynamic_cast<StepWorkspace*>(&workspace);
  TRINE_CHECK(ws != nullptr);  // made by another kind of model
  TRINE_TRY(plan(spans, *ws));
  if (spans.empty()) {
    logits.clear();
    return {};
  }
  const KvGeometry& geometry = spans[0].sequence->pool().geometry();
  const std::int64_t rows = ws->num_rows();
  const std::int64_t embed = config_.embed_dim;
  grown(ws->hidden, rows * embed);
  grown(ws->normed, rows * embed);
  grown(ws->branch, rows * embed);
  grown(ws->mixed, rows * config_.num_heads * config_.head_dim);
  ws->rope.fill(ctx, ws->positions);
  ops::embed(ctx, weights_.embedding, ws->tokens, config_.embed_scale, ws->hidden.data());
  for (std::int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(ctx, geometry, layer, *ws);
    mlp_block(ctx, layer, *ws);
    if (observer != nullptr) {
      observer->on_layer(layer, spans, ws->hidden.data(), rows);
    }
  }
  if (observer != nullptr) {
    show_rows(ctx, spans, *ws, *observer);
  }
  write_logits(ctx, *ws, logits);
  return {};
}

}  // namespace trine
