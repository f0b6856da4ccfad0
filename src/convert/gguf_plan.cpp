#include "convert/gguf_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "model/weights.h"

namespace trine {
namespace {

struct Family {
  std::string_view name;
  std::string_view architecture;
  ops::Activation activation;
  bool interleaves;  // rows of queries and keys
};

constexpr Family kFamilies[] = {
    {"llama", "llama", ops::Activation::kSilu, true},
    {"mistral", "llama", ops::Activation::kSilu, true},
    {"mixtral", "llama", ops::Activation::kSilu, true},
    {"qwen2", "qwen2", ops::Activation::kSilu, false},
    {"qwen3", "qwen3", ops::Activation::kSilu, false},
    {"qwen3moe", "qwen3moe", ops::Activation::kSilu, false},
    {"gemma3", "gemma3", ops::Activation::kGeluTanh, false},
    {"phi3", "phi3", ops::Activation::kSilu, false},
};

Result<const Family*> find_family(std::string_view name) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) {
      return &family;
    }
    known += known.empty() ? "" : ", ";
    known += family.name;
  }
  return fail(ErrorCode::kUnsupported, "family {}: GGUF files are written for {}",
              printable(name, 60), known);
}

Status check_sayable(const ModelConfig& config, const Family& family) {
  if (config.activation != family.activation) {
    return fail(ErrorCode::kUnsupported,
                "the activation of config.json: a GGUF file of architecture {} cannot say another "
                "one than {}",
                family.architecture,
                family.activation == ops::Activation::kSilu ? "silu" : "gelu_pytorch_tanh");
  }
  const bool has_windows = family.name == "gemma3" || family.name == "phi3";
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (!has_windows && layer.window > 0 && layer.window < config.context_length) {
      return fail(
          ErrorCode::kUnsupported,
          "layer {} sees {} tokens of a context of {}: a GGUF file of architecture {} cannot "
          "say sliding windows; --ctx {} writes a file for contexts that the window does "
          "not cut",
          i, layer.window, config.context_length, family.architecture, layer.window);
    }
    if (layer.moe != config.moe.has_value()) {
      return fail(ErrorCode::kUnsupported,
                  "layer {} has no experts, others have: a GGUF file of architecture {} cannot say "
                  "that",
                  i, family.architecture);
    }
  }
  const RopeConfig& rope = config.ropes[0];
  if (rope.scaling == RopeConfig::Scaling::kYarn && !rope.truncate) {
    return fail(ErrorCode::kUnsupported,
                "rope_scaling.truncate = false: YaRN in a GGUF file rounds the ends of its ramp");
  }
  if (family.name == "gemma3") {
    const RopeConfig& local = config.ropes.back();
    const bool any_local = std::any_of(config.layers.begin(), config.layers.end(),
                                       [](const LayerConfig& layer) { return layer.window > 0; });
    if (any_local && local.scaling != RopeConfig::Scaling::kNone) {
      return fail(
          ErrorCode::kUnsupported,
          "rope_scaling of the layers with a window: a GGUF file can scale the others only");
    }
  }
  if (family.interleaves && rope.rotary_dim != config.head_dim) {
    return fail(ErrorCode::kUnsupported,
                "{} of {} dimensions rotate: a GGUF file of architecture {} rotates all",
                rope.rotary_dim, config.head_dim, family.architecture);
  }
  return {};
}

// Divisors of the frequencies of Llama 3's scaling: 1 for short waves, `factor` for long ones, in
// between by the wavelength.
std::vector<float> llama3_factors(const RopeConfig& rope) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::kNone;
  std::vector<float> out;
  for (const float frequency : rope_inverse_frequencies(plain, rope.original_context)) {
    const double wave = 2.0 * M_PI / static_cast<double>(frequency);
    const double turns = rope.original_context / wave;
    const double smooth =
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    double factor = 1.0 / ((1.0 - smooth) / rope.factor + smooth);
    if (turns > rope.high_freq_factor) {
      factor = 1.0;
    } else if (turns < rope.low_freq_factor) {
      factor = rope.factor;
    }
    out.push_back(static_cast<float>(factor));
  }
  return out;
}

class Planner {
 public:
  Planner(const DecoderParts& parts, const Family& family, GgufPlan& plan)
      : config_(parts.config),
        checkpoint_(parts.checkpoint->weights()),
        family_(family),
        gemma_(family.name == "gemma3"),
        phi3_(family.name == "phi3"),
        plan_(plan) {}

  Status run();

