// ModelConfig from the two kinds of model files. The family's meaning of every key is here and only
// here. Errors: corrupt_data and unsupported, naming key, value and limit. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "model/config.h"

namespace trine {

Result<ModelConfig> model_config_from_hf(const HfConfig& hf);

// config.json of a model directory, and the older quantize_config.json (GPTQ) or quant_config.json
// (AWQ) beside it where config.json says nothing of quantization. Errors name the file;
// corrupt_data when there is no config.json.
Result<ModelConfig> model_config_from_folder(const std::filesystem::path& folder);

// JSON text: how the matrices that no block type holds are stored
// (docs/formats/gguf-extension.md).
inline constexpr std::string_view kGgufQuantizationKey = "trine.quantization_config";

// Reads metadata, and the tensors that hold rotary factors or decide dimensions.
Result<ModelConfig> model_config_from_gguf(const GgufFile& file);

// The q.k temperature of YaRN for a stretch by `factor`: 1 + 0.1 m ln(factor), 1 for no stretch.
double yarn_attention_factor(double factor, double m = 1.0);

}  // namespace trine
