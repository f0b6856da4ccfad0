#include "compress/checkpoint_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "base/printable.h"

namespace trine {
namespace {

// Values of `bits` each behind one another in 32-bit words along each of `lines` lines, lowest bits
// first; every line starts with a word. get(line, i) is the i-th value of a line.
template <typename Get>
std::vector<std::uint32_t> pack_lines(std::int64_t lines, std::int64_t count, int bits, Get get) {
  const std::int64_t words = (count * bits + 31) / 32;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(lines * words));
  for (std::int64_t line = 0; line < lines; ++line) {
    std::uint32_t* const to = out.data() + line * words;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = i * bits;
      const std::uint64_t wide = std::uint64_t{get(line, i)} << (at % 32);
      to[at / 32] |= static_cast<std::uint32_t>(wide);
      if (at % 32 + bits > 32) {
        to[at / 32 + 1] |= static_cast<std::uint32_t>(wide >> 32);
      }
    }
  }
  return out;
}

// [lines, words] to [words, lines].
std::vector<std::uint32_t> transposed(const std::vector<std::uint32_t>& in, std::int64_t lines) {
  const auto words = static_cast<std::int64_t>(in.size()) / lines;
  std::vector<std::uint32_t> out(in.size());
  for (std::int64_t l = 0; l < lines; ++l) {
    for (std::int64_t w = 0; w < words; ++w) {
      out[static_cast<std::size_t>(w * lines + l)] = in[static_cast<std::size_t>(l * words + w)];
    }
  }
  return out;
}

template <typename T>
LayoutTensor tensor(std::string suffix, DType dtype, std::vector<std::int64_t> shape,
                    const std::vector<T>& values) {
  LayoutTensor out{std::move(suffix), dtype, std::move(shape), {}};
  out.data.resize(values.size() * sizeof(T));
  std::memcpy(out.data.data(), values.data(), out.data.size());
  return out;
}

std::uint8_t code_at(const QuantizedWeights& q, std::int64_t row, std::int64_t col) {
  return q.codes[static_cast<std::size_t>(row * q.cols + col)];
}

std::uint8_t zero_at(const QuantizedWeights& q, std::int64_t row, std::int64_t group_idx) {
  return q.zeros[static_cast<std::size_t>(row * q.num_groups() + group_idx)];
}

// Scales [N, G] as [G, N].
std::vector<std::uint16_t> scales_by_group(const QuantizedWeights& q) {
  const std::int64_t groups = q.num_groups();
  std::vector<std::uint16_t> out(q.scales.size());
  for (std::int64_t r = 0; r < q.rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      out[static_cast<std::size_t>(g * q.rows + r)] =
          q.scales[static_cast<std::size_t>(r * groups + g)];
    }
  }
  return out;
}

std::vector<float> wide_scales(const QuantizedWeights& q) {
  std::vector<float> out(q.scales.size());
  std::transform(q.scales.begin(), q.scales.end(), out.begin(), f16_to_f32);
  return out;
}

void put_f16(std::vector<std::byte>& out, std::uint16_t value) {
  out.push_back(static_cast<std::byte>(value & 0xffU));
  out.push_back(static_cast<std::byte>(value >> 8));
}

// The fewest columns (or rows) that fill whole words.
std::int64_t per_words(int bits) {
  return bits == 3 ? 32 : 32 / bits;
}

}  // namespace

Status check_layout(OutputFormat format, const QuantScheme& scheme, std::string_view module,
                    std::int64_t rows, std::int64_t cols) {
  const auto refuse = [&](std::string_view what, std::int64_t size, std::int64_t multiple) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: {} {} are no multiple of {}, which --format {} needs at {} bits; "
                "compressed-tensors and gguf take any, or keep it with --override {}=keep",
                printable(module), size, what, multiple, format_name(format), scheme.bits,
                printable(module));
  };
  if (format == OutputFormat::kGptq) {
    const std::int64_t multiple = per_words(scheme.bits);
    if (cols % multiple != 0) {
      return refuse("inputs", cols, multiple);
    }
    if (rows % multiple != 0) {
      return refuse("outputs", rows, multiple);
    }
  } else if (format == OutputFormat::kAwq && rows % 8 != 0) {
    return refuse("outputs", rows, 8);
  } else if (format == OutputFormat::kAwq && scheme.group != 0 && cols % scheme.group != 0) {
    return refuse("inputs", cols, scheme.group);
  }
  return {};
}

