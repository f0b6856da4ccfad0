#include "compress/output_tensors.h"

#include <cstring>

#include "base/half.h"

namespace trine {

std::vector<std::byte> narrowed(std::span<const float> values, DType dtype) {
  if (dtype == DType::kF32) {
    const auto bytes = std::as_bytes(values);
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::byte> out(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        dtype == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    std::memcpy(out.data() + 2 * i, &half, sizeof half);
  }
  return out;
}

OutputTensor copied(const TensorInfo& tensor, std::string name) {
  return {std::move(name), tensor.dtype, tensor.shape,
          [data = tensor.data]() -> Result<std::vector<std::byte>> {
            return std::vector<std::byte>(data.begin(), data.end());
          }};
}

OutputTensor folded_vector(const OutputContext& context, const TensorInfo& tensor,
                           std::string name) {
  return {std::move(name), DType::kF32, tensor.shape,
          [&context, source = tensor.name]() -> Result<std::vector<std::byte>> {
            TRINE_TRY_ASSIGN(const std::vector<float> values, context.results.folded(source));
            return narrowed(values, DType::kF32);
          }};
}

OutputTensor scaled_matrix(const OutputContext& context, const QuantizedModule& module,
                           const TensorInfo& tensor, std::string name) {
  return {std::move(name), tensor.dtype, tensor.shape,
          [&context, &module, dtype = tensor.dtype]() -> Result<std::vector<std::byte>> {
            TRINE_TRY_ASSIGN(const std::vector<float> values, context.results.kept(module));
            return narrowed(values, dtype);
          }};
}

namespace {

std::vector<LayoutTensor> layout_of(const OutputContext& context, const QuantizedModule& module,
                                    const QuantizedWeights& q) {
  switch (context.options.format) {
    case OutputFormat::kGptq:
      return gptq_layout(q);
    case OutputFormat::kAwq:
      return awq_layout(q);
    default:
      return compressed_layout(
          q, context.options.method == QuantMethod::kSmoothQuant && !module.plain_activations);
  }
}

}  // namespace

std::vector<OutputTensor> layout_tensors(const OutputContext& context,
                                         const QuantizedModule& module, std::string name,
                                         std::int64_t rows, std::int64_t cols,
                                         std::vector<std::int64_t> row_order) {
  // Names, types and shapes do not depend on the codes.
  std::vector<OutputTensor> out;
  const std::vector<LayoutTensor> shapes =
      layout_of(context, module, QuantizedWeights(*module.scheme, rows, cols));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    out.push_back({name + shapes[i].suffix, shapes[i].dtype, shapes[i].shape,
                   [&context, &module, i, row_order]() -> Result<std::vector<std::byte>> {
                     TRINE_TRY_ASSIGN(QuantizedWeights q, context.results.quantized(module));
                     if (!row_order.empty()) {
                       q = reorder_rows(q, row_order);
                     }
                     return std::move(layout_of(context, module, q)[i].data);
                   }});
  }
  return out;
}

void count_size(const OutputTensor& tensor, std::uint64_t bytes, bool quantized,
                OutputSizes& sizes) {
  const auto ends = [&](std::string_view suffix) { return tensor.name.ends_with(suffix); };
  const DTypeInfo& type = dtype_info(tensor.dtype);
  if (!quantized) {
    sizes.kept += bytes;
  } else if (type.block_elems > 1) {
    // Each block has a scale, and Q4_1's its least value.
    const std::uint64_t scales = bytes / static_cast<std::uint64_t>(type.block_bytes) * 2;
    const std::uint64_t zeros = tensor.dtype == DType::kQ4_1 ? scales : 0;
    sizes.scales += scales;
    sizes.zeros += zeros;
    sizes.codes += bytes - scales - zeros;
  } else if (ends("scales") || ends("weight_scale")) {
    sizes.scales += bytes;
  } else if (ends("qzeros") || ends("weight_zero_point")) {
    sizes.zeros += bytes;
  } else {
    sizes.codes += bytes;
  }
}

}  // namespace trine
