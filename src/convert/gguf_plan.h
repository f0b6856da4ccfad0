// Which tensors a GGUF file of a Hugging Face directory has, and what each is made of.
//
// The names and conventions are llama.cpp's: query and key rows of the llama architecture lie so
// that RoPE's pairs are neighbours, Gemma's norms hold 1 + w, the experts of a layer are one
// tensor, Phi-3's q/k/v and gate/up stay fused, a tied output matrix is left out. A plan is data:
// the converter writes rows by it, and a quantizer can write quantized rows instead, because only
// whole rows change places.
//
// Thread rule: pure functions; a plan's pointers live as long as the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"
#include "model/decoder_parts.h"

namespace trine {

// Rows of a source tensor: leading dimensions count as rows, a vector is one value a row. Of a
// padded table the first columns are taken.
struct RowSource {
  const TensorInfo* tensor = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

struct PlannedTensor {
  std::string name;                 // "blk.3.attn_q.weight"
  std::vector<std::int64_t> shape;  // outermost first
  std::vector<RowSource> sources;   // on top of each other, before the rows change places
  std::int64_t head_rows = 0;  // D: the rows of each head are interleaved for RoPE; 0: as they are
  float added = 0.0F;          // to every value: 1 for Gemma's norms
  bool small = false;          // stays F32 in every file: vectors and the routers of mixtures
  std::vector<float> values;   // without sources: RoPE's factors

  // The last dimension of a matrix; 1 for vectors.
  std::int64_t cols() const { return shape.size() > 1 ? shape.back() : 1; }

  std::int64_t rows() const;
};

struct GgufPlan {
  std::string architecture;  // "llama", "qwen2", ...
  std::vector<PlannedTensor> tensors;
};

// Name of the architecture that holds a family. Errors: unsupported, naming the family.
Result<std::string_view> gguf_architecture(std::string_view family);

// Errors: invalid_argument when the source is a GGUF file; unsupported for what a GGUF file cannot
// say of the model: windows, placements of experts, activations, and sources that are quantized.
Result<GgufPlan> plan_gguf(const DecoderParts& parts);

// Row i of the tensor is row order[i] of its sources; empty: as they are.
std::vector<std::int64_t> row_order(const PlannedTensor& tensor);

// The place of source row order()[row] without the list.
std::int64_t source_row(const PlannedTensor& tensor, std::int64_t row);

// Puts rows of `row_bytes` each in the tensor's order; `in` has the sources' rows, in any encoding
// whose rows are whole (blocks do not cross them). Sizes: rows() * row_bytes each.
void arrange_rows(const PlannedTensor& tensor, std::int64_t row_bytes,
                  std::span<const std::byte> in, std::span<std::byte> out);

// A part of a source tensor in the file.
struct GgufPlace {
  const PlannedTensor* tensor = nullptr;
  const RowSource* source = nullptr;
  std::int64_t first_row = 0;  // of the part in the tensor, before rows change places
};

// Where the tensor `source_name` ("model.layers.3.self_attn.q_proj.weight") goes: one place,
// several for a fused one, none for one that the file leaves out.
std::vector<GgufPlace> gguf_places(const GgufPlan& plan, std::string_view source_name);

}  // namespace trine