std::vector<LayoutTensor> gptq_layout(const QuantizedWeights& q) {
  const int bits = q.scheme.bits;
  const std::int64_t groups = q.num_groups();
  // Codes run down the inputs: word row r, column n.
  const auto codes = pack_lines(q.rows, q.cols, bits,
                                [&](std::int64_t n, std::int64_t k) { return code_at(q, n, k); });
  const auto zeros = pack_lines(groups, q.rows, bits,
                                [&](std::int64_t g, std::int64_t n) { return zero_at(q, n, g); });
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(q.cols));
  for (std::int64_t k = 0; k < q.cols; ++k) {
    group_of[static_cast<std::size_t>(k)] =
        static_cast<std::int32_t>(k / q.scheme.group_cols(q.cols));
  }
  return {tensor(".qweight", DType::kI32, {q.cols * bits / 32, q.rows}, transposed(codes, q.rows)),
          tensor(".qzeros", DType::kI32, {groups, q.rows * bits / 32}, zeros),
          tensor(".scales", DType::kF16, {groups, q.rows}, scales_by_group(q)),
          tensor(".g_idx", DType::kI32, {q.cols}, group_of)};
}

std::vector<LayoutTensor> awq_layout(const QuantizedWeights& q) {
  // Nibble i of a word is the output column at this place of its eight.
  constexpr std::array<std::int64_t, 8> kPlaces{0, 2, 4, 6, 1, 3, 5, 7};
  const auto place = [&](std::int64_t i) {
    return i / 8 * 8 + kPlaces[static_cast<std::size_t>(i % 8)];
  };
  const std::int64_t groups = q.num_groups();
  const auto codes = pack_lines(
      q.cols, q.rows, 4, [&](std::int64_t k, std::int64_t i) { return code_at(q, place(i), k); });
  const auto zeros = pack_lines(
      groups, q.rows, 4, [&](std::int64_t g, std::int64_t i) { return zero_at(q, place(i), g); });
  return {tensor(".qweight", DType::kI32, {q.cols, q.rows / 8}, codes),
          tensor(".qzeros", DType::kI32, {groups, q.rows / 8}, zeros),
          tensor(".scales", DType::kF16, {groups, q.rows}, scales_by_group(q))};
}

std::vector<LayoutTensor> compressed_layout(const QuantizedWeights& q, bool int8_activations) {
  const std::int64_t groups = q.num_groups();
  const int bits = q.scheme.bits;
  if (q.scheme.kind == GridKind::kFloat8) {
    return {tensor(".weight", DType::kF8E4M3, {q.rows, q.cols}, q.codes),
            tensor(".weight_scale", DType::kF32, {q.rows, groups}, wide_scales(q))};
  }
  if (int8_activations) {
    std::vector<std::uint8_t> centred = q.codes;  // 128 + code, to the code
    for (std::uint8_t& code : centred) {
      code = static_cast<std::uint8_t>(code - 128U);
    }
    return {tensor(".weight", DType::kI8, {q.rows, q.cols}, centred),
            tensor(".weight_scale", DType::kF32, {q.rows, groups}, wide_scales(q))};
  }
  // Stored codes are signed ones plus half the range: ours as they are.
  const auto codes = pack_lines(q.rows, q.cols, bits,
                                [&](std::int64_t n, std::int64_t k) { return code_at(q, n, k); });
  const std::vector<std::int64_t> shape{q.rows, q.cols};
  std::vector<LayoutTensor> out{
      tensor(".weight_packed", DType::kI32, {q.rows, (q.cols * bits + 31) / 32}, codes),
      tensor(".weight_scale", DType::kF16, {q.rows, groups}, q.scales),
      tensor(".weight_shape", DType::kI64, {2}, shape)};
  if (q.scheme.kind == GridKind::kZeroPoint) {
    const auto zeros = pack_lines(groups, q.rows, bits,
                                  [&](std::int64_t g, std::int64_t n) { return zero_at(q, n, g); });
    out.push_back(tensor(".weight_zero_point", DType::kI32, {(q.rows * bits + 31) / 32, groups},
                         transposed(zeros, groups)));
  }
  return out;
}

