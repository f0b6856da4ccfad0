// One quantized matrix of a Hugging Face checkpoint: which tensors hold it, checked against each
// other, and the codes, scales and zero points of its elements whatever the layout
// (docs/formats/quantized-checkpoints.md).
//
// A weight is scale(row, group) * (code - zero(row, group)) with unsigned codes of `bits` bits, or
// scale * E4M3 value; group_of(col) is the column's group. Sizes are in elements. Untrusted input:
// bind() checks every companion tensor's type, shape and values. Errors: corrupt_data naming the
// tensor, what was found and what was wanted; unsupported for layouts that are not read. Thread
// rule: immutable after bind(); any number of readers. The data stays in the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"
#include "format/quant_config.h"

namespace trine {

// Whether `module` ("model.layers.0.mlp.up_proj") has codes under one of the names that quantized
// checkpoints use. A float `weight` is not quantized, whatever the configuration says.
bool is_stored_quantized(const Checkpoint& checkpoint, std::string_view module);

class QuantizedLinear {
 public:
  enum class Layout : std::uint8_t {
    kGptq,     // qweight [cols * bits / 32, rows]: words along the columns of a row
    kAwqGemm,  // qweight [cols, rows / 8]: words along the rows, nibbles interleaved
    kAwqGemv,  // qweight [rows, cols / 8]
    kPacked,   // weight_packed [rows, words]
    kInt8,     // weight I8 [rows, cols]
    kFloat8,   // weight F8_E4M3 [rows, cols]
  };

  struct Shape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool more_rows = false;  // the file may have more: a padded vocabulary
  };

  static Result<QuantizedLinear> bind(const Checkpoint& checkpoint, const QuantConfig& config,
                                      const WeightScheme& scheme, std::string_view module,
                                      const Shape& wanted);

  Layout layout() const { return layout_; }

  int bits() const { return bits_; }

  std::int64_t rows() const { return rows_; }

  std::int64_t cols() const { return cols_; }

  bool int8_activations() const { return int8_activations_; }

  // ---- groups

  std::int64_t num_groups() const { return num_groups_; }

  // Columns of every group but the last, which may be short; with a group index, of the file's
  // configuration only.
  std::int64_t group_cols() const { return group_cols_; }

  // Empty, or the group of each column where groups are not runs of columns (act-order).
  const std::vector<std::int32_t>& group_index() const { return group_index_; }

  std::int64_t group_of(std::int64_t col) const {
    return group_index_.empty() ? col / group_cols_ : group_index_[static_cast<std::size_t>(col)];
  }

  // ---- elements

  // Codes of rows [row, row + num_rows) and columns [col, col + num_cols), `col` a multiple of 32;
  // rows of `out` are `stride` apart.
  void read_codes(std::int64_t row, std::int64_t num_rows, std::int64_t col, std::int64_t num_cols,
                  std::uint8_t* out, std::int64_t stride) const;
  float scale(std::int64_t row, std::int64_t group) const;
  int zero(std::int64_t row, std::int64_t group) const;

  // Rows as float32, exactly (code - zero) * scale, each rounded once.
  void read_rows(std::int64_t row, std::int64_t num_rows, float* out, std::int64_t stride) const;

  // All zero points are 2^(bits - 1).
  bool symmetric() const { return symmetric_; }

  bool scales_fit_f16() const { return scales_fit_f16_; }

  // ---- what the file was made of

  const std::vector<std::string>& tensor_names() const { return tensor_names_; }

  std::uint64_t file_bytes() const { return file_bytes_; }

  // "gptq 4-bit, groups of 128, act-order"
  std::string describe() const;

  // GPTQ zero points whose stored value wrapped around when 1 was added.
  std::int64_t wrapped_zeros() const { return wrapped_zeros_; }

  // GPTQ: the zero points say another checkpoint_format than the configuration; they are followed.
  bool relabelled() const { return relabelled_; }

  // The configuration says symmetric, the zero points do not.
  bool unlike_symmetric() const { return unlike_symmetric_; }

 private:
  // Unsigned values of `bits` bits in 32-bit words, `word_stride` words apart.
  struct Words {
    const std::byte* data = nullptr;
    std::int64_t line_stride = 0;
    std::int64_t word_stride = 1;
    int per_word = 0;  // values in a word when none crosses into the next; 0: dense
    unsigned at(std::int64_t line, std::int64_t i, int bits) const;
  };

  friend class QuantizedBinder;

  QuantizedLinear() = default;

  void read_words(std::int64_t row, std::int64_t col, std::int64_t num_cols,
                  std::uint8_t* out) const;
  unsigned stored_zero(std::int64_t row, std::int64_t group) const;

  Layout layout_ = Layout::kGptq;
  StoredMethod method_ = StoredMethod::kGptq;
  int bits_ = 4;
  WeightScheme::Strategy strategy_ = WeightScheme::Strategy::kGroup;
  bool int8_activations_ = false;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t num_groups_ = 1;
  std::int64_t group_cols_ = 1;
  std::int64_t rows_per_scale_ = 1;
  std::vector<std::int32_t> group_index_;

  Words codes_;

  const std::byte* scales_ = nullptr;
  DType scale_type_ = DType::kF16;
  std::int64_t scale_row_stride_ = 0;
  std::int64_t scale_group_stride_ = 0;

  enum class Zeros : std::uint8_t { kConstant, kWordsAlongRows, kWordsAlongGroups, kInt8 };
  Zeros zeros_kind_ = Zeros::kConstant;
  Words zeros_;
  unsigned zero_add_ = 0;  // 1 where zero points are stored less one

  bool symmetric_ = true;
  bool scales_fit_f16_ = true;
  bool relabelled_ = false;
  bool unlike_symmetric_ = false;
  std::int64_t wrapped_zeros_ = 0;
  std::vector<std::string> tensor_names_;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace trine
