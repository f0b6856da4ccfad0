#include "kernels/dequant.h"

#include "base/check.h"
#include "kernels/dispatch.h"

namespace trine::kernels {

void dequantize_row(DType type, const std::byte* blocks, float* out, std::int64_t elems) {
  const DequantFn row = dequant_table().row[static_cast<std::size_t>(type)];
  TRINE_CHECK(row != nullptr);
  TRINE_CHECK(elems >= 0 && elems % dtype_info(type).block_elems == 0);
  row(blocks, out, elems);
}

}  // namespace trine::kernels