std::optional<DType> gguf_block_type(const QuantScheme& scheme, std::int64_t cols) {
  if (scheme.group != 32 || cols % 32 != 0) {
    return std::nullopt;
  }
  if (scheme.kind == GridKind::kSymmetric && scheme.bits == 4) {
    return DType::kQ4_0;
  }
  if (scheme.kind == GridKind::kSymmetric && scheme.bits == 8) {
    return DType::kQ8_0;
  }
  if (scheme.kind == GridKind::kMin && scheme.bits == 4) {
    return DType::kQ4_1;
  }
  return std::nullopt;
}

std::vector<std::byte> gguf_blocks(const QuantizedWeights& q) {
  const auto type = gguf_block_type(q.scheme, q.cols);
  TRINE_CHECK(type.has_value());
  const std::int64_t groups = q.num_groups();
  std::vector<std::byte> out;
  out.reserve(static_cast<std::size_t>(q.rows * groups * dtype_info(*type).block_bytes));
  for (std::int64_t r = 0; r < q.rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto at = static_cast<std::size_t>(r * groups + g);
      put_f16(out, q.scales[at]);
      if (*type == DType::kQ4_1) {
        put_f16(out, q.mins[at]);
      }
      const std::uint8_t* const codes = q.codes.data() + r * q.cols + g * 32;
      if (*type == DType::kQ8_0) {
        for (int i = 0; i < 32; ++i) {
          out.push_back(static_cast<std::byte>(codes[i] - 128U));
        }
        continue;
      }
      for (int i = 0; i < 16; ++i) {
        out.push_back(static_cast<std::byte>(codes[i] | codes[i + 16] << 4));
      }
    }
  }
  return out;
}

QuantizedWeights stack_rows(const std::vector<const QuantizedWeights*>& parts) {
  TRINE_CHECK(!parts.empty());
  QuantizedWeights out = *parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const QuantizedWeights& part = *parts[i];
    TRINE_CHECK(part.scheme == out.scheme && part.cols == out.cols);
    out.rows += part.rows;
    out.codes.insert(out.codes.end(), part.codes.begin(), part.codes.end());
    out.scales.insert(out.scales.end(), part.scales.begin(), part.scales.end());
    out.zeros.insert(out.zeros.end(), part.zeros.begin(), part.zeros.end());
    out.mins.insert(out.mins.end(), part.mins.begin(), part.mins.end());
  }
  return out;
}

QuantizedWeights reorder_rows(const QuantizedWeights& q, const std::vector<std::int64_t>& order) {
  TRINE_CHECK(static_cast<std::int64_t>(order.size()) == q.rows);
  QuantizedWeights out(q.scheme, q.rows, q.cols);
  const std::int64_t groups = q.num_groups();
  for (std::int64_t r = 0; r < q.rows; ++r) {
    const std::int64_t from = order[static_cast<std::size_t>(r)];
    std::copy_n(q.codes.begin() + from * q.cols, q.cols, out.codes.begin() + r * q.cols);
    std::copy_n(q.scales.begin() + from * groups, groups, out.scales.begin() + r * groups);
    if (!q.zeros.empty()) {
      std::copy_n(q.zeros.begin() + from * groups, groups, out.zeros.begin() + r * groups);
    }
    if (!q.mins.empty()) {
      std::copy_n(q.mins.begin() + from * groups, groups, out.mins.begin() + r * groups);
    }
  }
  return out;
}

}  // namespace trine
