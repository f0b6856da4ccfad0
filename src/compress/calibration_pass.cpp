#include "compress/calibration_pass.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/check.h"

namespace trine {
namespace {

constexpr std::int64_t kChunkRows = 2048;  // of whole sequences that are run together
constexpr std::int64_t kMlpRows = 1024;

const float* or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

float* grown(std::vector<float>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
  return buffer.data();
}

}  // namespace

Result<std::unique_ptr<CalibrationPass>> CalibrationPass::create(
    ops::Context& ctx, const DecoderParts& parts,
    std::vector<std::vector<std::int32_t>> sequences) {
  std::unique_ptr<CalibrationPass> out(new CalibrationPass(ctx, parts));
  out->sequences_ = std::move(sequences);
  const ModelConfig& config = parts.config;
  std::int64_t pages = 0;
  for (std::size_t i = 0; i < out->sequences_.size(); ++i) {
    const auto rows = static_cast<std::int64_t>(out->sequences_[i].size());
    TRINE_CHECK(rows > 0 && rows <= config.context_length);
    if (out->chunks_.empty() || out->chunks_.back().num_rows + rows > kChunkRows) {
      out->chunks_.push_back({i, 0, out->num_tokens_, 0});
    }
    Chunk& chunk = out->chunks_.back();
    ++chunk.num_sequences;
    chunk.num_rows += rows;
    out->num_tokens_ += rows;
  }
  for (const Chunk& chunk : out->chunks_) {
    pages = std::max(pages,
                     chunk.num_rows / kPageTokens + static_cast<std::int64_t>(chunk.num_sequences));
  }
  const std::int64_t embed = config.embed_dim;
  const std::int64_t widest =
      std::max<std::int64_t>(embed, std::int64_t{config.num_heads} * config.head_dim);
  try {
    out->hidden_.resize(static_cast<std::size_t>(out->num_tokens_ * embed));
    out->kept_.resize(static_cast<std::size_t>(out->num_tokens_ * widest));
    out->branch_.resize(static_cast<std::size_t>(out->num_tokens_ * embed));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted,
                "no memory for the activations of {} calibration tokens ({} MB); give fewer with "
                "--calib-tokens",
                out->num_tokens_, out->num_tokens_ * (2 * embed + widest) * 4 / 1000000);
  }
  TRINE_TRY_ASSIGN(out->pool_, PagePool::create({1, config.num_kv_heads, config.head_dim,
                                                 config.head_dim, DType::kF32},
                                                static_cast<std::int32_t>(pages)));
  std::int64_t row = 0;
  for (const std::vector<std::int32_t>& tokens : out->sequences_) {
    ops::embed(ctx, parts.weights.embedding, tokens, config.embed_scale, out->stream(row));
    row += static_cast<std::int64_t>(tokens.size());
  }
  return out;
}

void CalibrationPass::visit_attention_inputs(const LayerWeights& layer, const RowsVisitor& visit) {
  const std::int64_t embed = parts_.config.embed_dim;
  for (const Chunk& chunk : chunks_) {
    float* const normed = grown(normed_, chunk.num_rows * embed);
    attention_norm(ctx_, parts_.config, layer, stream(chunk.first_row), chunk.num_rows, normed);
    visit(normed, embed, chunk.num_rows);
  }
}

