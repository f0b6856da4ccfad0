#include "compress/block_quantizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "compress/fold.h"
#include "quant/awq.h"
#include "quant/gptq.h"
#include "quant/layer_error.h"
#include "quant/smooth.h"

namespace trine {
namespace {

constexpr std::int64_t kSamples = 512;  // rows of inputs that SmoothQuant's loss is measured on

const RowsVisitor kNobody = [](const float*, std::int64_t, std::int64_t) {};

std::vector<MlpWeights*> mlps_of(LayerWeights& layer) {
  std::vector<MlpWeights*> out;
  if (layer.experts.empty()) {
    out.push_back(&layer.mlp);
  }
  for (MlpWeights& expert : layer.experts) {
    out.push_back(&expert);
  }
  return out;
}

std::vector<ScaledConsumer> consumers_of(std::span<BlockLinear* const> linears) {
  std::vector<ScaledConsumer> out;
  for (const BlockLinear* linear : linears) {
    if (linear->scheme.has_value()) {
      out.push_back({linear->w, linear->rows, *linear->scheme});
    }
  }
  return out;
}

bool all_ones(std::span<const float> scales) {
  return std::all_of(scales.begin(), scales.end(), [](float s) { return s == 1.0F; });
}

}  // namespace

void LinearInputs::divide(std::span<const float> s) {
  const std::size_t cols = s.size();
  for (std::size_t i = 0; i < cols && !second_moments.empty(); ++i) {
    for (std::size_t j = 0; j < cols; ++j) {
      second_moments[i * cols + j] /= s[i] * s[j];
    }
  }
  for (std::size_t i = 0; i < cols; ++i) {
    importance[i] /= s[i] * s[i];
    mean_abs[i] /= s[i];
    max_abs[i] /= s[i];
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] /= s[i % cols];
  }
}

Status BlockQuantizer::quantize(BlockWeights& block, std::int32_t layer_idx) {
  if (pass_ == nullptr) {
    for (const auto& linear : block.linears) {
      if (cancelled()) {
        return fail(ErrorCode::kCancelled, "interrupted");
      }
      quantize_linear(*linear, nullptr);
    }
    return {};
  }
  if (options_.method == QuantMethod::kAwqGptq) {
    TRINE_TRY(scale_block(block, layer_idx));
  }
  const bool stages = options_.true_sequential && (options_.method == QuantMethod::kGptq ||
                                                   options_.method == QuantMethod::kAwqGptq);
  return stages ? quantize_in_stages(block, layer_idx) : quantize_at_once(block, layer_idx);
}

Status BlockQuantizer::pass_through(BlockWeights& block, std::int32_t layer_idx) {
  if (pass_ == nullptr) {
    return {};
  }
  TRINE_TRY(pass_->mix(block.layer, layer_idx, kNobody));
  pass_->attend(block.layer);
  return run_mlps(block);
}

Status BlockQuantizer::run_mlps(BlockWeights& block) {
  LayerWeights& layer = block.layer;
  pass_->visit_mlp_inputs(layer, kNobody);
  if (!layer.experts.empty()) {
    pass_->route(layer);
  }
  const std::vector<MlpWeights*> mlps = mlps_of(layer);
  for (std::size_t e = 0; e < mlps.size(); ++e) {
    if (cancelled()) {
      return fail(ErrorCode::kCancelled, "interrupted");
    }
    pass_->run_mlp(*mlps[e], e);
  }
  pass_->finish_mlp(layer);
  return {};
}

