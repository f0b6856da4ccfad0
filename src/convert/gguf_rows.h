// The rows of a planned tensor in the type that a GGUF file holds them in, made a stretch at a
// time.
//
// F32, F16 and BF16 round to nearest even; Q8_0 is ggml's own rounding (scale = largest / 127,
// codes rounded half away from zero), so that the blocks are those of llama.cpp's converter. Thread
// rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "convert/gguf_plan.h"
#include "tensor/dtype.h"

namespace trine {

// The type in a file whose matrices are `wanted`: F32 for what stays small, F16 for rows that
// are no whole blocks (as llama.cpp's converter does).
DType stored_type(const PlannedTensor& tensor, DType wanted);

// Blocks of 32 values each; x.size() a multiple of 32, all values finite.
void encode_q8_0(std::span<const float> x, std::byte* out);

// Appends rows [first, first + count) of the tensor in `type` to `out`. Errors: corrupt_data for a
// value that the type cannot hold (too large for F16, NaN or an infinity in blocks), naming tensor,
// row and value.
Status encode_rows(const PlannedTensor& tensor, DType type, std::int64_t first, std::int64_t count,
                   std::vector<std::byte>& out);

}  // namespace trine
