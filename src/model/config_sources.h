// ModelConfig from the two kinds of model files. The family's meaning of every key is here and only
// here. Errors: corrupt_data and unsupported, naming key, value and limit. Thread rule: pure
// functions.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "model/config.h"

namespace trine {

Result<ModelConfig> model_config_from_hf(const HfConfig& hf);

// Reads metadata, and the tensors that hold rotary factors or decide dimensions.
Result<ModelConfig> model_config_from_gguf(const GgufFile& file);

// The q.k temperature of YaRN for a stretch by `factor`: 1 + 0.1 m ln(factor), 1 for no stretch.
double yarn_attention_factor(double factor, double m = 1.0);

}  // namespace trine
