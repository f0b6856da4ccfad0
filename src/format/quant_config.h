// How the matrices of a quantized checkpoint are stored: `quantization_config` of config.json, the
// older files beside it (quantize_config.json of GPTQ, quant_config.json of AWQ), or the same in a
// GGUF file's metadata.
//
// Untrusted input. Errors: corrupt_data for types, ranges and contradictions; unsupported, by name,
// for methods, packings and transformations that this engine does not read. Each names key, value
// and limit. What is known and changes nothing here (training notes, kernels of other engines) is
// skipped; what says something unknown gives a warning in the log. Which tensors are quantized is
// decided by the tensors that are there, not by the lists of the file
// (docs/formats/quantized-checkpoints.md). Thread rule: pure functions apart from the log.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace trine {

enum class StoredMethod : std::uint8_t { kGptq, kAwq, kCompressedTensors, kFp8 };

// "gptq", "awq", "compressed-tensors", "fp8".
std::string_view stored_method_name(StoredMethod method);

// How the weights of one matrix are quantized.
struct WeightScheme {
  // Which weights share a scale: all, those of a row, `group` consecutive ones of a row, or a block
  // of block_rows x block_cols.
  enum class Strategy : std::uint8_t { kTensor, kChannel, kGroup, kBlock };
  int bits = 4;
  bool is_float = false;  // FP8 E4M3
  Strategy strategy = Strategy::kGroup;
  std::int64_t group = 128;  // kGroup
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
  // nullopt: the file does not say, and the zero points decide.
  std::optional<bool> symmetric;
  // Activations are int8 per token by the file's own word, not only by this engine's choice.
  bool int8_activations = false;
};

struct QuantConfig {
  StoredMethod method = StoredMethod::kGptq;

  // GPTQ, AWQ and FP8: one scheme for all.
  WeightScheme weights;
  bool stored_zero_is_less_one = true;  // GPTQ: checkpoint_format "gptq", not "gptq_v2"
  bool gemv = false;                    // AWQ: version "gemv", not "gemm"
  bool desc_act = false;  // GPTQ: columns were quantized out of order, g_idx is needed

  // GPTQ's `dynamic`: the first pattern that matches from a module name's beginning counts.
  struct Override {
    std::string pattern;
    bool skip = false;  // not quantized
    std::optional<int> bits;
    std::optional<std::int64_t> group;  // 0: the whole row
    std::optional<bool> symmetric;
  };

  std::vector<Override> overrides;

  // compressed-tensors: a module's scheme is that of the group with a target of its name, else with
  // a pattern that matches it, else with its class.
  struct Group {
    std::string name;
    std::vector<std::string> targets;  // a module, "re:" and a pattern, or a class ("Linear")
    WeightScheme weights;
  };

  std::vector<Group> groups;
  // Files that may leave out what the dimensions of the model say (GGUF).
  bool shapes_optional = false;
  std::vector<std::string> ignore;  // as targets; what is listed is not quantized
};

inline constexpr std::int64_t kMaxQuantGroup = std::int64_t{1} << 20;
inline constexpr std::size_t kMaxQuantPatterns = 4096;

// The value of config.json's `quantization_config`; `where` precedes key names in messages.
Result<QuantConfig> parse_quant_config(const nlohmann::ordered_json& object,
                                       std::string_view where);

// A file of its own. A missing quant_method means `method`.
Result<QuantConfig> parse_quant_config_file(std::string_view json_text, StoredMethod method);

// Of a GGUF file (docs/formats/gguf-extension.md): compressed-tensors' keys, integers only.
// `where` is the metadata key and precedes key names in messages.
Result<QuantConfig> parse_gguf_quant_config(std::string_view json_text, std::string_view where);

// Whether a pattern matches from the beginning of a module name (Python's re.match).
using ModuleMatcher =
    std::function<Result<bool>(const std::string& pattern, std::string_view module)>;

// The scheme of a module that is stored quantized; nullopt when the configuration says that it is
// not. `class_name` is what compressed-tensors' targets call it. Errors: the matcher's.
Result<std::optional<WeightScheme>> scheme_of_module(const QuantConfig& config,
                                                     std::string_view module,
                                                     std::string_view class_name,
                                                     const ModuleMatcher& matches);

}  // namespace trine
