#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/weights.h"

namespace trine {
namespace {

constexpr std::size_t kNamedInErrors = 5;
constexpr std::size_t kTooManyMissing = 64;
// q, k and v, or gate and up, are bound one after the other.
constexpr std::size_t kNeighbours = 3;
constexpr std::string_view kWeight = ".weight";

std::string_view module_of(std::string_view name) {
  return name.substr(0, name.size() - kWeight.size());
}

std::string name_list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamedInErrors); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  return names.size() > kNamedInErrors
             ? fmt::format("{} and {} more", text, names.size() - kNamedInErrors)
             : text;
}

std::size_t alignment_of(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    default:
      return 1;  // block types are packed; their readers take any address
  }
}

// What compressed-tensors' targets call a module.
std::string_view class_of(std::string_view name) {
  const bool table =
      name.find("embed_tokens.") != std::string_view::npos || name.starts_with("token_embd.");
  return table ? "Embedding" : "Linear";
}

bool all_zero(std::span<const std::byte> data) {
  return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Result<std::vector<float>> read_float_vector(const TensorInfo& tensor, std::int64_t count) {
  const std::array<std::int64_t, 1> wanted{count};
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), wanted.begin(), wanted.end())) {
    return fail(ErrorCode::kCorruptData, "tensor {} has shape {}, the configuration needs {}",
                printable(tensor.name), shape_text(tensor.shape), shape_text(wanted));
  }
  std::vector<float> out(static_cast<std::size_t>(count));
  const std::byte* data = tensor.data.data();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&out[i], data + i * sizeof(float), sizeof(float));
      continue;
    }
    std::uint16_t half = 0;
    if (tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16) {
      std::memcpy(&half, data + i * sizeof(half), sizeof(half));
    } else {
      return fail(ErrorCode::kUnsupported,
                  "tensor {} is {}: norms and biases must be F32, F16 or BF16",
                  printable(tensor.name), dtype_info(tensor.dtype).name);
    }
    out[i] = tensor.dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
  return out;
}

ops::WeightView rows_of(const ops::WeightView& view, std::int64_t first, std::int64_t count) {
  ops::WeightView out = view;
  out.rows = count;
  if (view.source != nullptr) {
    out.first_row += first;
  } else {
    out.data += first * view.row_bytes;
  }
  return out;
}

Result<const TensorInfo*> TensorBinder::take(const std::string& name,
                                             std::span<const std::int64_t> shape) {
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    missing_.push_back(name);
    return nullptr;
  }
  used_.insert(name);
  if (!std::equal(tensor->shape.begin(), tensor->shape.end(), shape.begin(), shape.end())) {
    return fail(ErrorCode::kCorruptData, "tensor {} has shape {}, the configuration needs {}",
                printable(name), shape_text(tensor->shape), shape_text(shape));
  }
  return tensor;
}

ops::WeightView TensorBinder::view(const TensorInfo& tensor, std::int64_t rows, std::int64_t cols) {
  const std::byte* data = tensor.data.data();
  if (reinterpret_cast<std::uintptr_t>(data) % alignment_of(tensor.dtype) != 0) {
    auto copy = std::make_unique<std::byte[]>(tensor.data.size());
    std::memcpy(copy.get(), data, tensor.data.size());
    data = copy.get();
    weights_.aligned_copies.push_back({tensor.data, std::move(copy)});
  }
  const auto row_bytes = dtype_row_bytes(tensor.dtype, cols);
  TRINE_CHECK(
      row_bytes.has_value());  // the file's reader checked whole blocks along the last dimension
  return {tensor.dtype, rows, cols, data, *row_bytes};
}

namespace {

Status check_matrix_type(const TensorInfo& tensor) {
  if (tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kF8E5M2) {
    return fail(ErrorCode::kUnsupported,
                "tensor {} is {}: 8-bit floats without their scales are not supported",
                printable(tensor.name), dtype_info(tensor.dtype).name);
  }
  return check_decodable(tensor);
}

}  // namespace

bool TensorBinder::has_matrix(std::string_view name) const {
  return has(name) || is_quantized(name);
}

