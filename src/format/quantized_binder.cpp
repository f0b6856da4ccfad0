// Finds and checks the tensors of one quantized matrix.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "base/printable.h"
#include "format/quantized_linear.h"

namespace trine {
namespace {

using Strategy = WeightScheme::Strategy;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::string join(std::string_view module, std::string_view name) {
  std::string out(module);
  out += '.';
  out += name;
  return out;
}

Status check_shape(const TensorInfo& tensor, std::span<const std::int64_t> wanted) {
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), wanted.begin(), wanted.end())) {
    return {};
  }
  return fail(ErrorCode::kCorruptData, "tensor {} has shape {}, must have {}",
              printable(tensor.name), shape_text(tensor.shape), shape_text(wanted));
}

Status check_type(const TensorInfo& tensor, std::span<const DType> wanted) {
  if (std::find(wanted.begin(), wanted.end(), tensor.dtype) != wanted.end()) {
    return {};
  }
  std::string names;
  for (const DType type : wanted) {
    names += (names.empty() ? "" : " or ") + std::string(dtype_info(type).name);
  }
  return fail(ErrorCode::kUnsupported, "tensor {} is {}, must be {}", printable(tensor.name),
              dtype_info(tensor.dtype).name, names);
}

constexpr std::array kWordTypes{DType::kI32, DType::kU32};
constexpr std::array kScaleTypes{DType::kF16, DType::kBF16, DType::kF32};

std::int64_t integer_at(const TensorInfo& tensor, std::int64_t i) {
  if (tensor.dtype == DType::kI64) {
    std::int64_t value = 0;
    std::memcpy(&value, tensor.data.data() + i * 8, sizeof value);
    return value;
  }
  std::int32_t value = 0;
  std::memcpy(&value, tensor.data.data() + i * 4, sizeof value);
  return value;
}