Result<LinearInputs> BlockQuantizer::collect(std::int64_t cols, std::int64_t tokens, bool products,
                                             std::string_view module,
                                             const std::function<Status(const RowsVisitor&)>& run) {
  if (cancelled()) {
    return fail(ErrorCode::kCancelled, "interrupted");
  }
  LinearInputs out;
  InputMoments moments(cols, products);
  const bool samples = options_.method == QuantMethod::kSmoothQuant;
  const std::int64_t every = std::max<std::int64_t>(tokens / kSamples, 1);
  std::int64_t seen = 0;
  TRINE_TRY(run([&](const float* x, std::int64_t stride, std::int64_t num_rows) {
    moments.add(ctx_.team(), x, stride, num_rows);
    for (std::int64_t r = 0; samples && r < num_rows; ++r, ++seen) {
      if (seen % every == 0 && out.num_samples < kSamples) {
        out.samples.insert(out.samples.end(), x + r * stride, x + r * stride + cols);
        ++out.num_samples;
      }
    }
  }));
  if (!moments.finite()) {
    return fail(
        ErrorCode::kCorruptData,
        "the inputs of {} are not finite on the calibration texts: the model overflows or is "
        "damaged",
        module);
  }
  if (products) {
    out.second_moments = moments.second_moments();
  }
  out.importance = moments.importance();
  out.mean_abs = moments.mean_abs();
  out.max_abs.assign(moments.max_abs().begin(), moments.max_abs().end());
  out.num_tokens = moments.num_tokens();
  return out;
}

Result<BlockQuantizer::MlpInputs> BlockQuantizer::collect_mlp(BlockWeights& block, MlpWeights& mlp,
                                                              std::size_t expert_idx,
                                                              bool products) {
  const std::int64_t tokens =
      block.layer.experts.empty() ? pass_->num_tokens() : pass_->expert_tokens(expert_idx);
  MlpInputs out;
  TRINE_TRY_ASSIGN(out.gate, collect(mlp.gate.cols, tokens, products, block.of(mlp.gate)->module,
                                     [&](const RowsVisitor& visit) -> Status {
                                       pass_->visit_gate_inputs(expert_idx, visit);
                                       return {};
                                     }));
  TRINE_TRY_ASSIGN(out.down, collect(mlp.down.cols, tokens, products, block.of(mlp.down)->module,
                                     [&](const RowsVisitor& visit) -> Status {
                                       pass_->visit_activations(mlp, expert_idx, visit);
                                       return {};
                                     }));
  return out;
}

Status BlockQuantizer::quantize_in_stages(BlockWeights& block, std::int32_t layer_idx) {
  LayerWeights& layer = block.layer;
  {
    TRINE_TRY_ASSIGN(const LinearInputs inputs,
                     collect(layer.q.cols, pass_->num_tokens(), true, block.of(layer.q)->module,
                             [&](const RowsVisitor& visit) -> Status {
                               pass_->visit_attention_inputs(layer, visit);
                               return {};
                             }));
    for (const ops::WeightView* view : {&layer.q, &layer.k, &layer.v}) {
      quantize_linear(*block.of(*view), &inputs);
    }
  }
  {
    TRINE_TRY_ASSIGN(
        const LinearInputs inputs,
        collect(layer.o.cols, pass_->num_tokens(), true, block.of(layer.o)->module,
                [&](const RowsVisitor& visit) { return pass_->mix(layer, layer_idx, visit); }));
    quantize_linear(*block.of(layer.o), &inputs);
  }
  pass_->attend(layer);
  pass_->visit_mlp_inputs(layer, kNobody);
  if (!layer.experts.empty()) {
    pass_->route(layer);
  }
  const std::vector<MlpWeights*> mlps = mlps_of(layer);
  for (std::size_t e = 0; e < mlps.size(); ++e) {
    MlpWeights& mlp = *mlps[e];
    const std::int64_t tokens =
        layer.experts.empty() ? pass_->num_tokens() : pass_->expert_tokens(e);
    {
      TRINE_TRY_ASSIGN(const LinearInputs inputs,
                       collect(mlp.gate.cols, tokens, true, block.of(mlp.gate)->module,
                               [&](const RowsVisitor& visit) -> Status {
                                 pass_->visit_gate_inputs(e, visit);
                                 return {};
                               }));
      quantize_linear(*block.of(mlp.gate), &inputs);
      quantize_linear(*block.of(mlp.up), &inputs);
    }
    TRINE_TRY_ASSIGN(const LinearInputs inputs,
                     collect(mlp.down.cols, tokens, true, block.of(mlp.down)->module,
                             [&](const RowsVisitor& visit) -> Status {
                               pass_->visit_activations(mlp, e, visit);
                               return {};
                             }));
    quantize_linear(*block.of(mlp.down), &inputs);
    pass_->run_mlp(mlp, e);
  }
  pass_->finish_mlp(layer);
  return {};
}

