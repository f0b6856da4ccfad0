// Quantized matrices in the layouts of the ecosystem's checkpoints and of GGUF blocks, each a few
// tensors that stand where "MODULE.weight" stood. The layouts are described in
// docs/formats/quantized-checkpoints.md. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "compress/options.h"
#include "quant/quantized_weights.h"
#include "tensor/dtype.h"

namespace trine {

struct LayoutTensor {
  std::string suffix;  // behind the module's name: ".qweight"
  DType dtype = DType::kI32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

// Ok when the format can hold a matrix of this shape. Errors: invalid_argument naming module, size
// and what would do.
Status check_layout(OutputFormat format, const QuantScheme& scheme, std::string_view module,
                    std::int64_t rows, std::int64_t cols);

// int8_activations: rows of signed bytes (W8A8) instead of packed words.
std::vector<LayoutTensor> gptq_layout(const QuantizedWeights& q);
std::vector<LayoutTensor> awq_layout(const QuantizedWeights& q);
std::vector<LayoutTensor> compressed_layout(const QuantizedWeights& q, bool int8_activations);

// The GGUF block type that holds the scheme exactly, for rows of `cols`.
std::optional<DType> gguf_block_type(const QuantScheme& scheme, std::int64_t cols);
// The matrix in those blocks, row after row.
std::vector<std::byte> gguf_blocks(const QuantizedWeights& q);

// The matrices on top of each other. All have one scheme and width.
QuantizedWeights stack_rows(const std::vector<const QuantizedWeights*>& parts);
// Rows in another order: row i of the result is row order[i].
QuantizedWeights reorder_rows(const QuantizedWeights& q, const std::vector<std::int64_t>& order);

}  // namespace trine
