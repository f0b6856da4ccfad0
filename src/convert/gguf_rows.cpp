#include "convert/gguf_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/half.h"
#include "base/printable.h"
#include "kernels/dequant.h"

namespace trine {
namespace {

constexpr std::int64_t kQ8Block = 32;
constexpr std::size_t kQ8Bytes = 34;
constexpr float kMaxF16 = 65520.0F;          // the first that rounds to infinity
constexpr float kMaxQ8 = 127.0F * 65504.0F;  // the scale is an F16

// Sizes were checked by the reader and by stored_type().
std::int64_t bytes_of_row(DType type, std::int64_t cols) {
  const auto bytes = dtype_row_bytes(type, cols);
  TRINE_CHECK(bytes.has_value());
  return *bytes;
}

// The bytes of one source row.
struct SourceRow {
  const TensorInfo* tensor = nullptr;
  const std::byte* data = nullptr;
};

SourceRow row_of(const PlannedTensor& tensor, std::int64_t row) {
  std::int64_t left = source_row(tensor, row);
  for (const RowSource& source : tensor.sources) {
    if (left < source.rows) {
      // A padded table has more columns than are taken.
      const std::vector<std::int64_t>& shape = source.tensor->shape;
      const std::int64_t row_bytes =
          bytes_of_row(source.tensor->dtype, shape.size() > 1 ? shape.back() : 1);
      return {source.tensor, source.tensor->data.data() + (source.first_row + left) * row_bytes};
    }
    left -= source.rows;
  }
  TRINE_CHECK(false);  // a row past the sources
  return {};
}

Status refuse(const PlannedTensor& tensor, const SourceRow& source, std::int64_t row,
              std::int64_t col, float value, DType type) {
  return fail(ErrorCode::kCorruptData,
              "tensor {}: the value {} for row {}, column {} of {} cannot be held in {}; {}",
              printable(source.tensor->name), value, row, col, tensor.name, dtype_info(type).name,
              std::isfinite(value) ? "--type bf16 or f32 holds it" : "is the file damaged?");
}

Status encode_row(const PlannedTensor& tensor, const SourceRow& source, std::int64_t row,
                  std::span<const float> x, DType type, std::byte* out) {
  const auto cols = static_cast<std::int64_t>(x.size());
  if (type == DType::kF32) {
    std::memcpy(out, x.data(), x.size_bytes());
    return {};
  }
  const bool blocks = type == DType::kQ8_0;
  for (std::int64_t c = 0; c < cols; ++c) {
    const float value = x[static_cast<std::size_t>(c)];
    // NaN and infinities of the source stay what they are in F16 and BF16.
    const bool overflows =
        type == DType::kF16 && std::isfinite(value) && std::fabs(value) >= kMaxF16;
    if (overflows || (blocks && !(std::fabs(value) <= kMaxQ8))) {
      return refuse(tensor, source, row, c, value, type);
    }
  }
  if (blocks) {
    encode_q8_0(x, out);
    return {};
  }
  for (std::size_t c = 0; c < x.size(); ++c) {
    const std::uint16_t half = type == DType::kF16 ? f32_to_f16(x[c]) : f32_to_bf16(x[c]);
    std::memcpy(out + 2 * c, &half, sizeof half);
  }
  return {};
}

}  // namespace

DType stored_type(const PlannedTensor& tensor, DType wanted) {
  if (tensor.small) {
    return DType::kF32;
  }
  return tensor.cols() % dtype_info(wanted).block_elems == 0 ? wanted : DType::kF16;
}

void encode_q8_0(std::span<const float> x, std::byte* out) {
  TRINE_CHECK(x.size() % kQ8Block == 0);
  for (std::size_t i = 0; i < x.size(); i += kQ8Block, out += kQ8Bytes) {
    float largest = 0.0F;
    for (std::size_t k = 0; k < kQ8Block; ++k) {
      largest = std::max(largest, std::fabs(x[i + k]));
    }
    const float scale = largest / 127.0F;
    const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
    const std::uint16_t half = f32_to_f16(scale);
    std::memcpy(out, &half, sizeof half);
    for (std::size_t k = 0; k < kQ8Block; ++k) {
      out[2 + k] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(x[i + k] * inverse)));
    }
  }
}

Status encode_rows(const PlannedTensor& tensor, DType type, std::int64_t first, std::int64_t count,
                   std::vector<std::byte>& out) {
  const std::int64_t cols = tensor.cols();
  const auto row_bytes = static_cast<std::size_t>(bytes_of_row(type, cols));
  const std::size_t begin = out.size();
  out.resize(begin + static_cast<std::size_t>(count) * row_bytes);
  if (tensor.sources.empty()) {
    TRINE_CHECK(type == DType::kF32 && cols == 1);
    std::memcpy(out.data() + begin, tensor.values.data() + first,
                static_cast<std::size_t>(count) * row_bytes);
    return {};
  }
  std::vector<float> x(static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < count; ++i) {
    const SourceRow source = row_of(tensor, first + i);
    std::byte* const to = out.data() + begin + static_cast<std::size_t>(i) * row_bytes;
    if (source.tensor->dtype == type && tensor.added == 0.0F) {
      std::memcpy(to, source.data, row_bytes);
      continue;
    }
    kernels::dequantize_row(source.tensor->dtype, source.data, x.data(), cols);
    if (tensor.added != 0.0F) {  // -0 + 0 would be +0
      for (float& value : x) {
        value += tensor.added;
      }
    }
    TRINE_TRY(encode_row(tensor, source, first + i, x, type, to));
  }
  return {};
}

}  // namespace trine