Result<BlockQuantizer::AttentionInputs> BlockQuantizer::scan(
    BlockWeights& block, std::int32_t layer_idx, bool products,
    const std::function<void(MlpWeights&, MlpInputs&)>& on_mlp) {
  LayerWeights& layer = block.layer;
  AttentionInputs out;
  pass_->save();
  TRINE_TRY_ASSIGN(out.qkv,
                   collect(layer.q.cols, pass_->num_tokens(), products, block.of(layer.q)->module,
                           [&](const RowsVisitor& visit) -> Status {
                             pass_->visit_attention_inputs(layer, visit);
                             return {};
                           }));
  TRINE_TRY_ASSIGN(out.output, collect(layer.o.cols, pass_->num_tokens(), products,
                                       block.of(layer.o)->module, [&](const RowsVisitor& visit) {
                                         return pass_->mix(layer, layer_idx, visit);
                                       }));
  pass_->attend(layer);
  pass_->visit_mlp_inputs(layer, kNobody);
  if (!layer.experts.empty()) {
    pass_->route(layer);
  }
  const std::vector<MlpWeights*> mlps = mlps_of(layer);
  for (std::size_t e = 0; e < mlps.size(); ++e) {
    TRINE_TRY_ASSIGN(MlpInputs inputs, collect_mlp(block, *mlps[e], e, products));
    on_mlp(*mlps[e], inputs);
  }
  pass_->restore();
  return out;
}

void BlockQuantizer::scale_mlp(BlockWeights& block, MlpWeights& mlp, MlpInputs& inputs) {
  LayerWeights& layer = block.layer;
  const std::array<BlockLinear*, 2> gate_up{block.of(mlp.gate), block.of(mlp.up)};
  const std::array<BlockLinear*, 1> down{block.of(mlp.down)};
  // Experts share a norm, and the router reads it too: there is no one set of scales for all.
  std::vector<float>* const norm = layer.experts.empty() ? &layer.ffn_norm : nullptr;
  const std::string& name = block.fold_names.ffn_norm;
  if (options_.method == QuantMethod::kSmoothQuant) {
    smooth(block, gate_up, norm, name, inputs.gate);
    smooth(block, down, nullptr, {}, inputs.down);
  } else if (options_.method != QuantMethod::kGptq) {
    if (norm != nullptr) {
      awq_norm(block, gate_up, *norm, name, inputs.gate);
    }
    awq_down(block, mlp, inputs.down);
  }
}

void BlockQuantizer::scale_attention(BlockWeights& block, AttentionInputs& inputs) {
  LayerWeights& layer = block.layer;
  const std::array<BlockLinear*, 3> qkv{block.of(layer.q), block.of(layer.k), block.of(layer.v)};
  const std::array<BlockLinear*, 1> output{block.of(layer.o)};
  const std::string& name = block.fold_names.attn_norm;
  if (options_.method == QuantMethod::kSmoothQuant) {
    smooth(block, qkv, &layer.attn_norm, name, inputs.qkv);
    smooth(block, output, nullptr, {}, inputs.output);
  } else if (options_.method != QuantMethod::kGptq) {
    awq_norm(block, qkv, layer.attn_norm, name, inputs.qkv);
    awq_output(block, inputs.output);
  }
}