Status TensorBinder::check_configured(std::string_view missing) const {
  if (quantization_ != nullptr) {
    return {};
  }
  for (const TensorInfo& tensor : checkpoint_.tensors()) {
    if (tensor.name.ends_with(".qweight") || tensor.name.ends_with(".weight_packed")) {
      return fail(ErrorCode::kCorruptData, "tensor {} belongs to a quantized model, but {}",
                  printable(tensor.name), missing);
    }
  }
  return {};
}

bool TensorBinder::is_quantized(std::string_view name) const {
  return quantization_ != nullptr && name.ends_with(kWeight) &&
         is_stored_quantized(checkpoint_, module_of(name));
}

// Matrices that multiply the same input mostly have the same order; then it is quantized once.
std::span<const std::int32_t> TensorBinder::shared_order(const QuantizedMatrix& matrix) const {
  const auto& all = weights_.quantized;
  for (std::size_t back = 1; back <= std::min(kNeighbours, all.size()); ++back) {
    const std::vector<std::int32_t>& order = all[all.size() - back]->input_order();
    if (order == matrix.input_order()) {
      return order;
    }
  }
  return matrix.input_order();
}

Status TensorBinder::quantized_matrix(std::string_view module, const QuantizedLinear::Shape& shape,
                                      ops::WeightView& out) {
  TRINE_TRY_ASSIGN(std::optional<WeightScheme> scheme,
                   scheme_of_module(*quantization_, module, class_of(std::string(module) + "."),
                                    [this](const std::string& pattern, std::string_view name) {
                                      return patterns_.matches(pattern, name);
                                    }));
  if (!scheme.has_value() && quantization_->method == StoredMethod::kCompressedTensors) {
    return fail(ErrorCode::kCorruptData,
                "matrix {} is stored quantized, but no group of the configuration targets it",
                printable(module));
  }
  TRINE_TRY_ASSIGN(QuantizedLinear linear,
                   QuantizedLinear::bind(checkpoint_, *quantization_,
                                         scheme.value_or(quantization_->weights), module, shape));
  used_.insert(linear.tensor_names().begin(), linear.tensor_names().end());
  auto matrix = std::make_unique<QuantizedMatrix>(std::move(linear));
  out = {};
  out.rows = shape.rows;
  out.cols = shape.cols;
  out.row_bytes = std::max<std::int64_t>(shape.cols * matrix->linear().bits() / 8, 1);
  out.source = matrix.get();
  out.input_order = shared_order(*matrix);
  weights_.quantized.push_back(std::move(matrix));
  return {};
}

void TensorBinder::log_quantized() const {
  std::int64_t relabelled = 0;
  std::int64_t unlike = 0;
  std::int64_t wrapped = 0;
  for (const auto& matrix : weights_.quantized) {
    relabelled += matrix->linear().relabelled() ? 1 : 0;
    unlike += matrix->linear().unlike_symmetric() ? 1 : 0;
    wrapped += matrix->linear().wrapped_zeros();
  }
  if (relabelled > 0) {
    log::warn(
        "{}: the zero points of {} of {} quantized matrices are those of checkpoint_format \"{}\", "
        "not of \"{}\" as the configuration says; the data is followed",
        checkpoint_.source(), relabelled, weights_.quantized.size(),
        quantization_->stored_zero_is_less_one ? "gptq_v2" : "gptq",
        quantization_->stored_zero_is_less_one ? "gptq" : "gptq_v2");
  }
  if (unlike > 0) {
    log::warn(
        "{}: sym is true, but {} of {} quantized matrices have zero points that differ; they "
        "are used as stored",
        checkpoint_.source(), unlike, weights_.quantized.size());
  }
  if (wrapped > 0) {
    log::warn("{}: {} stored zero points are the largest value and wrap to 0 when 1 is added",
              checkpoint_.source(), wrapped);
  }
}