 private:
  Result<const TensorInfo*> source(const std::string& name) const;

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  // Tensors as they are, on top of each other when there are several.
  Status whole(std::string name, const std::vector<std::string>& sources,
               std::int64_t head_rows = 0);
  // A table over the vocabulary; rows and columns beyond the configured ones are left out.
  Status vocabulary(std::string name, const std::string& source_name);
  // A vector that Gemma stores without its 1.
  Status norm(std::string name, const std::string& source_name);
  // Some rows of a fused matrix.
  Status slice(std::string name, const std::string& source_name, std::int64_t first_row,
               std::int64_t rows, std::int64_t head_rows = 0);

  void rope();
  Status attention(const std::string& block, const std::string& layer);
  Status mlp(const std::string& block, const std::string& mlp);
  Status experts(const std::string& block, const std::string& layer);
  // One of the three matrices of all experts. `part` 0 gate, 1 up (of a fused pair); -1: alone.
  Status expert_matrix(const std::string& name, const std::string& experts, const std::string& leaf,
                       const std::string& fused, int part, std::int64_t rows, std::int64_t cols);

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const Family& family_;
  const bool gemma_;
  const bool phi3_;
  GgufPlan& plan_;
};

std::int64_t cols_of(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape.back() : 1;
}

std::int64_t rows_of(const TensorInfo& tensor) {
  return tensor.num_elems() / cols_of(tensor);
}

Result<const TensorInfo*> Planner::source(const std::string& name) const {
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, checkpoint_.require(name));
  if (tensor->dtype != DType::kF32 && tensor->dtype != DType::kF16 &&
      tensor->dtype != DType::kBF16) {
    return fail(
        ErrorCode::kUnsupported,
        "tensor {} is {}: the source is quantized already; convert the model in F32, F16 or "
        "BF16",
        printable(name), dtype_info(tensor->dtype).name);
  }
  return tensor;
}

Status Planner::whole(std::string name, const std::vector<std::string>& sources,
                      std::int64_t head_rows) {
  PlannedTensor out;
  out.name = std::move(name);
  out.head_rows = head_rows;
  for (const std::string& source_name : sources) {
    TRINE_TRY_ASSIGN(const TensorInfo* tensor, source(source_name));
    out.sources.push_back({tensor, 0, rows_of(*tensor)});
    if (out.shape.empty()) {
      out.shape = tensor->shape;
    } else {
      out.shape[0] += tensor->shape[0];
    }
  }
  out.small = out.shape.size() == 1;
  plan_.tensors.push_back(std::move(out));
  return {};
}

Status Planner::vocabulary(std::string name, const std::string& source_name) {
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, source(source_name));
  PlannedTensor out;
  out.name = std::move(name);
  out.shape = {config_.vocab_size, config_.embed_dim};
  out.sources = {{tensor, 0, config_.vocab_size}};
  plan_.tensors.push_back(std::move(out));
  return {};
}

Status Planner::norm(std::string name, const std::string& source_name) {
  TRINE_TRY(whole(std::move(name), {source_name}));
  plan_.tensors.back().added = config_.norm_weight_offset;
  return {};
}

Status Planner::slice(std::string name, const std::string& source_name, std::int64_t first_row,
                      std::int64_t rows, std::int64_t head_rows) {
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, source(source_name));
  PlannedTensor out;
  out.name = std::move(name);
  out.shape = {rows, cols_of(*tensor)};
  out.sources = {{tensor, first_row, rows}};
  out.head_rows = head_rows;
  plan_.tensors.push_back(std::move(out));
  return {};
}

void Planner::rope() {
  const auto add = [&](const char* name, std::vector<float> values) {
    PlannedTensor out;
    out.name = name;
    out.shape = {static_cast<std::int64_t>(values.size())};
    out.small = true;
    out.values = std::move(values);
    plan_.tensors.push_back(std::move(out));
  };
  const RopeConfig& rope = config_.ropes[0];
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    add("rope_freqs.weight", llama3_factors(rope));
  } else if (rope.scaling == RopeConfig::Scaling::kLongRope) {
    add("rope_factors_long.weight", rope.long_factors);
    add("rope_factors_short.weight", rope.short_factors);
  }
}

