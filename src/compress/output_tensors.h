// The tensors of an output, made when they are written. Inner header of output_*.cpp.
// Thread rule: as output.h.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compress/checkpoint_layout.h"
#include "compress/output.h"

namespace trine {

struct OutputTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::function<Result<std::vector<std::byte>>()> make;
};

// Values in a plain type: F32, F16 or BF16.
std::vector<std::byte> narrowed(std::span<const float> values, DType dtype);

// A tensor of the source as it is.
OutputTensor copied(const TensorInfo& tensor, std::string name);
// A vector of a block that scales were folded into, in F32.
OutputTensor folded_vector(const OutputContext& context, const TensorInfo& tensor,
                           std::string name);
// A matrix that stays in the source's type and was scaled.
OutputTensor scaled_matrix(const OutputContext& context, const QuantizedModule& module,
                           const TensorInfo& tensor, std::string name);

// What is to be written, in order.
struct OutputPlan {
  std::vector<OutputTensor> tensors;
  std::set<std::string> quantized;  // names of those that hold codes, scales or zeros
};

// The tensors that stand for a quantized module, in a checkpoint's layout. `name` without
// ".weight". row_order (may be empty): row i of the output is row row_order[i]. `context` and
// `module` outlive them.
std::vector<OutputTensor> layout_tensors(const OutputContext& context,
                                         const QuantizedModule& module, std::string name,
                                         std::int64_t rows, std::int64_t cols,
                                         std::vector<std::int64_t> row_order);

// Adds a tensor's bytes to the right sum.
void count_size(const OutputTensor& tensor, std::uint64_t bytes, bool quantized,
                OutputSizes& sizes);

}  // namespace trine