Status CalibrationPass::mix_chunk(const Chunk& chunk, const LayerWeights& layer,
                                  std::int32_t layer_idx) {
  const ModelConfig& config = parts_.config;
  const std::int64_t q_dim = std::int64_t{config.num_heads} * config.head_dim;
  std::vector<KvSequence> sequences;
  std::vector<ops::AttentionSpan> spans;
  std::vector<std::int32_t> positions;
  sequences.reserve(chunk.num_sequences);
  for (std::size_t i = 0; i < chunk.num_sequences; ++i) {
    const auto count = static_cast<std::int32_t>(sequences_[chunk.first_sequence + i].size());
    KvSequence& sequence = sequences.emplace_back(*pool_);
    TRINE_TRY(sequence.reserve(count));
    spans.push_back(
        {sequence.page_data(), 0, count, static_cast<std::int64_t>(positions.size()), nullptr});
    for (std::int32_t t = 0; t < count; ++t) {
      positions.push_back(t);
    }
  }
  rope_.fill(ctx_, positions);
  float* const normed = grown(normed_, chunk.num_rows * config.embed_dim);
  attention_norm(ctx_, config, layer, stream(chunk.first_row), chunk.num_rows, normed);
  attention_mix(ctx_, config, config.layers[static_cast<std::size_t>(layer_idx)], layer,
                {pool_->geometry(), spans, rope_, chunk.num_rows, 0}, normed, attention_,
                kept_.data() + chunk.first_row * q_dim);
  return {};
}

Status CalibrationPass::mix(const LayerWeights& layer, std::int32_t layer_idx,
                            const RowsVisitor& visit) {
  const std::int64_t q_dim = std::int64_t{parts_.config.num_heads} * parts_.config.head_dim;
  for (const Chunk& chunk : chunks_) {
    TRINE_TRY(mix_chunk(chunk, layer, layer_idx));
    visit(kept_.data() + chunk.first_row * q_dim, q_dim, chunk.num_rows);
  }
  return {};
}

void CalibrationPass::attend(const LayerWeights& layer) {
  const ModelConfig& config = parts_.config;
  const std::int64_t q_dim = std::int64_t{config.num_heads} * config.head_dim;
  for (const Chunk& chunk : chunks_) {
    float* const branch = grown(normed_, chunk.num_rows * config.embed_dim);
    attention_output(ctx_, config, layer, kept_.data() + chunk.first_row * q_dim, chunk.num_rows,
                     branch, stream(chunk.first_row));
  }
}

void CalibrationPass::visit_mlp_inputs(const LayerWeights& layer, const RowsVisitor& visit) {
  const std::int64_t embed = parts_.config.embed_dim;
  for (const Chunk& chunk : chunks_) {
    float* const kept = kept_.data() + chunk.first_row * embed;
    mlp_norm(ctx_, parts_.config, layer, stream(chunk.first_row), chunk.num_rows, kept);
    visit(kept, embed, chunk.num_rows);
  }
  std::fill(branch_.begin(), branch_.end(), 0.0F);
  expert_rows_.clear();
  expert_weights_.clear();
}

void CalibrationPass::route(const LayerWeights& layer) {
  TRINE_CHECK(parts_.config.moe.has_value());
  const MoeConfig& moe = *parts_.config.moe;
  const auto experts = static_cast<std::size_t>(moe.num_experts);
  const std::int64_t embed = parts_.config.embed_dim;
  expert_rows_.assign(experts, {});
  expert_weights_.assign(experts, {});
  std::vector<float> probs;
  std::vector<std::uint8_t> chosen(experts);
  std::vector<float> weights(experts);
  for (const Chunk& chunk : chunks_) {
    probs.resize(static_cast<std::size_t>(chunk.num_rows) * experts);
    ops::linear(ctx_, layer.router, nullptr, kept_.data() + chunk.first_row * embed, embed,
                chunk.num_rows, probs.data(), moe.num_experts);
    ops::softmax_rows(ctx_, probs.data(), chunk.num_rows, moe.num_experts);
    for (std::int64_t t = 0; t < chunk.num_rows; ++t) {
      route_top_k(std::span(probs).subspan(static_cast<std::size_t>(t) * experts, experts),
                  moe.experts_per_token, moe.normalize_top_k, chosen, weights);
      for (std::size_t e = 0; e < experts; ++e) {
        if (chosen[e] != 0) {
          expert_rows_[e].push_back(static_cast<std::int32_t>(chunk.first_row + t));
          expert_weights_[e].push_back(weights[e]);
        }
      }
    }
  }
}

std::int64_t CalibrationPass::expert_tokens(std::size_t expert_idx) const {
  return static_cast<std::int64_t>(expert_rows_[expert_idx].size());
}

