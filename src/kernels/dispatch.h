// The kernel tables of the level in use (platform/cpu.h), and of any level for tests.
// Thread rule: any thread.
#pragma once

#include "kernels/attention.h"
#include "kernels/convert.h"
#include "kernels/dequant.h"
#include "kernels/limits.h"
#include "kernels/linear.h"
#include "kernels/packed.h"
#include "kernels/rowwise.h"
#include "kernels/select.h"
#include "platform/cpu.h"

namespace trine::kernels {

// The machine must have `level` before a function of its tables is called.
const LinearTable& linear_table(IsaLevel level);
const RowwiseTable& rowwise_table(IsaLevel level);
const ConvertTable& convert_table(IsaLevel level);
const AttentionTable& attention_table(IsaLevel level);
const AttentionI8Table& attention_i8_table(IsaLevel level);
const DequantTable& dequant_table(IsaLevel level);
const PackedTable& packed_table(IsaLevel level);
const LimitsTable& limits_table(IsaLevel level);
const SelectTable& select_table(IsaLevel level);

inline const LinearTable& linear_table() {
  return linear_table(isa_level());
}

inline const RowwiseTable& rowwise_table() {
  return rowwise_table(isa_level());
}

inline const ConvertTable& convert_table() {
  return convert_table(isa_level());
}

inline const AttentionTable& attention_table() {
  return attention_table(isa_level());
}

inline const AttentionI8Table& attention_i8_table() {
  return attention_i8_table(isa_level());
}

inline const DequantTable& dequant_table() {
  return dequant_table(isa_level());
}

inline const LimitsTable& limits_table() {
  return limits_table(isa_level());
}

inline const PackedTable& packed_table() {
  return packed_table(isa_level());
}

inline const SelectTable& select_table() {
  return select_table(isa_level());
}

}  // namespace trine::kernels
