// Packing a model's matrices for the int8 kernels, once at load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"
#include "format/open.h"
#include "model/weights.h"
#include "platform/thread_team.h"

namespace trine {

// Packs every matrix whose type has a packed scheme (quant/pack_gguf.h) and gives the file's pages
// back to the system; the token embedding is read from the file. Uses the whole team. Errors:
// exhausted when the packed weights do not fit the memory.
Status pack_weights(const Checkpoint& checkpoint, ThreadTeam& team, DecoderWeights& weights);

// Matrices of a Hugging Face checkpoint that are quantized in one way.
struct QuantizedTotal {
  std::string what;  // "gptq 4-bit, groups of 128"
  std::int64_t num_matrices = 0;
  std::int64_t num_weights = 0;
  std::uint64_t bytes = 0;           // in the file: codes, scales, zero points, indices
  std::vector<std::string> tensors;  // their names
};

// Where the bytes of a model's weights lie once it is loaded.
struct WeightMemory {
  std::uint64_t packed_bytes = 0;  // the int8 kernels' form of the matrices
  // Read from the mapped file: all tensors, less those whose pages are given back after packing.
  std::uint64_t mapped_bytes = 0;
  std::vector<QuantizedTotal> quantized;
};

// From the file's headers, and the scales and zero points of quantized checkpoints; `packs`:
// whether matrices will be packed (int8 activations). `config` is the checkpoint's, and corrected
// as bind_gguf_weights() says. Errors: those of the two binders.
Result<WeightMemory> weight_memory(const OpenedCheckpoint& checkpoint, ModelConfig& config,
                                   bool packs);

}  // namespace trine
