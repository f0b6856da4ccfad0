// What `trine show` tells about a model: read from its files without loading it. Thread rule: pure
// functions on the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/open.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace trine::app {

// Tensors of one type, or quantized in one way, together.
struct TypeTotal {
  std::string name;  // "F16", "gptq 4-bit, groups of 128"
  std::int64_t num_tensors = 0;
  std::int64_t num_elems = 0;
  std::uint64_t bytes = 0;
};

struct ChatTemplateText {
  std::string name;  // "default" for the unnamed one
  std::string source;
};

// What a run's memory depends on besides the model.
struct MemoryOptions {
  std::int64_t context = 0;  // tokens; 0: the model's own
  DType kv_dtype = DType::kF16;
  bool packs_weights = true;  // int8 activations
};

// Where the bytes of a run go, computed from headers and dimensions, not measured.
struct MemoryTerms {
  std::int64_t context = 0;  // tokens the cache is computed for
  DType kv_dtype = DType::kF16;
  std::uint64_t packed_bytes = 0;      // weights in the kernels' form
  std::uint64_t mapped_bytes = 0;      // weights read from the mapped file
  std::uint64_t kv_token_bytes = 0;    // keys and values of all layers, one token
  std::uint64_t kv_context_bytes = 0;  // whole pages for `context` tokens
  std::int64_t step_tokens = 0;        // tokens of the step the activations are computed for
  std::uint64_t activation_bytes = 0;  // f32 rows of one step
  std::uint64_t logit_row_bytes = 0;   // f32, one position
  std::uint64_t total_bytes = 0;       // of packed, mapped, context, activations and one logit row
};

struct ModelDescription {
  std::string path;
  std::string format;        // "GGUF v3", "safetensors"
  std::string architecture;  // as the file says
  OpenedCheckpoint checkpoint;
  std::int64_t num_params = 0;
  std::uint64_t weight_bytes = 0;
  std::vector<TypeTotal> types;  // by bytes, largest first
  std::string tokenizer;         // kind and splitter; empty: none
  std::vector<ChatTemplateText> templates;
  // Set when this engine runs the model; else `unsupported` says why not.
  std::optional<ModelConfig> config;
  Error unsupported;
  std::optional<MemoryTerms> memory;

  double bits_per_weight() const {
    return num_params == 0
               ? 0.0
               : static_cast<double>(weight_bytes) * 8.0 / static_cast<double>(num_params);
  }
};

// Errors: as open_checkpoint(); corrupt_data for a tokenizer file or
// template that is broken; invalid_argument for a context beyond the model's.
Result<ModelDescription> describe_model(const std::string& path, const MemoryOptions& options);

}  // namespace trine::app
