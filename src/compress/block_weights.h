// One block of a full-precision model, its linear layers widened to float32 so that they can be
// scaled, quantized and run in place.
// Thread rule: the thread that owns the team.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/decoder_parts.h"
#include "platform/thread_team.h"
#include "quant/quantized_weights.h"

namespace trine {

// What was done to one linear layer, for the report.
struct ModuleReport {
  std::string module;
  std::int64_t rows = 0, cols = 0;
  std::string scheme;           // "4-bit g64 asym", "kept", "W8A8"
  double bits_per_weight = 0;   // with scales and zeros
  std::optional<double> error;  // share of the outputs' energy, or of the weights' without moments
  std::optional<double> plain_error;  // of rounding to nearest, the same share
  double clipped_share = 0;
  double damping = 0;
  std::int64_t dead_columns = 0;
  std::int64_t tokens = 0;  // that it was calibrated on
  std::string fallback;     // why the method was not used; empty: it was
};

// A linear layer of the block. `view` of the layer points at w.
struct BlockLinear {
  std::string module;  // its tensor's name without ".weight"; parts of a fused tensor share it
  std::int64_t first_row = 0;  // of a fused tensor
  std::vector<float> w;        // [rows, cols]; after quantizing, what the codes stand for
  std::int64_t rows = 0, cols = 0;
  ops::WeightView* view = nullptr;
  std::optional<QuantScheme> scheme;  // none: stays as it is
  bool plain_activations = false;     // W8A16 under SmoothQuant
  bool scaled = false;                // its weights are no longer the source's
  std::optional<QuantizedWeights> quantized;
  ModuleReport report;
};

// Names of the vectors of a block that scales are folded into, in the source's spelling.
struct FoldNames {
  std::string attn_norm, ffn_norm;
};

class BlockWeights {
 public:
  // Errors: corrupt_data naming a tensor that holds NaN or an infinity, and out_of_range values
  // (kMaxWeight).
  static Result<std::unique_ptr<BlockWeights>> load(ThreadTeam& team, const DecoderParts& parts,
                                                    std::int32_t layer_idx);
  BlockWeights(const BlockWeights&) = delete;
  BlockWeights& operator=(const BlockWeights&) = delete;
  ~BlockWeights() = default;

  LayerWeights layer;  // views at the buffers below
  FoldNames fold_names;
  std::vector<std::unique_ptr<BlockLinear>> linears;
  // Vectors that scales were folded into, by their tensor's name.
  std::vector<std::pair<std::string, std::vector<float>*>> folded;

  // The vector that scales are folded into under this name; nullptr: none is called so.
  std::vector<float>* foldable(std::string_view name);

  // nullptr when the block has no such layer.
  BlockLinear* of(const ops::WeightView& view);

 private:
  BlockWeights() = default;
};

// The tensor that a view's bytes lie in, and how many of its rows come before. Errors: none; a view
// that the binder made is found.
struct TensorPlace {
  const TensorInfo* tensor = nullptr;
  std::int64_t first_row = 0;
};

TensorPlace place_of(const DecoderParts& parts, const ops::WeightView& view);

// "model.layers.0.self_attn.q_proj.weight" -> "model.layers.0.self_attn.q_proj".
std::string module_of(std::string_view tensor_name);

// Whether the matrix is in full precision.
bool is_full_precision(DType dtype);

// view as float32 rows, [rows, cols]. Errors: as BlockWeights::load.
Result<std::vector<float>> widen(ThreadTeam& team, const ops::WeightView& view,
                                 std::string_view name);

}  // namespace trine