Status Planner::attention(const std::string& block, const std::string& layer) {
  const std::string attn = layer + "self_attn.";
  const std::int64_t q_rows = std::int64_t{config_.num_heads} * config_.head_dim;
  const std::int64_t kv_rows = std::int64_t{config_.num_kv_heads} * config_.head_dim;
  const std::int64_t head_rows = family_.interleaves ? config_.head_dim : 0;
  if (!has(attn + "qkv_proj.weight")) {
    TRINE_TRY(whole(block + "attn_q.weight", {attn + "q_proj.weight"}, head_rows));
    TRINE_TRY(whole(block + "attn_k.weight", {attn + "k_proj.weight"}, head_rows));
    TRINE_TRY(whole(block + "attn_v.weight", {attn + "v_proj.weight"}));
  } else if (phi3_) {
    TRINE_TRY(whole(block + "attn_qkv.weight", {attn + "qkv_proj.weight"}));
  } else {
    const std::string fused = attn + "qkv_proj.weight";
    TRINE_TRY(slice(block + "attn_q.weight", fused, 0, q_rows, head_rows));
    TRINE_TRY(slice(block + "attn_k.weight", fused, q_rows, kv_rows, head_rows));
    TRINE_TRY(slice(block + "attn_v.weight", fused, q_rows + kv_rows, kv_rows));
  }
  if (config_.qkv_bias) {
    TRINE_TRY(whole(block + "attn_q.bias", {attn + "q_proj.bias"}, head_rows));
    TRINE_TRY(whole(block + "attn_k.bias", {attn + "k_proj.bias"}, head_rows));
    TRINE_TRY(whole(block + "attn_v.bias", {attn + "v_proj.bias"}));
  }
  TRINE_TRY(whole(block + "attn_output.weight", {attn + "o_proj.weight"}));
  if (config_.output_bias) {
    TRINE_TRY(whole(block + "attn_output.bias", {attn + "o_proj.bias"}));
  }
  if (config_.qk_norm) {
    TRINE_TRY(norm(block + "attn_q_norm.weight", attn + "q_norm.weight"));
    TRINE_TRY(norm(block + "attn_k_norm.weight", attn + "k_norm.weight"));
  }
  return {};
}

Status Planner::mlp(const std::string& block, const std::string& mlp) {
  const std::string fused = mlp + "gate_up_proj.weight";
  if (phi3_) {  // one tensor, gate above up
    TRINE_TRY(whole(block + "ffn_up.weight",
                    has(fused) ? std::vector{fused}
                               : std::vector{mlp + "gate_proj.weight", mlp + "up_proj.weight"}));
  } else if (has(fused)) {
    TRINE_TRY(slice(block + "ffn_gate.weight", fused, 0, config_.ffn_dim));
    TRINE_TRY(slice(block + "ffn_up.weight", fused, config_.ffn_dim, config_.ffn_dim));
  } else {
    TRINE_TRY(whole(block + "ffn_gate.weight", {mlp + "gate_proj.weight"}));
    TRINE_TRY(whole(block + "ffn_up.weight", {mlp + "up_proj.weight"}));
  }
  TRINE_TRY(whole(block + "ffn_down.weight", {mlp + "down_proj.weight"}));
  if (config_.mlp_bias) {
    TRINE_TRY(whole(block + "ffn_gate.bias", {mlp + "gate_proj.bias"}));
    TRINE_TRY(whole(block + "ffn_up.bias", {mlp + "up_proj.bias"}));
    TRINE_TRY(whole(block + "ffn_down.bias", {mlp + "down_proj.bias"}));
  }
  return {};
}

Status Planner::expert_matrix(const std::string& name, const std::string& experts,
                              const std::string& leaf, const std::string& fused, int part,
                              std::int64_t rows, std::int64_t cols) {
  TRINE_CHECK(config_.moe.has_value());
  const std::int64_t count = config_.moe->num_experts;
  PlannedTensor out;
  out.name = name;
  out.shape = {count, rows, cols};
  for (std::int64_t e = 0; e < count; ++e) {
    if (has(fused)) {
      TRINE_TRY_ASSIGN(const TensorInfo* tensor, source(fused));
      const std::int64_t first = part < 0 ? e * rows : (2 * e + part) * rows;
      out.sources.push_back({tensor, first, rows});
    } else {
      TRINE_TRY_ASSIGN(const TensorInfo* tensor,
                       source(fmt::format("{}{}.{}.weight", experts, e, leaf)));
      out.sources.push_back({tensor, 0, rows});
    }
  }
  plan_.tensors.push_back(std::move(out));
  return {};
}

