// A quantized matrix of a Hugging Face checkpoint as the operations use it: its rows in float32,
// exactly, and its packed form for the int8 kernels, without loss
// (docs/formats/quantized-checkpoints.md).
//
// Packing keeps codes, zero points and scales as they are in the file; scales that float16 does not
// hold stay float32. Where the file's groups are not runs of columns of a size that the kernels
// know, the columns are put in order of their groups, each group filled up to whole chunks, and
// input_order() says which activation each packed column multiplies. Thread rule: immutable; any
// number of readers, and blocks may be packed by several threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/quantized_linear.h"
#include "kernels/packed.h"
#include "ops/ops.h"

namespace trine {

class QuantizedMatrix final : public ops::RowSource {
 public:
  explicit QuantizedMatrix(QuantizedLinear linear);

  const QuantizedLinear& linear() const { return linear_; }

  void read_rows(std::int64_t first, std::int64_t count, float* out,
                 std::int64_t stride) const override {
    linear_.read_rows(first, count, out, stride);
  }

  // nullopt: no packed form; the matrix is multiplied in float32 from its file.
  const std::optional<kernels::PackedScheme>& scheme() const { return scheme_; }

  // Columns of the packed form.
  std::int64_t packed_cols() const {
    return order_.empty() ? linear_.cols() : static_cast<std::int64_t>(order_.size());
  }

  // WeightView::input_order; empty where columns stay in place.
  const std::vector<std::int32_t>& input_order() const { return order_; }

  // Rows [row, row + count), count <= 32, as one block; `out` receives packed_block_bytes().
  void pack_rows(std::int64_t row, std::int64_t count, std::uint8_t* out) const;

 private:
  void plan_columns();
  void choose_scheme(std::int64_t group);

  QuantizedLinear linear_;
  std::optional<kernels::PackedScheme> scheme_;
  std::vector<std::int32_t> order_;
  // Group in the file of each group of the packed form.
  std::vector<std::int32_t> groups_;
};

}  // namespace trine
