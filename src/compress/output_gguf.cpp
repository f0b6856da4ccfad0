// The output as a GGUF file: ggml's block types where one holds the scheme exactly, else the
// extension of docs/formats/gguf-extension.md.
#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "compress/output_tensors.h"
#include "format/gguf_writer.h"

namespace trine {
namespace {

constexpr QuantScheme kTableScheme{8, 32, GridKind::kSymmetric};

// A table of 8 bits, some rows at a time: in float32 it would be the largest thing in memory.
Result<std::vector<std::byte>> quantized_table(ThreadTeam& team, const TensorInfo& tensor) {
  constexpr std::int64_t kRows = 1024;
  const std::int64_t cols = tensor.shape.back();
  const std::int64_t rows = tensor.num_elems() / cols;
  const auto row_bytes = static_cast<std::int64_t>(tensor.data.size()) / rows;
  std::vector<std::byte> out;
  for (std::int64_t first = 0; first < rows; first += kRows) {
    ops::WeightView view;
    view.dtype = tensor.dtype;
    view.rows = std::min(kRows, rows - first);
    view.cols = cols;
    view.row_bytes = row_bytes;
    // Rows start at the alignment of the tensor; one that is not at its element's is copied.
    const auto bytes = tensor.data.subspan(static_cast<std::size_t>(first * row_bytes),
                                           static_cast<std::size_t>(view.rows * row_bytes));
    const std::vector<std::byte> aligned(bytes.begin(), bytes.end());
    view.data = aligned.data();
    TRINE_TRY_ASSIGN(const std::vector<float> w, widen(team, view, tensor.name));
    const std::vector<std::byte> blocks =
        gguf_blocks(round_to_nearest(team, kTableScheme, {}, w, view.rows, cols, {}, nullptr));
    out.insert(out.end(), blocks.begin(), blocks.end());
  }
  return out;
}

struct GgufOutput {
  OutputPlan output;
  std::map<std::string, QuantizedModule> extension;  // modules that no block type holds
  std::map<DType, std::int64_t> blocks;              // weights in each block type
};

void add_module(const OutputContext& context, const TensorInfo& tensor, const std::string& name,
                const QuantizedModule& module, GgufOutput& plan) {
  const std::int64_t cols = tensor.shape.back();
  if (const auto type = gguf_block_type(*module.scheme, cols)) {
    plan.output.quantized.insert(tensor.name);
    plan.output.tensors.push_back(
        {tensor.name, *type, tensor.shape, [&context, &module]() -> Result<std::vector<std::byte>> {
           TRINE_TRY_ASSIGN(const QuantizedWeights q, context.results.quantized(module));
           return gguf_blocks(q);
         }});
    plan.blocks[*type] += tensor.num_elems();
    return;
  }
  plan.extension.emplace(name, module);
  for (OutputTensor& part :
       layout_tensors(context, module, name, tensor.num_elems() / cols, cols, {})) {
    // The shape follows from the model's configuration.
    if (!part.name.ends_with(".weight_shape")) {
      plan.output.quantized.insert(part.name);
      plan.output.tensors.push_back(std::move(part));
    }
  }
}

GgufOutput plan_tensors(const OutputContext& context) {
  GgufOutput plan;
  const auto& modules = context.results.modules();
  const std::set<const TensorInfo*> tables = quantized_tables(context.parts, context.options);
  for (const TensorInfo& tensor : context.parts.checkpoint->weights().tensors()) {
    const std::string name = module_of(tensor.name);
    const auto at = name == tensor.name ? modules.end() : modules.find(name);
    if (context.results.folded_in(tensor.name) >= 0) {
      plan.output.tensors.push_back(folded_vector(context, tensor, tensor.name));
    } else if (tables.contains(&tensor)) {
      plan.output.quantized.insert(tensor.name);
      plan.output.tensors.push_back({tensor.name, DType::kQ8_0, tensor.shape, [&context, &tensor] {
                                       return quantized_table(context.team, tensor);
                                     }});
    } else if (at != modules.end() && at->second.scheme.has_value()) {
      add_module(context, tensor, name, at->second, plan);
    } else if (at != modules.end() && at->second.kept) {
      plan.output.tensors.push_back(scaled_matrix(context, at->second, tensor, tensor.name));
    } else {
      plan.output.tensors.push_back(copied(tensor, tensor.name));
    }
  }
  return plan;
}

// ggml's number for a file whose linear layers are mostly of one block type.
std::optional<std::uint32_t> file_type(const GgufOutput& plan) {
  const auto most =
      std::max_element(plan.blocks.begin(), plan.blocks.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == plan.blocks.end() || !plan.extension.empty()) {
    return std::nullopt;
  }
  switch (most->first) {
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    default:
      return 7;  // Q8_0
  }
}

std::vector<GgufMetadata::Pair> metadata(const OutputContext& context, const GgufOutput& plan) {
  constexpr std::string_view kConfigKey = "trine.quantization_config";
  constexpr std::string_view kProvenanceKey = "trine.quantization";
  std::vector<GgufMetadata::Pair> out;
  for (const GgufMetadata::Pair& pair : context.parts.checkpoint->gguf->metadata.pairs()) {
    if (pair.first != "general.file_type" && pair.first != "general.quantization_version" &&
        pair.first != kConfigKey && pair.first != kProvenanceKey) {
      out.push_back(pair);
    }
  }
  if (const auto type = file_type(plan)) {
    out.emplace_back("general.file_type", *type);
  }
  out.emplace_back("general.quantization_version", std::uint32_t{2});
  if (!plan.extension.empty()) {
    out.emplace_back(std::string(kConfigKey),
                     quantization_config(context.options, plan.extension).dump());
  }
  out.emplace_back(std::string(kProvenanceKey), context.provenance.dump());
  return out;
}

}  // namespace

std::set<const TensorInfo*> quantized_tables(const DecoderParts& parts,
                                             const QuantizeOptions& options) {
  std::set<const TensorInfo*> out;
  if (options.format != OutputFormat::kGguf) {
    return out;
  }
  const auto add = [&](const ops::WeightView& view, int bits) {
    // Rows that are no whole blocks stay as they are, as in llama.cpp.
    if (bits != 16 && view.cols % 32 == 0 && is_full_precision(view.dtype)) {
      out.insert(place_of(parts, view).tensor);
    }
  };
  // A table that is both follows the head: it is read in every step.
  add(parts.weights.output, options.head_bits);
  if (!parts.config.tied_embeddings) {
    add(parts.weights.embedding, options.embedding_bits);
  }
  return out;
}

Result<OutputSizes> write_gguf_model(const OutputContext& context, const std::string& out) {
  const GgufOutput plan = plan_tensors(context);
  std::vector<GgufTensorSpec> specs;
  for (const OutputTensor& tensor : plan.output.tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  TRINE_TRY_ASSIGN(GgufWriter writer, GgufWriter::create(out, metadata(context, plan), specs));
  OutputSizes sizes;
  for (const OutputTensor& tensor : plan.output.tensors) {
    TRINE_TRY_ASSIGN(const std::vector<std::byte> bytes, tensor.make());
    TRINE_TRY(writer.append(tensor.name, bytes));
    count_size(tensor, bytes.size(), plan.output.quantized.contains(tensor.name), sizes);
    TRINE_TRY(context.progress(tensor.name));
  }
  TRINE_TRY(writer.finish());
  return sizes;
}

}  // namespace trine