Status BlockQuantizer::quantize_at_once(BlockWeights& block, std::int32_t layer_idx) {
  LayerWeights& layer = block.layer;
  const bool products = uses_second_moments(options_.method);
  TRINE_TRY_ASSIGN(AttentionInputs attention,
                   scan(block, layer_idx, products, [&](MlpWeights& mlp, MlpInputs& inputs) {
                     scale_mlp(block, mlp, inputs);
                     quantize_linear(*block.of(mlp.gate), &inputs.gate);
                     quantize_linear(*block.of(mlp.up), &inputs.gate);
                     quantize_linear(*block.of(mlp.down), &inputs.down);
                   }));
  scale_attention(block, attention);
  for (const ops::WeightView* view : {&layer.q, &layer.k, &layer.v}) {
    quantize_linear(*block.of(*view), &attention.qkv);
  }
  quantize_linear(*block.of(layer.o), &attention.output);
  return pass_through(block, layer_idx);
}

Status BlockQuantizer::scale_block(BlockWeights& block, std::int32_t layer_idx) {
  TRINE_TRY_ASSIGN(AttentionInputs attention,
                   scan(block, layer_idx, true, [&](MlpWeights& mlp, MlpInputs& inputs) {
                     scale_mlp(block, mlp, inputs);
                   }));
  scale_attention(block, attention);
  return {};
}

void BlockQuantizer::awq_norm(BlockWeights& block, std::span<BlockLinear* const> consumers,
                              std::vector<float>& norm, const std::string& name,
                              LinearInputs& inputs) {
  const std::vector<ScaledConsumer> scaled = consumers_of(consumers);
  if (scaled.empty()) {
    return;
  }
  const AwqScales found = search_awq_scales(ctx_.team(), scaled, consumers[0]->cols,
                                            {inputs.second_moments, inputs.mean_abs, {}});
  if (all_ones(found.scales)) {
    return;
  }
  fold_into_norm(norm, parts_.config.norm_weight_offset, found.scales);
  block.folded.emplace_back(name, &norm);
  for (BlockLinear* linear : consumers) {
    scale_columns(*linear, found.scales);
  }
  inputs.divide(found.scales);
}

void BlockQuantizer::awq_output(BlockWeights& block, LinearInputs& inputs) {
  LayerWeights& layer = block.layer;
  BlockLinear& output = *block.of(layer.o);
  BlockLinear& values = *block.of(layer.v);
  const std::array<BlockLinear*, 1> consumers{&output};
  const std::vector<ScaledConsumer> scaled = consumers_of(consumers);
  if (scaled.empty()) {
    return;
  }
  const std::vector<std::int32_t> tied = tied_value_channels(parts_.config);
  const AwqScales found = search_awq_scales(ctx_.team(), scaled, output.cols,
                                            {inputs.second_moments, inputs.mean_abs, tied});
  if (all_ones(found.scales)) {
    return;
  }
  std::vector<float> of_values(static_cast<std::size_t>(values.rows));
  for (std::size_t i = 0; i < tied.size(); ++i) {
    of_values[static_cast<std::size_t>(tied[i])] = found.scales[i];
  }
  divide_rows(values, layer.v_bias, of_values);
  if (!layer.v_bias.empty()) {
    block.folded.emplace_back(values.module + ".bias", &layer.v_bias);
  }
  scale_columns(output, found.scales);
  inputs.divide(found.scales);
}

void BlockQuantizer::awq_down(BlockWeights& block, MlpWeights& mlp, LinearInputs& inputs) {
  BlockLinear& down = *block.of(mlp.down);
  BlockLinear& up = *block.of(mlp.up);
  const std::array<BlockLinear*, 1> consumers{&down};
  const std::vector<ScaledConsumer> scaled = consumers_of(consumers);
  if (scaled.empty() || inputs.num_tokens == 0) {
    return;
  }
  const AwqScales found = search_awq_scales(ctx_.team(), scaled, down.cols,
                                            {inputs.second_moments, inputs.mean_abs, {}});
  if (all_ones(found.scales)) {
    return;
  }
  divide_rows(up, mlp.up_bias, found.scales);
  if (!mlp.up_bias.empty()) {
    block.folded.emplace_back(up.module + ".bias", &mlp.up_bias);
  }
  scale_columns(down, found.scales);
  inputs.divide(found.scales);
}

