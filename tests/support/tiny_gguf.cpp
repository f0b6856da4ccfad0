#include "support/tiny_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/bytes.h"
#include "base/check.h"
#include "base/half.h"
#include "format/gguf_writer.h"
#include "format/hf_config.h"
#include "model/config_sources.h"

namespace trine::testing {
namespace {

using Pairs = std::vector<GgufMetadata::Pair>;

std::string architecture(const HfConfig& hf) {
  if (hf.model_type == "qwen3_moe") {
    return "qwen3moe";
  }
  if (hf.model_type == "gemma3_text") {
    return "gemma3";
  }
  return hf.model_type == "mistral" || hf.model_type == "mixtral" ? "llama" : hf.model_type;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string gguf_name(std::string name, bool gemma) {
  const std::vector<std::pair<const char*, const char*>> table{
      {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},
      {"lm_head.", "output."},
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", gemma ? "post_attention_norm" : "ffn_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"block_sparse_moe.gate.", "ffn_gate_inp."},
      {"mlp.gate.", "ffn_gate_inp."},
  };
  for (const auto& [from, to] : table) {
    name = replaced(std::move(name), from, to);
  }
  return name;
}

// Rows of each head from (i, i + D/2) pairs to neighbours.
void interleave_heads(TinyTensor& tensor, std::int64_t head_dim) {
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  const std::size_t width = tensor.values.size() / rows;
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::vector<float> old = tensor.values;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t head = row / dim;
    const std::size_t in_head = row % dim;
    const std::size_t from = head * dim + (in_head % 2) * (dim / 2) + in_head / 2;
    std::copy_n(old.data() + from * width, width, tensor.values.data() + row * width);
  }
}

// "...experts.3.w1.weight" -> part 0 gate, 1 up, 2 down; -1 when the tensor is not an expert's.
int expert_part(const std::string& name) {
  const std::size_t at = name.find(".experts.");
  if (at == std::string::npos) {
    return -1;
  }
  const std::string leaf = name.substr(name.find('.', at + 9) + 1);
  if (leaf == "w1.weight" || leaf == "gate_proj.weight") {
    return 0;
  }
  return leaf == "w3.weight" || leaf == "up_proj.weight" ? 1 : 2;
}

// Experts come in order of their number in every golden case.
void merge_experts(std::vector<TinyTensor>& tensors, const FamilyCase& golden, const HfConfig& hf,
                   GgufStyle::Experts style) {
  const char* leaves[] = {"ffn_gate", "ffn_up", "ffn_down"};
  std::map<std::string, TinyTensor> merged;
  for (std::int64_t layer = 0; layer < hf.num_layers; ++layer) {
    for (std::int64_t expert = 0; expert < hf.num_experts; ++expert) {
      for (const TinyTensor& tensor : golden.tensors) {
        const int part = expert_part(tensor.name);
        if (part < 0 || tensor.name.find(fmt::format("layers.{}.", layer)) == std::string::npos ||
            tensor.name.find(fmt::format(".experts.{}.", expert)) == std::string::npos) {
          continue;
        }
        std::string name = fmt::format("blk.{}.{}", layer, leaves[part]);
        if (style == GgufStyle::Experts::kSingle) {
          tensors.push_back(
              {fmt::format("{}.{}.weight", name, expert), tensor.shape, tensor.values});
          continue;
        }
        TinyTensor& whole = merged[name + "_exps.weight"];
        whole.shape = {hf.num_experts, tensor.shape[0], tensor.shape[1]};
        whole.values.insert(whole.values.end(), tensor.values.begin(), tensor.values.end());
      }
    }
    if (style == GgufStyle::Experts::kGateUpMerged) {
      const TinyTensor gate = merged[fmt::format("blk.{}.ffn_gate_exps.weight", layer)];
      const TinyTensor up = merged[fmt::format("blk.{}.ffn_up_exps.weight", layer)];
      TinyTensor& both = merged[fmt::format("blk.{}.ffn_gate_up_exps.weight", layer)];
      both.shape = {gate.shape[0], gate.shape[1] * 2, gate.shape[2]};
      const std::size_t size = gate.values.size() / static_cast<std::size_t>(hf.num_experts);
      for (std::size_t e = 0; e < static_cast<std::size_t>(hf.num_experts); ++e) {
        both.values.insert(both.values.end(), gate.values.data() + e * size,
                           gate.values.data() + (e + 1) * size);
        both.values.insert(both.values.end(), up.values.data() + e * size,
                           up.values.data() + (e + 1) * size);
      }
      merged.erase(fmt::format("blk.{}.ffn_gate_exps.weight", layer));
      merged.erase(fmt::format("blk.{}.ffn_up_exps.weight", layer));
    }
  }
  for (auto& [name, tensor] : merged) {
    tensor.name = name;
    tensors.push_back(std::move(tensor));
  }
}

TinyTensor factors(const char* name, const std::vector<double>& values) {
  TinyTensor tensor{name, {static_cast<std::int64_t>(values.size())}, {}};
  tensor.values.assign(values.size(), 0.0F);
  std::transform(values.begin(), values.end(), tensor.values.begin(),
                 [](double value) { return static_cast<float>(value); });
  return tensor;
}

void add_rope(const HfConfig& hf, const ModelConfig& config, const std::string& arch, Pairs& pairs,
              std::vector<TinyTensor>& tensors) {
  const RopeConfig& rope = config.ropes[0];
  const auto f32 = [](double value) { return static_cast<float>(value); };
  pairs.emplace_back(arch + ".rope.freq_base", f32(rope.base));
  pairs.emplace_back(arch + ".rope.dimension_count", static_cast<std::uint32_t>(rope.rotary_dim));
  const auto scaling = [&](const char* type, double factor) {
    pairs.emplace_back(arch + ".rope.scaling.type", std::string(type));
    pairs.emplace_back(arch + ".rope.scaling.factor", f32(factor));
    pairs.emplace_back(arch + ".rope.scaling.original_context_length",
                       static_cast<std::uint32_t>(rope.original_context));
  };
  if (hf.rope.type == "linear") {
    pairs.emplace_back(arch + ".rope.scaling.type", std::string("linear"));
    pairs.emplace_back(arch + ".rope.scaling.factor", f32(rope.factor));
  } else if (hf.rope.type == "yarn") {
    scaling("yarn", rope.factor);
    pairs.emplace_back(arch + ".rope.scaling.attn_factor",
                       f32(rope.attention_factor / yarn_attention_factor(rope.factor)));
  } else if (hf.rope.type == "longrope") {
    scaling("longrope", 1.0);
    pairs.emplace_back(arch + ".rope.scaling.attn_factor", f32(rope.attention_factor));
    tensors.push_back(factors("rope_factors_long.weight", hf.rope.long_factor));
    tensors.push_back(factors("rope_factors_short.weight", hf.rope.short_factor));
  } else if (hf.rope.type == "llama3") {
    RopeConfig plain = rope;
    plain.scaling = RopeConfig::Scaling::kNone;
    const auto scaled = rope_inverse_frequencies(rope, config.context_length);
    const auto base = rope_inverse_frequencies(plain, config.context_length);
    std::vector<double> quotients;
    for (std::size_t i = 0; i < base.size(); ++i) {
      quotients.push_back(static_cast<double>(base[i]) / static_cast<double>(scaled[i]));
    }
    tensors.push_back(factors("rope_freqs.weight", quotients));
  }
}

Pairs metadata(const HfConfig& hf, const std::string& arch) {
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  Pairs pairs{{"general.architecture", arch}};
  pairs.emplace_back(arch + ".context_length", u32(hf.context_length));
  pairs.emplace_back(arch + ".embedding_length", u32(hf.hidden_size));
  pairs.emplace_back(arch + ".block_count", u32(hf.num_layers));
  pairs.emplace_back(arch + ".feed_forward_length", u32(hf.intermediate_size));
  pairs.emplace_back(arch + ".attention.head_count", u32(hf.num_heads));
  pairs.emplace_back(arch + ".attention.head_count_kv", u32(hf.num_kv_heads));
  pairs.emplace_back(arch + ".attention.key_length", u32(hf.head_dim));
  pairs.emplace_back(arch + ".attention.value_length", u32(hf.head_dim));
  pairs.emplace_back(arch + ".attention.layer_norm_rms_epsilon", static_cast<float>(hf.norm_eps));
  if (hf.num_experts > 0) {
    pairs.emplace_back(arch + ".expert_count", u32(hf.num_experts));
    pairs.emplace_back(arch + ".expert_used_count", u32(hf.experts_per_token));
    pairs.emplace_back(arch + ".expert_feed_forward_length", u32(hf.moe_intermediate_size));
  }
  if (hf.sliding_window > 0) {
    pairs.emplace_back(arch + ".attention.sliding_window", u32(hf.sliding_window));
    if (arch == "gemma3") {
      pairs.emplace_back(arch + ".attention.sliding_window_pattern", GgufArray(hf.sliding));
      pairs.emplace_back(arch + ".rope.freq_base_swa", static_cast<float>(hf.rope_sliding.theta));
      pairs.emplace_back(arch + ".attention.scale",
                         static_cast<float>(1.0 / std::sqrt(hf.query_pre_attn_scalar)));
      pairs.emplace_back(arch + ".final_logit_softcapping",
                         static_cast<float>(hf.final_logit_softcapping));
    }
  }
  pairs.emplace_back("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  pairs.emplace_back("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  return pairs;
}

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string encoded(DType type, std::span<const float> values) {
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF32) {
      append(out, values[i]);
    } else if (type == DType::kF16) {
      append(out, f32_to_f16(values[i]));
    } else {  // Q8_0
      float absmax = 0.0F;
      for (std::size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
        absmax = std::max(absmax, std::fabs(values[k]));
      }
      if (i % 32 == 0) {
        append(out, f32_to_f16(absmax / 127.0F));
      }
      const float scale = f16_to_f32(f32_to_f16(absmax / 127.0F));
      const float code =
          scale > 0.0F ? std::clamp(std::nearbyint(values[i] / scale), -127.0F, 127.0F) : 0.0F;
      append(out, static_cast<std::int8_t>(code));
    }
  }
  return out;
}

}  // namespace