void CalibrationPass::for_mlp_rows(
    std::size_t expert_idx,
    const std::function<void(const float* x, std::span<const std::int32_t> rows, std::int64_t first,
                             std::int64_t count)>& body) {
  const std::int64_t embed = parts_.config.embed_dim;
  if (expert_rows_.empty()) {
    for (std::int64_t first = 0; first < num_tokens_; first += kMlpRows) {
      body(kept_.data() + first * embed, {}, first, std::min(kMlpRows, num_tokens_ - first));
    }
    return;
  }
  const std::vector<std::int32_t>& rows = expert_rows_[expert_idx];
  const auto total = static_cast<std::int64_t>(rows.size());
  for (std::int64_t first = 0; first < total; first += kMlpRows) {
    const std::int64_t count = std::min(kMlpRows, total - first);
    const auto part =
        std::span(rows).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    float* const gathered = grown(gathered_, count * embed);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(gathered + i * embed, kept_.data() + part[static_cast<std::size_t>(i)] * embed,
                  static_cast<std::size_t>(embed) * sizeof(float));
    }
    body(gathered, part, first, count);
  }
}

void CalibrationPass::visit_gate_inputs(std::size_t expert_idx, const RowsVisitor& visit) {
  for_mlp_rows(expert_idx, [&](const float* x, std::span<const std::int32_t>, std::int64_t,
                               std::int64_t count) { visit(x, parts_.config.embed_dim, count); });
}

const float* CalibrationPass::activate(const MlpWeights& mlp, const float* x, std::int64_t count) {
  const std::int64_t ffn = mlp.gate.rows;
  const std::int64_t embed = mlp.gate.cols;
  float* const gate = grown(gate_, count * ffn);
  float* const up = grown(up_, count * ffn);
  const std::array<ops::LinearTask, 2> tasks{
      {{&mlp.gate, or_null(mlp.gate_bias), gate, ffn}, {&mlp.up, or_null(mlp.up_bias), up, ffn}}};
  ops::linear(ctx_, {x, embed, count, embed}, tasks);
  ops::gated_activation(ctx_, parts_.config.activation, gate, up, count * ffn, gate);
  return gate;
}

void CalibrationPass::visit_activations(const MlpWeights& mlp, std::size_t expert_idx,
                                        const RowsVisitor& visit) {
  for_mlp_rows(expert_idx,
               [&](const float* x, std::span<const std::int32_t>, std::int64_t,
                   std::int64_t count) { visit(activate(mlp, x, count), mlp.gate.rows, count); });
}

void CalibrationPass::run_mlp(const MlpWeights& mlp, std::size_t expert_idx) {
  const std::int64_t embed = parts_.config.embed_dim;
  for_mlp_rows(expert_idx, [&](const float* x, std::span<const std::int32_t> rows,
                               std::int64_t first, std::int64_t count) {
    const float* const active = activate(mlp, x, count);
    if (rows.empty()) {
      ops::linear(ctx_, mlp.down, or_null(mlp.down_bias), active, mlp.gate.rows, count,
                  branch_.data() + first * embed, embed);
      return;
    }
    float* const out = grown(out_, count * embed);
    ops::linear(ctx_, mlp.down, or_null(mlp.down_bias), active, mlp.gate.rows, count, out, embed);
    for (std::int64_t i = 0; i < count; ++i) {
      const float weight = expert_weights_[expert_idx][static_cast<std::size_t>(first + i)];
      float* const to = branch_.data() + rows[static_cast<std::size_t>(i)] * embed;
      for (std::int64_t c = 0; c < embed; ++c) {
        to[c] += weight * out[i * embed + c];
      }
    }
  });
}

void CalibrationPass::finish_mlp(const LayerWeights& layer) {
  mlp_output(ctx_, parts_.config, layer, num_tokens_, branch_.data(), hidden_.data());
}

void CalibrationPass::save() {
  saved_ = hidden_;
}

void CalibrationPass::restore() {
  hidden_ = saved_;
}

}  // namespace trine
