// Sixteen bytes choose a layout, its sizes and what is wrong with the tensors; the rest is what
// they hold. What the descriptor accepts is read and packed, and both agree with its own codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "format/quantized_linear.h"
#include "fuzz_support.h"
#include "quant/quantized_matrix.h"

namespace {

using trine::DType;
using trine::QuantConfig;
using trine::QuantizedLinear;
using trine::StoredMethod;
using trine::TensorInfo;
using Strategy = trine::WeightScheme::Strategy;

constexpr std::size_t kHeader = 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct Case {
  std::array<std::uint8_t, kHeader> byte{};
  const std::uint8_t* rest = nullptr;
  std::size_t rest_size = 0;

  int kind = 0;  // 0 gptq, 1 awq gemm, 2 awq gemv, 3 packed, 4 bytes
  int bits = 4;
  std::int64_t rows = 1, cols = 1, groups = 1;
  QuantConfig config;
  unsigned num_added = 0;
  std::vector<TensorInfo> tensors;
  std::vector<std::shared_ptr<const void>> keep;
};

// Tensor number `idx` of the case: left out, of another type or of another shape where the header
// says so. Its bytes are an allocation of their own, so that a read beyond them is seen.
void add(Case& c, const char* name, DType type, std::vector<std::int64_t> shape) {
  const unsigned idx = c.num_added++;
  if ((c.byte[8] >> idx & 1U) != 0) {
    return;
  }
  if ((c.byte[9] >> idx & 1U) != 0) {
    constexpr std::array kTypes{DType::kI32, DType::kI64, DType::kI8,   DType::kF16,
                                DType::kF32, DType::kF64, DType::kBF16, DType::kF8E4M3};
    type = kTypes[c.byte[10] % kTypes.size()];
  }
  if ((c.byte[11] >> idx & 1U) != 0 && !shape.empty()) {
    std::int64_t& size = shape[c.byte[12] % shape.size()];
    size = std::max<std::int64_t>(0, size + static_cast<std::int8_t>(c.byte[13]));
  }
  std::int64_t elems = 1;
  for (const std::int64_t size : shape) {
    elems *= size;
  }
  const std::int64_t bytes = elems * trine::dtype_info(type).block_bytes;
  const std::shared_ptr<std::byte[]> data(new std::byte[static_cast<std::size_t>(bytes)]());
  for (std::int64_t i = 0; i < bytes && c.rest_size > 0; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * (idx + 1) + idx * 7;
    data[i] = static_cast<std::byte>(c.rest[at % c.rest_size]);
  }
  c.tensors.push_back({std::string("m.") + name,
                       type,
                       std::move(shape),
                       {data.get(), static_cast<std::size_t>(bytes)}});
  c.keep.push_back(data);
}

DType scale_type(const Case& c) {
  constexpr std::array kTypes{DType::kF16, DType::kF32, DType::kBF16};
  return kTypes[c.byte[7] % kTypes.size()];
}

Case make(const std::uint8_t* data, std::size_t size) {
  Case c;
  std::memcpy(c.byte.data(), data, kHeader);
  c.rest = data + kHeader;
  c.rest_size = size - kHeader;
  constexpr std::array kBits{4, 8, 3, 2};
  constexpr std::array kMethods{StoredMethod::kGptq, StoredMethod::kAwq, StoredMethod::kAwq,
                                StoredMethod::kCompressedTensors, StoredMethod::kFp8};
  c.kind = c.byte[0] % 5;
  c.bits = c.kind == 1 || c.kind == 2 ? 4 : c.kind == 4 ? 8 : kBits[c.byte[1] % 4];
  c.rows = 1 + c.byte[2] % 80;
  c.cols = 1 + c.byte[3];
  c.config.method = c.kind == 4 && c.byte[1] % 2 == 0 ? StoredMethod::kCompressedTensors
                                                      : kMethods[static_cast<std::size_t>(c.kind)];
  c.config.gemv = c.kind == 2;
  c.config.stored_zero_is_less_one = (c.byte[6] & 1U) != 0;
  c.config.desc_act = (c.byte[6] & 2U) != 0;
  c.config.shapes_optional = (c.byte[6] & 4U) != 0;
  trine::WeightScheme& weights = c.config.weights;
  weights.bits = c.bits;
  weights.is_float = c.kind == 4 && (c.byte[6] & 8U) != 0;
  weights.strategy = static_cast<Strategy>(c.byte[4] % 4);
  weights.group = 1 + c.byte[5] % 128;
  weights.block_rows = 1 + c.byte[5] % 16;
  weights.block_cols = 1 + c.byte[5] / 16;
  weights.int8_activations = (c.byte[6] & 16U) != 0;
  if ((c.byte[6] & 32U) != 0) {
    weights.symmetric = (c.byte[6] & 64U) != 0;
  }
  const std::int64_t width = weights.strategy == Strategy::kGroup   ? weights.group
                             : weights.strategy == Strategy::kBlock ? weights.block_cols
                                                                    : c.cols;
  c.groups = ceil_div(c.cols, std::min(width, c.cols));
  return c;
}

template <typename T>
void put(const TensorInfo& tensor, std::size_t at, T value) {
  if ((at + 1) * sizeof(T) <= tensor.data.size()) {
    std::memcpy(const_cast<std::byte*>(tensor.data.data()) + at * sizeof(T), &value, sizeof(T));
  }
}

// Values that random bytes hardly hit: the right shape, groups of columns that there are, and
// scales near 1, each where the header says so.
void make_sound(Case& c) {
  for (const TensorInfo& tensor : c.tensors) {
    const auto elems = static_cast<std::size_t>(tensor.num_elems());
    if (tensor.name.ends_with("weight_shape") && (c.byte[15] & 1U) != 0) {
      put(tensor, 0, c.rows);
      put(tensor, 1, c.cols);
    } else if (tensor.name.ends_with("g_idx") && (c.byte[15] & 4U) != 0) {
      for (std::size_t i = 0; i < elems; ++i) {
        put(tensor, i,
            static_cast<std::int32_t>((i + c.byte[14]) % static_cast<std::size_t>(c.groups)));
      }
    } else if (tensor.name.find("scale") != std::string::npos && (c.byte[15] & 8U) != 0) {
      for (std::size_t i = 0; i < elems; ++i) {
        if (tensor.dtype == DType::kF32) {
          put(tensor, i, 1.0F + static_cast<float>(i % 8));
        } else {
          put(tensor, i,
              static_cast<std::uint16_t>((tensor.dtype == DType::kF16 ? 0x3c00 : 0x3f80) + i % 64));
        }
      }
    }
  }
}

void fill(Case& c) {
  const std::int64_t bits = c.bits;
  const std::int64_t lines = c.config.weights.strategy == Strategy::kBlock
                                 ? ceil_div(c.rows, c.config.weights.block_rows)
                                 : c.rows;
  if (c.kind == 0) {
    add(c, "qweight", DType::kI32, {c.cols * bits / 32, c.rows});
    add(c, "qzeros", DType::kI32, {c.groups, ceil_div(c.rows * bits, 32)});
    add(c, "scales", scale_type(c), {c.groups, c.rows});
    add(c, "g_idx", DType::kI32, {c.cols});
  } else if (c.kind == 1) {
    c.rows = ceil_div(c.rows, 8) * 8;
    add(c, "qweight", DType::kI32, {c.cols, c.rows / 8});
    add(c, "qzeros", DType::kI32, {c.groups, c.rows / 8});
    add(c, "scales", scale_type(c), {c.groups, c.rows});
  } else if (c.kind == 2) {
    c.cols = ceil_div(c.cols, 8) * 8;
    const std::int64_t words = ceil_div(c.groups, 8) + c.byte[14] % 2;
    add(c, "qweight", DType::kI32, {c.rows, c.cols / 8});
    add(c, "qzeros", DType::kI32, {c.rows, words});
    add(c, "scales", scale_type(c), {c.rows, words * 8});
  } else if (c.kind == 3) {
    const bool spaced = c.byte[14] % 2 == 1;
    const auto words = [&](std::int64_t n) {
      return spaced ? ceil_div(n, 32 / bits) : ceil_div(n * bits, 32);
    };
    add(c, "weight_packed", DType::kI32, {c.rows, words(c.cols)});
    add(c, "weight_scale", scale_type(c), {lines, c.groups});
    add(c, "weight_zero_point", DType::kI32, {words(c.rows), c.groups});
    add(c, "weight_shape", DType::kI64, {2});
    add(c, "weight_g_idx", DType::kI32, {c.cols});
  } else {
    const bool is_float = c.config.weights.is_float;
    add(c, "weight", is_float ? DType::kF8E4M3 : DType::kI8, {c.rows, c.cols});
    add(c, c.byte[14] % 2 == 1 ? "weight_scale_inv" : "weight_scale", scale_type(c),
        c.config.weights.strategy == Strategy::kTensor ? std::vector<std::int64_t>{1}
                                                       : std::vector{lines, c.groups});
    add(c, "weight_zero_point", DType::kI8, {lines, c.groups});
  }
  make_sound(c);
}

void check_values(const QuantizedLinear& linear) {
  const auto cols = static_cast<std::size_t>(linear.cols());
  std::vector<float> row(cols);
  std::vector<std::uint8_t> codes(cols);
  for (std::int64_t r = 0; r < linear.rows(); ++r) {
    linear.read_rows(r, 1, row.data(), linear.cols());
    if (linear.layout() == QuantizedLinear::Layout::kFloat8) {
      continue;
    }
    linear.read_codes(r, 1, 0, linear.cols(), codes.data(), linear.cols());
    for (std::size_t c = 0; c < cols; ++c) {
      const std::int64_t group = linear.group_of(static_cast<std::int64_t>(c));
      const float wanted =
          static_cast<float>(codes[c] - linear.zero(r, group)) * linear.scale(r, group);
      trine::require(codes[c] < 1U << linear.bits());
      trine::require(row[c] == wanted || (std::isnan(row[c]) && std::isnan(wanted)));
    }
  }
}

void pack_all(const trine::QuantizedMatrix& matrix) {
  if (!matrix.scheme().has_value()) {
    return;
  }
  const std::int64_t bytes =
      trine::kernels::packed_block_bytes(*matrix.scheme(), matrix.packed_cols());
  const auto out = std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(bytes));
  const std::int64_t rows = matrix.linear().rows();
  for (std::int64_t r = 0; r < rows; r += trine::kernels::kPackedBlockRows) {
    matrix.pack_rows(r, std::min(rows - r, trine::kernels::kPackedBlockRows), out.get());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::log::set_level(trine::log::Level::kOff);
  if (size < kHeader) {
    return 0;
  }
  Case c = make(data, size);
  fill(c);
  const auto checkpoint = trine::Checkpoint::build("fuzz", std::move(c.tensors), std::move(c.keep));
  trine::require(checkpoint.has_value());
  const bool fewer = (c.byte[15] & 2U) != 0 && c.rows > 1;
  auto linear = QuantizedLinear::bind(*checkpoint, c.config, c.config.weights, "m",
                                      {fewer ? c.rows - 1 : c.rows, c.cols, fewer});
  if (!linear.has_value()) {
    trine::require_printable(linear.error());
    return 0;
  }
  check_values(*linear);
  pack_all(trine::QuantizedMatrix(std::move(*linear)));
  return 0;
}
