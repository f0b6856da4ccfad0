// Block formats to float32: one table per instruction set.
//
// Numeric contract: every dtype has one fixed order of float operations per element, written in
// scalar/dequant.cpp and described in docs/formats/gguf-blocks.md; the fast paths give the same
// bits. Only the payload of a NaN may differ (an infinite or NaN scale in a corrupt file). Sizes:
// `blocks` holds dtype_row_bytes(type, elems) bytes, at any alignment; `out` holds `elems` floats.
// Errors: none; `elems` must be a non-negative multiple of the block size and the type decodable
// (format/checkpoint.h check_decodable), anything else is a bug.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace trine::kernels {

using DequantFn = void (*)(const std::byte* blocks, float* out, std::int64_t elems);

struct DequantTable {
  DequantFn row[kNumDTypes];  // nullptr for types that do not decode
};

extern const DequantTable kDequantScalar;
extern const DequantTable kDequantAvx2;
extern const DequantTable kDequantAvx512;

// Through the table of the level in use (kernels/dispatch.h), with the preconditions checked.
void dequantize_row(DType type, const std::byte* blocks, float* out, std::int64_t elems);

}  // namespace trine::kernels