Status Planner::experts(const std::string& block, const std::string& layer) {
  TRINE_CHECK(config_.moe.has_value());
  const bool mixtral = has(layer + "block_sparse_moe.gate.weight");
  const std::string moe = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  TRINE_TRY(whole(block + "ffn_gate_inp.weight", {moe + "gate.weight"}));
  plan_.tensors.back().small = true;
  const std::string experts = moe + "experts.";
  const std::int64_t ffn = config_.moe->ffn_dim;
  const std::int64_t embed = config_.embed_dim;
  TRINE_TRY(expert_matrix(block + "ffn_gate_exps.weight", experts, mixtral ? "w1" : "gate_proj",
                          experts + "gate_up_proj", 0, ffn, embed));
  TRINE_TRY(expert_matrix(block + "ffn_up_exps.weight", experts, mixtral ? "w3" : "up_proj",
                          experts + "gate_up_proj", 1, ffn, embed));
  return expert_matrix(block + "ffn_down_exps.weight", experts, mixtral ? "w2" : "down_proj",
                       experts + "down_proj", -1, embed, ffn);
}

Status Planner::run() {
  const std::string prefix(hf_tensor_prefix(checkpoint_));
  rope();
  TRINE_TRY(vocabulary("token_embd.weight", prefix + "embed_tokens.weight"));
  for (std::int32_t i = 0; i < config_.num_layers; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    TRINE_TRY(norm(block + "attn_norm.weight", layer + "input_layernorm.weight"));
    TRINE_TRY(attention(block, layer));
    if (config_.post_norms) {
      TRINE_TRY(
          norm(block + "post_attention_norm.weight", layer + "post_attention_layernorm.weight"));
    }
    TRINE_TRY(norm(block + "ffn_norm.weight",
                   layer + (config_.post_norms ? "pre_feedforward_layernorm.weight"
                                               : "post_attention_layernorm.weight")));
    TRINE_TRY(config_.moe.has_value() ? experts(block, layer) : mlp(block, layer + "mlp."));
    if (config_.post_norms) {
      TRINE_TRY(norm(block + "post_ffw_norm.weight", layer + "post_feedforward_layernorm.weight"));
    }
  }
  TRINE_TRY(norm("output_norm.weight", prefix + "norm.weight"));
  if (!config_.tied_embeddings) {
    const std::string inner = "language_model.lm_head.weight";
    TRINE_TRY(vocabulary("output.weight", has(inner) ? inner : "lm_head.weight"));
  }
  return {};
}

}  // namespace

std::int64_t PlannedTensor::rows() const {
  std::int64_t elems = 1;
  for (const std::int64_t dim : shape) {
    elems *= dim;
  }
  return elems / cols();
}

Result<std::string_view> gguf_architecture(std::string_view family) {
  TRINE_TRY_ASSIGN(const Family* found, find_family(family));
  return found->architecture;
}

Result<GgufPlan> plan_gguf(const DecoderParts& parts) {
  if (parts.checkpoint->kind == CheckpointKind::kGguf) {
    return fail(ErrorCode::kInvalidArgument, "{} is a GGUF file already",
                parts.checkpoint->weights().source());
  }
  if (parts.config.quantization.has_value()) {
    return fail(ErrorCode::kUnsupported,
                "the source is quantized already (quantization_config); convert the model in F32, "
                "F16 or BF16");
  }
  TRINE_TRY_ASSIGN(const Family* family, find_family(parts.config.family));
  TRINE_TRY(check_sayable(parts.config, *family));
  GgufPlan plan;
  plan.architecture = family->architecture;
  TRINE_TRY(Planner(parts, *family, plan).run());
  return plan;
}

std::int64_t source_row(const PlannedTensor& tensor, std::int64_t row) {
  if (tensor.head_rows == 0) {
    return row;
  }
  const std::int64_t in_head = row % tensor.head_rows;
  return row - in_head + (in_head % 2) * (tensor.head_rows / 2) + in_head / 2;
}

std::vector<std::int64_t> row_order(const PlannedTensor& tensor) {
  std::vector<std::int64_t> out;
  if (tensor.head_rows > 0) {
    out.resize(static_cast<std::size_t>(tensor.rows()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = source_row(tensor, static_cast<std::int64_t>(i));
    }
  }
  return out;
}

void arrange_rows(const PlannedTensor& tensor, std::int64_t row_bytes,
                  std::span<const std::byte> in, std::span<std::byte> out) {
  const std::int64_t rows = tensor.rows();
  TRINE_CHECK(static_cast<std::int64_t>(in.size()) == rows * row_bytes && in.size() == out.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + row * row_bytes, in.data() + source_row(tensor, row) * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
}

std::vector<GgufPlace> gguf_places(const GgufPlan& plan, std::string_view source_name) {
  std::vector<GgufPlace> out;
  for (const PlannedTensor& tensor : plan.tensors) {
    std::int64_t row = 0;
    for (const RowSource& source : tensor.sources) {
      if (source.tensor->name == source_name) {
        out.push_back({&tensor, &source, row});
      }
      row += source.rows;
    }
  }
  return out;
}

}  // namespace trine
