#include "compress/block_weights.h"

#include <atomic>
#include <cmath>

#include "base/check.h"
#include "base/printable.h"
#include "kernels/dequant.h"

namespace trine {

bool is_full_precision(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::string module_of(std::string_view tensor_name) {
  constexpr std::string_view kSuffix = ".weight";
  if (tensor_name.ends_with(kSuffix)) {
    tensor_name.remove_suffix(kSuffix.size());
  }
  return std::string(tensor_name);
}

TensorPlace place_of(const DecoderParts& parts, const ops::WeightView& view) {
  const std::byte* data = view.data;
  // A tensor at an odd address was copied; the copy knows whose it is.
  for (const AlignedCopy& copy : parts.weights.aligned_copies) {
    if (data >= copy.bytes.get() && data < copy.bytes.get() + copy.original.size()) {
      data = copy.original.data() + (data - copy.bytes.get());
      break;
    }
  }
  for (const TensorInfo& tensor : parts.checkpoint->weights().tensors()) {
    if (data >= tensor.data.data() && data < tensor.data.data() + tensor.data.size()) {
      return {&tensor, (data - tensor.data.data()) / view.row_bytes};
    }
  }
  return {};
}

Result<std::vector<float>> widen(ThreadTeam& team, const ops::WeightView& view,
                                 std::string_view name) {
  std::vector<float> out(static_cast<std::size_t>(view.rows * view.cols));
  std::atomic<std::int64_t> bad{-1};
  team.run([&](int thread_idx) {
    const auto [begin, end] = split_range(view.rows, 1, thread_idx, team.num_threads());
    for (std::int64_t r = begin; r < end; ++r) {
      float* const row = out.data() + r * view.cols;
      kernels::dequantize_row(view.dtype, view.data + r * view.row_bytes, row, view.cols);
      for (std::int64_t c = 0; c < view.cols; ++c) {
        if (!(std::fabs(row[c]) <= kMaxWeight)) {
          bad = r * view.cols + c;
        }
      }
    }
  });
  if (bad >= 0) {
    return fail(
        ErrorCode::kCorruptData,
        "tensor {}: the weight at row {}, column {} is {}; NaN, infinities and sizes over {} "
        "cannot be quantized (is the file damaged?)",
        printable(name), bad / view.cols, bad % view.cols, out[static_cast<std::size_t>(bad)],
        kMaxWeight);
  }
  return out;
}

namespace {

// layer: of the source.
FoldNames fold_names_of(const DecoderParts& parts, const LayerWeights& layer) {
  const TensorPlace place = place_of(parts, layer.o);
  TRINE_CHECK(place.tensor != nullptr);
  const std::string& name = place.tensor->name;
  if (parts.checkpoint->kind == CheckpointKind::kGguf) {
    const std::string block = name.substr(0, name.find("attn_output"));
    return {block + "attn_norm.weight", block + "ffn_norm.weight"};
  }
  const std::string block = name.substr(0, name.find("self_attn."));
  return {block + "input_layernorm.weight",
          block + (parts.config.post_norms ? "pre_feedforward_layernorm.weight"
                                           : "post_attention_layernorm.weight")};
}

}  // namespace

Result<std::unique_ptr<BlockWeights>> BlockWeights::load(ThreadTeam& team,
                                                         const DecoderParts& parts,
                                                         std::int32_t layer_idx) {
  std::unique_ptr<BlockWeights> out(new BlockWeights());
  out->layer = parts.weights.layers[static_cast<std::size_t>(layer_idx)];
  out->fold_names = fold_names_of(parts, out->layer);
  const auto add = [&](ops::WeightView& view) -> Status {
    const TensorPlace place = place_of(parts, view);
    TRINE_CHECK(place.tensor != nullptr);
    auto linear = std::make_unique<BlockLinear>();
    linear->module = module_of(place.tensor->name);
    linear->first_row = place.first_row;
    linear->rows = view.rows;
    linear->cols = view.cols;
    TRINE_TRY_ASSIGN(linear->w, widen(team, view, place.tensor->name));
    view.dtype = DType::kF32;
    view.data = reinterpret_cast<const std::byte*>(linear->w.data());
    view.row_bytes = view.cols * static_cast<std::int64_t>(sizeof(float));
    linear->view = &view;
    linear->report.module = linear->module;
    linear->report.rows = view.rows;
    linear->report.cols = view.cols;
    out->linears.push_back(std::move(linear));
    return {};
  };
  LayerWeights& layer = out->layer;
  for (ops::WeightView* view : {&layer.q, &layer.k, &layer.v, &layer.o}) {
    TRINE_TRY(add(*view));
  }
  const auto add_mlp = [&](MlpWeights& mlp) -> Status {
    TRINE_TRY(add(mlp.gate));
    TRINE_TRY(add(mlp.up));
    return add(mlp.down);
  };
  if (layer.experts.empty()) {
    TRINE_TRY(add_mlp(layer.mlp));
  }
  for (MlpWeights& expert : layer.experts) {
    TRINE_TRY(add_mlp(expert));
  }
  return out;
}

std::vector<float>* BlockWeights::foldable(std::string_view name) {
  if (name == fold_names.attn_norm) {
    return &layer.attn_norm;
  }
  if (name == fold_names.ffn_norm) {
    return &layer.ffn_norm;
  }
  const auto bias_of = [&](const ops::WeightView& view, std::vector<float>& bias) {
    const BlockLinear* const linear = of(view);
    return linear != nullptr && linear->module + ".bias" == name ? &bias : nullptr;
  };
  std::vector<float>* found = bias_of(layer.v, layer.v_bias);
  if (found == nullptr) {
    found = bias_of(layer.mlp.up, layer.mlp.up_bias);
  }
  for (MlpWeights& expert : layer.experts) {
    found = found != nullptr ? found : bias_of(expert.up, expert.up_bias);
  }
  return found;
}

BlockLinear* BlockWeights::of(const ops::WeightView& view) {
  for (const auto& linear : linears) {
    if (linear->view == &view) {
      return linear.get();
    }
  }
  return nullptr;
}

}  // namespace trine
