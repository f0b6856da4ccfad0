// The golden cases of tests/golden/families written as GGUF files with that format's conventions:
// permuted query and key rows for the llama architecture, 1 + w in Gemma's norms, merged experts,
// rotary factors as tensors.
#pragma once

#include <filesystem>

#include "base/error.h"
#include "support/tiny_model.h"

namespace trine::testing {

struct GgufStyle {
  DType matrices = DType::kF32;  // kF32, kF16 or kQ8_0; vectors stay F32
  // How the experts of a mixture are stored: ffn_*_exps, ffn_gate_up_exps, or one tensor per
  // expert.
  enum class Experts { kMerged, kGateUpMerged, kSingle } experts = Experts::kMerged;
};

// False for cases that the format cannot say (windows of other families than Gemma-3 and Phi-3,
// dense layers in a mixture, YaRN without rounding).
bool gguf_can_say(const FamilyCase& golden);

Status write_gguf_model(const std::filesystem::path& path, const FamilyCase& golden,
                        const GgufStyle& style = {});

}  // namespace trine::testing
