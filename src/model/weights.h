// The tensors of a decoder, bound by name, type and shape to the parts of the computation.
// Matrices are views into the mapped file, most of them packed as well; norms and biases are small
// f32 copies. Thread rule: immutable after binding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"
#include "model/config.h"
#include "model/module_patterns.h"
#include "ops/ops.h"
#include "platform/huge_buffer.h"
#include "quant/quantized_matrix.h"

namespace trine {

// One gated MLP, dense or an expert: act(gate x) * (up x), then down. Biases are empty where there
// are none.
struct MlpWeights {
  ops::WeightView gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm;            // [E], before attention and MLP
  std::vector<float> post_attn_norm, post_ffn_norm;  // [E], empty without post_norms
  std::vector<float> q_norm, k_norm;                 // [D], empty without qk_norm
  ops::WeightView q, k, v, o;
  std::vector<float> q_bias, k_bias, v_bias, o_bias;
  MlpWeights mlp;          // dense layers
  ops::WeightView router;  // MoE layers: [experts, E]
  std::vector<MlpWeights> experts;
};

// Of a tensor at an odd address in its file.
struct AlignedCopy {
  std::span<const std::byte> original;
  std::unique_ptr<std::byte[]> bytes;
};

struct DecoderWeights {
  ops::WeightView embedding;  // [V, E]
  ops::WeightView output;     // [V, E]; the embedding itself when tied
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;
  std::vector<AlignedCopy> aligned_copies;
  // What views with a source read; addresses are stable.
  std::vector<std::unique_ptr<QuantizedMatrix>> quantized;
  HugeBuffer packed;  // what the views' packed forms point into (pack_weights.h)
};

// Both check that every tensor of the decoder is there with the right shape and a type that
// decodes, and that no tensor is left over. Errors: corrupt_data naming the tensor, what was found
// and what was wanted; unsupported for types without a decoder. `config` may be corrected by what
// the file holds: tied_embeddings, and in GGUF files, which have no keys for them, the biases.
Result<DecoderWeights> bind_hf_weights(const Checkpoint& checkpoint, ModelConfig& config);
Result<DecoderWeights> bind_gguf_weights(const Checkpoint& checkpoint, ModelConfig& config);

// What the names of a Hugging Face checkpoint's decoder begin with: "model." in plain models,
// longer in the text part of a multimodal one.
std::string_view hf_tensor_prefix(const Checkpoint& checkpoint);

// Looks tensors up for the two binders and keeps the account of what was missing and what was not
// used.
class TensorBinder {
 public:
  // `quantization` outlives the binder; null when there is none.
  TensorBinder(const Checkpoint& checkpoint, DecoderWeights& weights,
               const QuantConfig* quantization = nullptr)
      : checkpoint_(checkpoint), weights_(weights), quantization_(quantization) {}

  bool has(std::string_view name) const { return checkpoint_.find(name) != nullptr; }

  // Whether a matrix is there, `name` ending in ".weight", stored plainly or quantized.
  bool has_matrix(std::string_view name) const;

  // Codes without a configuration would be reported as missing weights. Error: corrupt_data naming
  // the tensor; `missing` says what the file lacks.
  Status check_configured(std::string_view missing) const;

  // A matrix [rows, cols]. A missing one is noted, not an error yet.
  Status matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                ops::WeightView& out);
  // A matrix over the vocabulary: files may have more rows, or plain ones of more columns; what is
  // beyond is not used.
  Status vocabulary_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                           ops::WeightView& out);
  // One tensor of several matrices of `cols` columns on top of each other.
  Status stacked(const std::string& name, std::span<const std::int64_t> rows, std::int64_t cols,
                 std::span<ops::WeightView* const> out);
  // A tensor [count, rows, cols], or a quantized matrix [count * rows, cols]; view `i` is its i-th
  // matrix.
  Status experts(const std::string& name, std::int64_t count, std::int64_t rows, std::int64_t cols,
                 std::vector<ops::WeightView>& out);
  // A vector of `count` values in F32, F16 or BF16.
  Status vector(const std::string& name, std::int64_t count, std::vector<float>& out);
  Status vector_if(bool wanted, const std::string& name, std::int64_t count,
                   std::vector<float>& out);

  // The tensor is known and not needed.
  void ignore(std::string_view name) { used_.insert(std::string(name)); }

  // Error when tensors are missing; `too_many` only from a number on, to stop early on a hopeless
  // file.
  Status check_missing(bool too_many_only = false) const;
  // Error for tensors that nothing used, except those a predicate allows.
  Status check_unused(bool (*allowed)(std::string_view name)) const;
  // Says in the log what the quantized matrices had that their configuration did not say.
  void log_quantized() const;

 private:
  Result<const TensorInfo*> take(const std::string& name, std::span<const std::int64_t> shape);
  ops::WeightView view(const TensorInfo& tensor, std::int64_t rows, std::int64_t cols);
  bool is_quantized(std::string_view name) const;
  Status quantized_matrix(std::string_view module, const QuantizedLinear::Shape& shape,
                          ops::WeightView& out);
  std::span<const std::int32_t> shared_order(const QuantizedMatrix& matrix) const;

  const Checkpoint& checkpoint_;
  DecoderWeights& weights_;
  const QuantConfig* quantization_;
  ModulePatterns patterns_;
  std::unordered_set<std::string> used_;
  std::vector<std::string> missing_;
};

// Rows [first, first + count) of a view that is not packed yet.
ops::WeightView rows_of(const ops::WeightView& view, std::int64_t first, std::int64_t count);

// The values of a 1-D tensor as floats. Errors: as TensorBinder::vector; missing is corrupt_data.
Result<std::vector<float>> read_float_vector(const TensorInfo& tensor, std::int64_t count);

}  // namespace trine
