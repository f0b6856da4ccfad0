// GGUF block types to the packed layout, without loss: the same codes and scales in another order.
//
// Thread rule: pure functions; the blocks of a matrix may be packed by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/packed.h"
#include "tensor/dtype.h"

namespace trine {

// The scheme that holds a type exactly, or nullopt for a type that stays as it is in its file and
// is multiplied in float32. The table is in docs/formats/packed-weights.md.
std::optional<kernels::PackedScheme> packed_scheme_of(DType type);

// Rows [32 * block, 32 * block + 32) of a matrix [rows, cols] of a type that has a scheme; `out`
// receives packed_block_bytes(). Rows past the end become zero.
void pack_block(DType type, const std::byte* data, std::int64_t row_bytes, std::int64_t rows,
                std::int64_t cols, std::int64_t block, std::uint8_t* out);

}  // namespace trine