Status TensorBinder::matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                            ops::WeightView& out) {
  if (is_quantized(name)) {
    return quantized_matrix(module_of(name), {rows, cols, false}, out);
  }
  const std::array<std::int64_t, 2> shape{rows, cols};
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, take(name, shape));
  if (tensor != nullptr) {
    TRINE_TRY(check_matrix_type(*tensor));
    out = view(*tensor, rows, cols);
  }
  return {};
}

Status TensorBinder::vocabulary_matrix(const std::string& name, std::int64_t rows,
                                       std::int64_t cols, ops::WeightView& out) {
  if (is_quantized(name)) {
    return quantized_matrix(module_of(name), {rows, cols, true}, out);
  }
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] < rows ||
      tensor->shape[1] < cols || dtype_info(tensor->dtype).block_elems != 1) {
    return matrix(name, rows, cols, out);
  }
  used_.insert(name);
  TRINE_TRY(check_matrix_type(*tensor));
  out = view(*tensor, tensor->shape[0], tensor->shape[1]);
  if (out.rows != rows || out.cols != cols) {
    log::info("tensor {} is padded to {}: the configured [{}, {}] of it are used", printable(name),
              shape_text(tensor->shape), rows, cols);
  }
  out.rows = rows;
  out.cols = cols;
  return {};
}

Status TensorBinder::stacked(const std::string& name, std::span<const std::int64_t> rows,
                             std::int64_t cols, std::span<ops::WeightView* const> out) {
  TRINE_CHECK(rows.size() == out.size());
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  ops::WeightView whole;
  TRINE_TRY(matrix(name, total, cols, whole));
  if (!whole.bound()) {
    return {};
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    *out[i] = rows_of(whole, first, rows[i]);
    first += rows[i];
  }
  return {};
}

Status TensorBinder::experts(const std::string& name, std::int64_t count, std::int64_t rows,
                             std::int64_t cols, std::vector<ops::WeightView>& out) {
  if (is_quantized(name)) {  // on top of each other, as one matrix
    ops::WeightView whole;
    TRINE_TRY(quantized_matrix(module_of(name), {count * rows, cols, false}, whole));
    out.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(rows_of(whole, i * rows, rows));
    }
    return {};
  }
  const std::array<std::int64_t, 3> shape{count, rows, cols};
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, take(name, shape));
  if (tensor == nullptr) {
    return {};
  }
  TRINE_TRY(check_matrix_type(*tensor));
  const ops::WeightView whole = view(*tensor, count * rows, cols);
  out.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(rows_of(whole, i * rows, rows));
  }
  return {};
}

Status TensorBinder::vector(const std::string& name, std::int64_t count, std::vector<float>& out) {
  const std::array<std::int64_t, 1> shape{count};
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, take(name, shape));
  if (tensor != nullptr) {
    TRINE_TRY_ASSIGN(out, read_float_vector(*tensor, count));
  }
  return {};
}

Status TensorBinder::vector_if(bool wanted, const std::string& name, std::int64_t count,
                               std::vector<float>& out) {
  return wanted ? vector(name, count, out) : Status{};
}

Status TensorBinder::check_missing(bool too_many_only) const {
  if (missing_.empty() || (too_many_only && missing_.size() < kTooManyMissing)) {
    return {};
  }
  return fail(ErrorCode::kCorruptData, "{}: {}{} tensors of the model are missing: {}",
              checkpoint_.source(), too_many_only ? "at least " : "", missing_.size(),
              name_list(missing_));
}

Status TensorBinder::check_unused(bool (*allowed)(std::string_view name)) const {
  std::vector<std::string> unused;
  for (const TensorInfo& tensor : checkpoint_.tensors()) {
    // Some converters write biases that the family does not have, filled with zeros.
    if (used_.contains(tensor.name) || allowed(tensor.name) ||
        (tensor.name.ends_with(".bias") && all_zero(tensor.data))) {
      continue;
    }
    unused.push_back(tensor.name);
  }
  if (unused.empty()) {
    return {};
  }
  return fail(ErrorCode::kUnsupported, "{}: {} tensors are not part of the configured model: {}",
              checkpoint_.source(), unused.size(), name_list(unused));
}

}  // namespace trine
