#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/attention.h"

namespace trine {
namespace {

const float* or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

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
  // The plan of the step.
  std::vector<std::int32_t> tokens, positions;  // [T]
  std::vector<std::int64_t> logit_rows;
  std::vector<ops::AttentionSpan> spans;
  // Activations, row-major.
  std::vector<float> hidden, normed, branch;  // [T, E]: residual stream, block input, block output
  std::vector<float> q, k, v, attn;           // [T, H*D], [T, G*D], [T, G*D], [T, H*D]
  std::vector<float> final_rows;              // [logit rows, E]
  std::vector<float> shown_logits;            // [kShownRows, V]
  std::vector<std::vector<float>> cos, sin;   // per set of frequencies: [T, rotary_dim / 2]
  MlpBuffers mlp;

  std::int64_t num_rows() const { return static_cast<std::int64_t>(tokens.size()); }
};

Decoder::Decoder(ModelConfig config, DecoderWeights weights,
                 std::shared_ptr<const OpenedCheckpoint> checkpoint)
    : config_(std::move(config)), weights_(std::move(weights)), checkpoint_(std::move(checkpoint)) {
  for (const RopeConfig& rope : config_.ropes) {
    inverse_frequencies_.push_back(rope_inverse_frequencies(rope, config_.context_length));
  }
}

KvGeometry Decoder::kv_geometry(DType kv_dtype) const {
  return {config_.num_layers, config_.num_kv_heads, config_.head_dim, config_.head_dim, kv_dtype};
}

std::unique_ptr<Model::Workspace> Decoder::make_workspace() const {
  return std::make_unique<StepWorkspace>();
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

void Decoder::fill_rope_tables(ops::Context& ctx, StepWorkspace& ws) const {
  const std::size_t sets = inverse_frequencies_.size();
  ws.cos.resize(sets);
  ws.sin.resize(sets);
  const std::int64_t rows = ws.num_rows();
  for (std::size_t r = 0; r < sets; ++r) {
    const std::vector<float>& frequencies = inverse_frequencies_[r];
    const auto half = static_cast<std::int64_t>(frequencies.size());
    float* cos_out = grown(ws.cos[r], rows * half);
    float* sin_out = grown(ws.sin[r], rows * half);
    const double factor = config_.ropes[r].attention_factor;
    const std::int32_t* positions = ws.positions.data();
    ctx.team().run([&](int thread_idx) {
      const auto [begin, end] = split_range(rows, 1, thread_idx, ctx.team().num_threads());
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          // The angle is a product in f32, as models were trained with; its cosine is exact to the
          // last bit.
          const float angle =
              static_cast<float>(positions[t]) * frequencies[static_cast<std::size_t>(i)];
          cos_out[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)) * factor);
          sin_out[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * factor);
        }
      }
    });
  }
}

void Decoder::attention_block(ops::Context& ctx, const KvGeometry& geometry, std::int32_t layer_idx,
                              StepWorkspace& ws) const {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const LayerConfig& kind = config_.layers[static_cast<std::size_t>(layer_idx)];
  const std::int64_t rows = ws.num_rows();
  const std::int64_t embed = config_.embed_dim;
  const std::int32_t dim = config_.head_dim;
  const std::int64_t q_dim = std::int64_t{config_.num_heads} * dim;
  const std::int64_t kv_dim = std::int64_t{config_.num_kv_heads} * dim;
  const float offset = config_.norm_weight_offset;
  float* q = grown(ws.q, rows * q_dim);
  float* k = grown(ws.k, rows * kv_dim);
  float* v = grown(ws.v, rows * kv_dim);
  float* attn = grown(ws.attn, rows * q_dim);

  ops::rms_norm(ctx, ws.hidden.data(), layer.attn_norm.data(), offset, config_.norm_eps, embed,
                rows, embed, ws.normed.data());
  const std::array<ops::LinearTask, 3> qkv{{{&layer.q, or_null(layer.q_bias), q, q_dim},
                                            {&layer.k, or_null(layer.k_bias), k, kv_dim},
                                            {&layer.v, or_null(layer.v_bias), v, kv_dim}}};
  ops::linear(ctx, {ws.normed.data(), embed, rows, embed}, qkv);
  if (config_.qk_norm) {
    ops::rms_norm(ctx, q, layer.q_norm.data(), offset, config_.norm_eps, dim,
                  rows * config_.num_heads, dim, q);
    ops::rms_norm(ctx, k, layer.k_norm.data(), offset, config_.norm_eps, dim,
                  rows * config_.num_kv_heads, dim, k);
  }
  const auto rope = static_cast<std::size_t>(kind.rope_idx);
  const std::int32_t rotary_dim = config_.ropes[rope].rotary_dim;
  ops::rope(ctx, config_.rope_layout, q, q_dim, rows, config_.num_heads, dim, rotary_dim,
            ws.cos[rope].data(), ws.sin[rope].data());
  ops::rope(ctx, config_.rope_layout, k, kv_dim, rows, config_.num_kv_heads, dim, rotary_dim,
            ws.cos[rope].data(), ws.sin[rope].data());
  ops::write_kv(ctx, geometry, layer_idx, ws.spans, k, kv_dim, v, kv_dim);

  ops::AttentionParams params;
  params.layer = layer_idx;
  params.num_heads = config_.num_heads;
  params.num_kv_heads = config_.num_kv_heads;
  params.head_dim_k = dim;
  params.head_dim_v = dim;
  params.scale = config_.attention_scale;
  params.window = kind.window;
  ops::attention(ctx, geometry, params, ws.spans, q, q_dim, attn, q_dim);

  ops::linear(ctx, layer.o, or_null(layer.o_bias), attn, q_dim, rows, ws.branch.data(), embed);
  if (config_.post_norms) {
    ops::rms_norm(ctx, ws.branch.data(), layer.post_attn_norm.data(), offset, config_.norm_eps,
                  embed, rows, embed, ws.branch.data());
  }
  ops::add(ctx, ws.hidden.data(), ws.branch.data(), rows * embed);
}

void Decoder::mlp_block(ops::Context& ctx, std::int32_t layer_idx, StepWorkspace& ws) const {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const std::int64_t rows = ws.num_rows();
  const std::int64_t embed = config_.embed_dim;
  const float offset = config_.norm_weight_offset;
  ops::rms_norm(ctx, ws.hidden.data(), layer.ffn_norm.data(), offset, config_.norm_eps, embed, rows,
                embed, ws.normed.data());
  if (config_.layers[static_cast<std::size_t>(layer_idx)].moe) {
    moe_mlp(ctx, config_, layer, ws.normed.data(), rows, ws.mlp, ws.branch.data());
  } else {
    dense_mlp(ctx, config_.activation, layer.mlp, ws.normed.data(), rows, ws.mlp, ws.branch.data());
  }
  if (config_.post_norms) {
    ops::rms_norm(ctx, ws.branch.data(), layer.post_ffn_norm.data(), offset, config_.norm_eps,
                  embed, rows, embed, ws.branch.data());
  }
  ops::add(ctx, ws.hidden.data(), ws.branch.data(), rows * embed);
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
  fill_rope_tables(ctx, *ws);
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
