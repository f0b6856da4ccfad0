// The output as a Hugging Face directory.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "compress/output_tensors.h"
#include "format/output_file.h"
#include "format/safetensors_writer.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Beside the weights, what a model needs to be used.
constexpr std::array kCompanions{"generation_config.json",
                                 "tokenizer.json",
                                 "tokenizer_config.json",
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "tokenizer.model",
                                 "vocab.json",
                                 "merges.txt",
                                 "chat_template.jinja",
                                 "chat_template.json"};

fs::path folder_of(const std::string& source) {
  const fs::path given(source);
  return fs::is_directory(given) ? given : given.parent_path();
}

Status write_text(const fs::path& path, const std::string& text) {
  TRINE_TRY_ASSIGN(OutputFile file, OutputFile::create(path.string()));
  TRINE_TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Status write_config(const OutputContext& context, const fs::path& out) {
  const fs::path from = folder_of(context.source) / "config.json";
  std::ifstream file(from, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  TRINE_TRY_ASSIGN(Json config, parse_json(text));
  config["quantization_config"] = quantization_config(context.options, context.results.modules());
  TRINE_TRY(write_text(out / "config.json", config.dump(2) + "\n"));
  for (const char* name : kCompanions) {
    std::error_code error;
    if (!fs::exists(folder_of(context.source) / name, error)) {
      continue;
    }
    fs::copy_file(folder_of(context.source) / name, out / name, error);
    if (error) {
      return fail(ErrorCode::kExhausted, "cannot copy {} to {}: {}", name, out.string(),
                  error.message());
    }
  }
  return write_text(out / "trine_quantization.json", context.provenance.dump(2) + "\n");
}

OutputPlan plan_tensors(const OutputContext& context) {
  OutputPlan plan;
  const auto& modules = context.results.modules();
  for (const TensorInfo& tensor : context.parts.checkpoint->weights().tensors()) {
    const std::string name = module_of(tensor.name);
    const auto at = name == tensor.name ? modules.end() : modules.find(name);
    if (context.results.folded_in(tensor.name) >= 0) {
      plan.tensors.push_back(folded_vector(context, tensor, tensor.name));
    } else if (at != modules.end() && at->second.scheme.has_value()) {
      for (OutputTensor& part :
           layout_tensors(context, at->second, name, tensor.shape[0], tensor.shape[1], {})) {
        plan.quantized.insert(part.name);
        plan.tensors.push_back(std::move(part));
      }
    } else if (at != modules.end() && at->second.kept) {
      plan.tensors.push_back(scaled_matrix(context, at->second, tensor, tensor.name));
    } else {
      plan.tensors.push_back(copied(tensor, tensor.name));
    }
  }
  return plan;
}

}  // namespace

Result<OutputSizes> write_checkpoint(const OutputContext& context, const std::string& out) {
  std::error_code error;
  const fs::path folder(out);
  fs::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::kInvalidArgument, "cannot create {}: {}", out, error.message());
  }
  TRINE_TRY(write_config(context, folder));
  const OutputPlan plan = plan_tensors(context);
  std::vector<SafetensorsSpec> specs;
  std::map<std::string, const OutputTensor*> by_name;
  for (const OutputTensor& tensor : plan.tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  TRINE_TRY_ASSIGN(SafetensorsWriter writer,
                   SafetensorsWriter::create((folder / "model.safetensors").string(),
                                             std::move(specs), {{"format", "pt"}}));
  OutputSizes sizes;
  const std::vector<SafetensorsSpec> order(writer.order().begin(), writer.order().end());
  for (const SafetensorsSpec& spec : order) {
    const OutputTensor& tensor = *by_name.at(spec.name);
    TRINE_TRY_ASSIGN(const std::vector<std::byte> bytes, tensor.make());
    TRINE_TRY(writer.append(tensor.name, bytes));
    count_size(tensor, bytes.size(), plan.quantized.contains(tensor.name), sizes);
    TRINE_TRY(context.progress(tensor.name));
  }
  TRINE_TRY(writer.finish());
  return sizes;
}

}  // namespace trine