void BlockQuantizer::smooth(BlockWeights& block, std::span<BlockLinear* const> consumers,
                            std::vector<float>* norm, const std::string& name,
                            LinearInputs& inputs) {
  const std::vector<ScaledConsumer> scaled = consumers_of(consumers);
  if (scaled.empty() || inputs.num_samples == 0) {
    return;
  }
  const std::span<const float> alphas =
      norm == nullptr ? std::span<const float>{} : std::span<const float>(options_.alphas);
  const SmoothScales found =
      search_smooth_scales(ctx_.team(), scaled, consumers[0]->cols,
                           {inputs.max_abs, inputs.samples, inputs.num_samples}, alphas);
  for (BlockLinear* linear : consumers) {
    if (found.loss > options_.smooth_limit) {
      linear->plain_activations = true;
    }
  }
  if (norm == nullptr || all_ones(found.scales)) {
    return;
  }
  fold_into_norm(*norm, parts_.config.norm_weight_offset, found.scales);
  block.folded.emplace_back(name, norm);
  for (BlockLinear* linear : consumers) {
    scale_columns(*linear, found.scales);
  }
  inputs.divide(found.scales);
}

void BlockQuantizer::quantize_linear(BlockLinear& linear, const LinearInputs* inputs) {
  ModuleReport& report = linear.report;
  if (!linear.scheme.has_value()) {
    report.scheme = "kept";
    report.bits_per_weight = 16;
    return;
  }
  const QuantScheme& scheme = *linear.scheme;
  report.scheme = scheme.text();
  if (options_.method == QuantMethod::kSmoothQuant) {
    report.scheme = linear.plain_activations ? "W8A16" : "W8A8";
  }
  report.tokens = inputs == nullptr ? 0 : inputs->num_tokens;
  const std::span<const float> moments = inputs == nullptr || inputs->num_tokens == 0
                                             ? std::span<const float>{}
                                             : std::span<const float>(inputs->second_moments);
  const std::span<const float> importance = inputs == nullptr || inputs->num_tokens == 0
                                                ? std::span<const float>{}
                                                : std::span<const float>(inputs->importance);
  const ClipSearch clip{.enabled = options_.clip && scheme.kind != GridKind::kFloat8};
  const bool solves =
      options_.method == QuantMethod::kGptq || options_.method == QuantMethod::kAwqGptq;
  ThreadTeam& team = ctx_.team();
  const double energy = output_energy(team, linear.w, linear.rows, linear.cols, moments);
  QuantizedWeights plain = round_to_nearest(team, scheme, clip, linear.w, linear.rows, linear.cols,
                                            importance, &report.clipped_share);
  const double plain_error = output_error(team, plain, linear.w, moments);
  double error = plain_error;
  if (solves && report.tokens < linear.cols) {
    report.fallback = fmt::format("{} calibration tokens for {} inputs: rounded to nearest",
                                  report.tokens, linear.cols);
  } else if (solves) {
    GptqResult result = gptq(team, scheme, {options_.damping, options_.act_order, clip}, linear.w,
                             linear.rows, linear.cols, moments);
    report.damping = result.damping;
    report.dead_columns = result.dead_columns;
    if (result.fell_back) {
      report.fallback = "the inputs' moments have no factor: rounded to nearest";
    } else {
      report.clipped_share = result.clipped_share;
      plain = std::move(result.weights);
      error = output_error(team, plain, linear.w, moments);
    }
  }
  if (energy > 0) {
    report.error = error / energy;
    report.plain_error = plain_error / energy;
  }
  report.bits_per_weight =
      8.0 * static_cast<double>(plain.code_bytes() + plain.scale_bytes() + plain.zero_bytes()) /
      static_cast<double>(linear.rows * linear.cols);
  const auto cols = static_cast<std::size_t>(linear.cols);
  team.run([&](int thread_idx) {
    const auto [begin, end] = split_range(linear.rows, 1, thread_idx, team.num_threads());
    for (std::int64_t r = begin; r < end; ++r) {
      plain.dequantize_row(r,
                           std::span(linear.w).subspan(static_cast<std::size_t>(r) * cols, cols));
    }
  });
  linear.quantized = std::move(plain);
}

}  // namespace trine