bool all_zero_bytes(const TensorInfo& tensor) {
  return std::all_of(tensor.data.begin(), tensor.data.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool is_stored_quantized(const Checkpoint& checkpoint, std::string_view module) {
  if (checkpoint.find(join(module, "qweight")) != nullptr ||
      checkpoint.find(join(module, "weight_packed")) != nullptr) {
    return true;
  }
  const TensorInfo* weight = checkpoint.find(join(module, "weight"));
  return weight != nullptr &&
         (weight->dtype == DType::kI8 || checkpoint.find(join(module, "weight_scale")) != nullptr ||
          checkpoint.find(join(module, "weight_scale_inv")) != nullptr);
}

class QuantizedBinder {
 public:
  QuantizedBinder(const Checkpoint& checkpoint, const QuantConfig& config,
                  const WeightScheme& scheme, std::string_view module,
                  const QuantizedLinear::Shape& wanted)
      : checkpoint_(checkpoint),
        config_(config),
        scheme_(scheme),
        module_(module),
        wanted_(wanted) {}

  Result<QuantizedLinear> run() {
    out_.method_ = config_.method;
    out_.bits_ = scheme_.bits;
    out_.strategy_ = scheme_.strategy;
    out_.int8_activations_ = scheme_.int8_activations;
    out_.rows_ = wanted_.rows;
    out_.cols_ = wanted_.cols;
    TRINE_TRY(bind_layout());
    TRINE_TRY(check_scales());
    inspect_zeros();
    return std::move(out_);
  }

 private:
  using Layout = QuantizedLinear::Layout;
  using Zeros = QuantizedLinear::Zeros;

  const TensorInfo* find(std::string_view name) {
    const TensorInfo* tensor = checkpoint_.find(join(module_, name));
    if (tensor != nullptr) {
      out_.tensor_names_.push_back(tensor->name);
      out_.file_bytes_ += tensor->data.size();
    }
    return tensor;
  }

  Result<const TensorInfo*> require(std::string_view name) {
    if (const TensorInfo* tensor = find(name)) {
      return tensor;
    }
    return fail(ErrorCode::kCorruptData, "tensor {} is missing: matrix {} is stored quantized",
                printable(join(module_, name)), printable(module_));
  }

  Status bind_layout() {
    const bool words = checkpoint_.find(join(module_, "qweight")) != nullptr;
    const bool packed = checkpoint_.find(join(module_, "weight_packed")) != nullptr;
    const StoredMethod method = config_.method;
    if (words && (method == StoredMethod::kGptq || method == StoredMethod::kAwq)) {
      return method == StoredMethod::kGptq ? bind_gptq()
             : config_.gemv                ? bind_awq_gemv()
                                           : bind_awq_gemm();
    }
    if (packed && method == StoredMethod::kCompressedTensors) {
      return bind_packed();
    }
    if (words || packed) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {} does not belong to a file of quantization method {}",
                  printable(join(module_, words ? "qweight" : "weight_packed")),
                  stored_method_name(method));
    }
    return bind_plain();
  }

  // ---- groups

  void set_groups() {
    const bool grouped = scheme_.strategy == Strategy::kGroup;
    const bool blocks = scheme_.strategy == Strategy::kBlock;
    out_.group_cols_ = grouped  ? std::min(scheme_.group, wanted_.cols)
                       : blocks ? std::min(scheme_.block_cols, wanted_.cols)
                                : wanted_.cols;
    out_.num_groups_ = ceil_div(wanted_.cols, out_.group_cols_);
    out_.rows_per_scale_ = blocks                                  ? scheme_.block_rows
                           : scheme_.strategy == Strategy::kTensor ? out_.rows_
                                                                   : 1;
  }

  // The group of each column, where the file lists it. Every group must have a column.
  Status bind_group_index(const TensorInfo& tensor) {
    const std::array<std::int64_t, 1> shape{wanted_.cols};
    TRINE_TRY(check_shape(tensor, shape));
    constexpr std::array kTypes{DType::kI32, DType::kI64};
    TRINE_TRY(check_type(tensor, kTypes));
    std::vector<std::int32_t> index(static_cast<std::size_t>(wanted_.cols));
    std::vector<bool> used(static_cast<std::size_t>(out_.num_groups_));
    bool regular = true;
    for (std::int64_t col = 0; col < wanted_.cols; ++col) {
      const std::int64_t group = integer_at(tensor, col);
      if (group < 0 || group >= out_.num_groups_) {
        return fail(ErrorCode::kCorruptData, "tensor {}[{}] = {}: must lie in 0..{}",
                    printable(tensor.name), col, group, out_.num_groups_ - 1);
      }
      index[static_cast<std::size_t>(col)] = static_cast<std::int32_t>(group);
      used[static_cast<std::size_t>(group)] = true;
      regular = regular && group == col / out_.group_cols_;
    }
    // Old programs wrote zeros where the order was the natural one.
    if (regular || (all_zero_bytes(tensor) && !config_.desc_act)) {
      return {};
    }
    const auto unused = std::find(used.begin(), used.end(), false);
    if (unused != used.end()) {
      return fail(ErrorCode::kCorruptData, "tensor {}: no column belongs to group {} of {}",
                  printable(tensor.name), unused - used.begin(), out_.num_groups_);
    }
    out_.group_index_ = std::move(index);
    return {};
  }

  // ---- layouts

  Status bind_gptq() {
    TRINE_TRY_ASSIGN(const TensorInfo* codes, require("qweight"));
    TRINE_TRY_ASSIGN(const TensorInfo* zeros, require("qzeros"));
    TRINE_TRY_ASSIGN(const TensorInfo* scales, require("scales"));
    const std::int64_t bits = scheme_.bits;
    const std::int64_t unit = bits == 3 ? 32 : 32 / bits;
    if (wanted_.cols % unit != 0) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {}: {} columns of {} bits do not fill whole words, must be a multiple of "
                  "{}",
                  printable(codes->name), wanted_.cols, bits, unit);
    }
    TRINE_TRY(take_rows(*codes, 1, 1));
    set_groups();
    const std::array<std::int64_t, 2> code_shape{wanted_.cols * bits / 32, out_.rows_};
    const std::array<std::int64_t, 2> scale_shape{out_.num_groups_, out_.rows_};
    const std::array<std::int64_t, 2> zero_shape{out_.num_groups_, ceil_div(out_.rows_ * bits, 32)};
    TRINE_TRY(check_words(*codes, code_shape));
    TRINE_TRY(check_words(*zeros, zero_shape));
    TRINE_TRY(set_scales(*scales, scale_shape, 1, out_.rows_));
    out_.layout_ = Layout::kGptq;
    out_.codes_ = {codes->data.data(), 0, out_.rows_, 0};
    out_.zeros_kind_ = Zeros::kWordsAlongRows;
    out_.zeros_ = {zeros->data.data(), zero_shape[1], 1, 0};
    out_.zero_add_ = config_.stored_zero_is_less_one ? 1 : 0;
    if (const TensorInfo* index = find("g_idx"); index != nullptr) {
      return bind_group_index(*index);
    }
    if (config_.desc_act && out_.num_groups_ > 1) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {} is missing: with desc_act the groups are not runs of columns",
                  printable(join(module_, "g_idx")));
    }
    return {};
  }

  Status bind_awq_gemm() {
    TRINE_TRY_ASSIGN(const TensorInfo* codes, require("qweight"));
    TRINE_TRY_ASSIGN(const TensorInfo* zeros, require("qzeros"));
    TRINE_TRY_ASSIGN(const TensorInfo* scales, require("scales"));
    TRINE_TRY(take_rows(*codes, 1, 8));
    set_groups();
    const std::array<std::int64_t, 2> code_shape{wanted_.cols, out_.rows_ / 8};
    const std::array<std::int64_t, 2> zero_shape{out_.num_groups_, out_.rows_ / 8};
    const std::array<std::int64_t, 2> scale_shape{out_.num_groups_, out_.rows_};
    TRINE_TRY(check_words(*codes, code_shape));
    TRINE_TRY(check_words(*zeros, zero_shape));
    TRINE_TRY(set_scales(*scales, scale_shape, 1, out_.rows_));
    out_.layout_ = Layout::kAwqGemm;
    out_.codes_ = {codes->data.data(), code_shape[1], 1, 0};
    out_.zeros_kind_ = Zeros::kWordsAlongRows;
    out_.zeros_ = {zeros->data.data(), zero_shape[1], 1, 0};
    return {};
  }

  // Scales and zero points are padded to a number of words that depends on the group.
  Status bind_awq_gemv() {
    TRINE_TRY_ASSIGN(const TensorInfo* codes, require("qweight"));
    TRINE_TRY_ASSIGN(const TensorInfo* zeros, require("qzeros"));
    TRINE_TRY_ASSIGN(const TensorInfo* scales, require("scales"));
    if (wanted_.cols % 8 != 0) {
      return fail(ErrorCode::kCorruptData, "tensor {}: {} columns, must be a multiple of 8",
                  printable(codes->name), wanted_.cols);
    }
    TRINE_TRY(take_rows(*codes, 0, 1));
    set_groups();
    const std::array<std::int64_t, 2> code_shape{out_.rows_, wanted_.cols / 8};
    TRINE_TRY(check_words(*codes, code_shape));
    const std::int64_t words = zeros->shape.size() == 2 ? zeros->shape[1] : 0;
    const std::int64_t width = scales->shape.size() == 2 ? scales->shape[1] : 0;
    if (words * 8 < out_.num_groups_ || width < out_.num_groups_) {
      return fail(ErrorCode::kCorruptData, "tensors {} {} and {} {} hold no {} groups per row",
                  printable(zeros->name), shape_text(zeros->shape), printable(scales->name),
                  shape_text(scales->shape), out_.num_groups_);
    }
    const std::array<std::int64_t, 2> zero_shape{out_.rows_, words};
    const std::array<std::int64_t, 2> scale_shape{out_.rows_, width};
    TRINE_TRY(check_words(*zeros, zero_shape));
    TRINE_TRY(set_scales(*scales, scale_shape, width, 1));
    out_.layout_ = Layout::kAwqGemv;
    out_.codes_ = {codes->data.data(), code_shape[1], 1, 0};
    out_.zeros_kind_ = Zeros::kWordsAlongGroups;
    out_.zeros_ = {zeros->data.data(), words, 1, 0};
    return {};
  }

  Status bind_packed() {
    TRINE_TRY_ASSIGN(const TensorInfo* codes, require("weight_packed"));
    const TensorInfo* shape = find("weight_shape");
    if (shape == nullptr && !config_.shapes_optional) {
      TRINE_TRY(require("weight_shape"));
    }
    if (scheme_.is_float) {
      return fail(ErrorCode::kUnsupported, "tensor {}: packed floats are not supported",
                  printable(codes->name));
    }
    TRINE_TRY(take_rows(*codes, 0, 1));
    if (shape != nullptr) {
      TRINE_TRY(check_weight_shape(*shape));
    }
    set_groups();
    const std::int64_t bits = scheme_.bits;
    const std::int64_t dense = ceil_div(wanted_.cols * bits, 32);
    const std::int64_t spaced = ceil_div(wanted_.cols, 32 / bits);
    const std::int64_t words = codes->shape[1];
    if (words != dense && words != spaced) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {} has {} words per row: {} columns of {} bits need {} (dense) or {} ({} "
                  "in a word)",
                  printable(codes->name), words, wanted_.cols, bits, dense, spaced, 32 / bits);
    }
    // Three bits: files of 2025 leave two bits of a word idle.
    const bool told_apart = 32 % bits == 0 || dense != spaced;
    if (!told_apart && wanted_.cols > 32 / bits) {
      return fail(ErrorCode::kUnsupported,
                  "tensor {}: {} columns of {} bits fill {} words whether packed densely or not; "
                  "the file does not say which",
                  printable(codes->name), wanted_.cols, bits, words);
    }
    const int per_word = 32 % bits != 0 && words != dense ? static_cast<int>(32 / bits) : 0;
    const std::array<std::int64_t, 2> code_shape{out_.rows_, words};
    TRINE_TRY(check_words(*codes, code_shape));
    TRINE_TRY(bind_row_scales("weight_scale"));
    out_.layout_ = Layout::kPacked;
    out_.codes_ = {codes->data.data(), words, 1, per_word};
    TRINE_TRY(bind_packed_zeros(per_word));
    if (const TensorInfo* index = find("weight_g_idx"); index != nullptr) {
      return bind_group_index(*index);
    }
    return {};
  }

  // [words of the rows, groups].
  Status bind_packed_zeros(int per_word) {
    const TensorInfo* zeros = find("weight_zero_point");
    if (zeros == nullptr) {
      return check_zeros_wanted();
    }
    if (zeros->dtype == DType::kI8) {
      return bind_int8_zeros(*zeros);
    }
    const std::int64_t words =
        per_word > 0 ? ceil_div(out_.rows_, per_word) : ceil_div(out_.rows_ * scheme_.bits, 32);
    const std::array<std::int64_t, 2> shape{words, out_.num_groups_};
    TRINE_TRY(check_words(*zeros, shape));
    out_.zeros_kind_ = Zeros::kWordsAlongRows;
    // A line is a group: its words stand a row of the tensor apart.
    out_.zeros_ = {zeros->data.data(), 1, out_.num_groups_, per_word};
    return {};
  }

  Status check_zeros_wanted() const {
    if (scheme_.symmetric.value_or(true)) {
      return {};
    }
    return fail(ErrorCode::kCorruptData,
                "tensor {} is missing: the configuration says that the weights are not symmetric",
                printable(join(module_, "weight_zero_point")));
  }

  Status bind_int8_zeros(const TensorInfo& zeros) {
    constexpr std::array kTypes{DType::kI8};
    TRINE_TRY(check_type(zeros, kTypes));
    if (zeros.num_elems() != scale_elems_) {
      return fail(ErrorCode::kCorruptData, "tensor {} has shape {}, there are {} scales",
                  printable(zeros.name), shape_text(zeros.shape), scale_elems_);
    }
    if (scheme_.bits != 8 && !all_zero_bytes(zeros)) {
      return fail(ErrorCode::kUnsupported,
                  "tensor {}: zero points of {}-bit weights in bytes are not supported",
                  printable(zeros.name), scheme_.bits);
    }
    if (!all_zero_bytes(zeros)) {
      out_.zeros_kind_ = Zeros::kInt8;
      out_.zeros_.data = zeros.data.data();
    }
    return {};
  }

  // `weight` in bytes, one for each element.
  Status bind_plain() {
    TRINE_TRY_ASSIGN(const TensorInfo* codes, require("weight"));
    const bool is_float = codes->dtype == DType::kF8E4M3;
    if (!is_float && codes->dtype != DType::kI8) {
      return fail(ErrorCode::kUnsupported,
                  "tensor {} is {} with scales beside it: the weights are not stored quantized",
                  printable(codes->name), dtype_info(codes->dtype).name);
    }
    if (is_float != scheme_.is_float) {
      return fail(ErrorCode::kCorruptData, "tensor {} is {}, the configuration says {} weights",
                  printable(codes->name), dtype_info(codes->dtype).name,
                  scheme_.is_float ? "float" : "integer");
    }
    TRINE_TRY(take_rows(*codes, 0, 1));
    const std::array<std::int64_t, 2> shape{out_.rows_, wanted_.cols};
    TRINE_TRY(check_shape(*codes, shape));
    set_groups();
    out_.bits_ = 8;  // whatever fewer bits the codes use
    out_.layout_ = is_float ? Layout::kFloat8 : Layout::kInt8;
    out_.codes_.data = codes->data.data();
    const bool inverse = checkpoint_.find(join(module_, "weight_scale_inv")) != nullptr;
    TRINE_TRY(bind_row_scales(inverse ? "weight_scale_inv" : "weight_scale"));
    const TensorInfo* zeros = find("weight_zero_point");
    if (zeros == nullptr) {
      return check_zeros_wanted();
    }
    if (!is_float) {
      return bind_int8_zeros(*zeros);
    }
    if (!all_zero_bytes(*zeros)) {
      return fail(ErrorCode::kUnsupported, "tensor {}: zero points of floats are not supported",
                  printable(zeros->name));
    }
    return {};
  }

  // ---- companions

  // How many rows the file has, from dimension `dim` of the codes.
  Status take_rows(const TensorInfo& codes, std::size_t dim, std::int64_t per_entry) {
    if (codes.shape.size() != 2) {
      return fail(ErrorCode::kCorruptData, "tensor {} has shape {}, must have two dimensions",
                  printable(codes.name), shape_text(codes.shape));
    }
    const std::int64_t rows = codes.shape[dim] * per_entry;
    if (rows != wanted_.rows && (!wanted_.more_rows || rows < wanted_.rows)) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {} has shape {}: {} rows, the configuration needs {}",
                  printable(codes.name), shape_text(codes.shape), rows, wanted_.rows);
    }
    out_.rows_ = rows;
    return {};
  }

  static Status check_words(const TensorInfo& tensor, std::span<const std::int64_t> shape) {
    TRINE_TRY(check_type(tensor, kWordTypes));
    return check_shape(tensor, shape);
  }

  Status check_weight_shape(const TensorInfo& tensor) const {
    const std::array<std::int64_t, 1> two{2};
    constexpr std::array kTypes{DType::kI64, DType::kI32};
    TRINE_TRY(check_type(tensor, kTypes));
    TRINE_TRY(check_shape(tensor, two));
    const std::array<std::int64_t, 2> said{integer_at(tensor, 0), integer_at(tensor, 1)};
    if (said[0] != out_.rows_ || said[1] != wanted_.cols) {
      return fail(ErrorCode::kCorruptData, "tensor {} = {}, the matrix is [{}, {}]",
                  printable(tensor.name), shape_text(said), out_.rows_, wanted_.cols);
    }
    return {};
  }

  Status set_scales(const TensorInfo& scales, std::span<const std::int64_t> shape,
                    std::int64_t row_stride, std::int64_t group_stride) {
    TRINE_TRY(check_type(scales, kScaleTypes));
    TRINE_TRY(check_shape(scales, shape));
    scales_ = &scales;
    scale_elems_ = scales.num_elems();
    out_.scales_ = scales.data.data();
    out_.scale_type_ = scales.dtype;
    out_.scale_row_stride_ = row_stride;
    out_.scale_group_stride_ = group_stride;
    return {};
  }

  // Scales by rows, in the shapes that the strategies are written in.
  Status bind_row_scales(std::string_view name) {
    TRINE_TRY_ASSIGN(const TensorInfo* scales, require(name));
    if (scheme_.strategy == Strategy::kTensor && scales->num_elems() == 1) {
      return set_scales(*scales, scales->shape, 0, 0);
    }
    if (scheme_.strategy == Strategy::kTensor) {
      out_.strategy_ = Strategy::kChannel;
      out_.rows_per_scale_ = 1;  // some files have one for each row after all
    }
    const std::int64_t lines = ceil_div(out_.rows_, out_.rows_per_scale_);
    if (scales->shape.size() == 1 && out_.num_groups_ == 1) {
      const std::array<std::int64_t, 1> shape{lines};
      return set_scales(*scales, shape, 1, 0);
    }
    const std::array<std::int64_t, 2> shape{lines, out_.num_groups_};
    return set_scales(*scales, shape, out_.num_groups_, 1);
  }

  // ---- values

  Status check_scales() {
    const std::int64_t lines = ceil_div(out_.rows_, out_.rows_per_scale_);
    for (std::int64_t line = 0; line < lines; ++line) {
      for (std::int64_t group = 0; group < out_.num_groups_; ++group) {
        const float scale = out_.scale(line * out_.rows_per_scale_, group);
        if (!std::isfinite(scale) || scale == 0.0F) {
          return fail(ErrorCode::kCorruptData,
                      "tensor {}: the scale of row {}, group {} is {}, must be finite and not zero",
                      printable(scales_->name), line * out_.rows_per_scale_, group, scale);
        }
        out_.scales_fit_f16_ = out_.scales_fit_f16_ && f16_to_f32(f32_to_f16(scale)) == scale;
      }
    }
    return {};
  }

  // Finds out whether the zero points are all the same, and in which of GPTQ's two conventions.
  void inspect_zeros() {
    if (out_.zeros_kind_ == Zeros::kConstant) {
      return;
    }
    const unsigned half = 1U << (out_.bits_ - 1);
    const unsigned last = (1U << out_.bits_) - 1U;
    bool all_half = true;
    bool all_less_one = true;
    std::int64_t at_last = 0;
    for (std::int64_t row = 0; row < out_.rows_; ++row) {
      for (std::int64_t group = 0; group < out_.num_groups_; ++group) {
        const unsigned stored = out_.stored_zero(row, group);
        all_half = all_half && stored == half;
        all_less_one = all_less_one && stored == half - 1;
        at_last += stored == last ? 1 : 0;
      }
    }
    if (out_.layout_ == Layout::kGptq) {
      const bool may_be_symmetric = scheme_.symmetric.value_or(true);
      if (may_be_symmetric && (all_half || all_less_one)) {
        const unsigned add = all_less_one ? 1 : 0;
        out_.relabelled_ = add != out_.zero_add_;
        out_.zero_add_ = add;
      } else {
        out_.unlike_symmetric_ = scheme_.symmetric.value_or(false);
      }
      out_.wrapped_zeros_ = out_.zero_add_ == 1 ? at_last : 0;
    }
    out_.symmetric_ = out_.zero_add_ == 1 ? all_less_one : all_half;
  }

  const Checkpoint& checkpoint_;
  const QuantConfig& config_;
  const WeightScheme& scheme_;
  const std::string module_;
  const QuantizedLinear::Shape wanted_;
  const TensorInfo* scales_ = nullptr;
  std::int64_t scale_elems_ = 0;
  QuantizedLinear out_;
};

Result<QuantizedLinear> QuantizedLinear::bind(const Checkpoint& checkpoint,
                                              const QuantConfig& config, const WeightScheme& scheme,
                                              std::string_view module, const Shape& wanted) {
  TRINE_CHECK(wanted.rows > 0 && wanted.cols > 0);
  return QuantizedBinder(checkpoint, config, scheme, module, wanted).run();
}

}  // namespace trine