bool gguf_can_say(const FamilyCase& golden) {
  const auto hf = parse_hf_config(golden.config);
  TRINE_CHECK(hf.has_value());
  const bool windows =
      hf->sliding_window == 0 || hf->model_type == "gemma3_text" || hf->model_type == "phi3";
  const bool mixed =
      std::find(hf->moe_layer.begin(), hf->moe_layer.end(), false) != hf->moe_layer.end();
  return windows && !mixed && hf->rope.truncate;
}

Status write_gguf_model(const std::filesystem::path& path, const FamilyCase& golden,
                        const GgufStyle& style) {
  TRINE_TRY_ASSIGN(const HfConfig hf, parse_hf_config(golden.config));
  TRINE_TRY_ASSIGN(const ModelConfig config, model_config_from_hf(hf));
  const std::string arch = architecture(hf);
  Pairs pairs = metadata(hf, arch);
  std::vector<TinyTensor> tensors;
  add_rope(hf, config, arch, pairs, tensors);
  const bool gemma = arch == "gemma3";
  for (const TinyTensor& tensor : golden.tensors) {
    if (expert_part(tensor.name) >= 0) {
      continue;
    }
    TinyTensor& out = tensors.emplace_back(tensor);
    out.name = gguf_name(tensor.name, gemma);
    if (arch == "llama" && (out.name.find("attn_q.") != std::string::npos ||
                            out.name.find("attn_k.") != std::string::npos)) {
      interleave_heads(out, hf.head_dim);
    }
    if (gemma && out.name.ends_with("norm.weight")) {
      for (float& value : out.values) {
        value += 1.0F;
      }
    }
  }
  merge_experts(tensors, golden, hf, style.experts);

  std::vector<std::string> bytes;
  bytes.reserve(tensors.size());
  std::vector<TensorInfo> infos;
  for (const TinyTensor& tensor : tensors) {
    DType type = tensor.shape.size() > 1 ? style.matrices : DType::kF32;
    if (tensor.shape.back() % dtype_info(type).block_elems != 0) {
      type = DType::kF32;  // as converters do
    }
    const std::string& data = bytes.emplace_back(encoded(type, tensor.values));
    infos.push_back({tensor.name, type, tensor.shape, as_byte_span(data)});
  }
  return write_gguf(path.string(), pairs, infos);
}

}  // namespace trine::testing
