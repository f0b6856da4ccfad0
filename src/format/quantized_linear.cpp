#include "format/quantized_linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/half.h"

namespace trine {
namespace {

constexpr std::int64_t kWordBits = 32;
// Codes in as many words as they have bits: no code of one unit lies in the next.
constexpr std::int64_t kUnit = 32;
// Rows and columns that read_rows() decodes at a time.
constexpr std::int64_t kPartRows = 32;
constexpr std::int64_t kPartCols = 256;

// Where AWQ's GEMM layout keeps the column 8 c + i of word c.
constexpr std::array<int, 8> kAwqNibble{0, 4, 1, 5, 2, 6, 3, 7};

std::uint32_t load_word(const std::byte* data, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, data + index * 4, sizeof word);
  return word;
}

// `count` <= 32 values from `words`, which holds count * bits / 32 words, rounded up.
void unpack_unit(const std::array<std::uint32_t, 8>& words, int bits, std::int64_t count,
                 std::uint8_t* out) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::uint64_t window = 0;
  int have = 0;
  std::size_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (have < bits) {
      window |= std::uint64_t{words[next++]} << have;
      have += static_cast<int>(kWordBits);
    }
    out[i] = static_cast<std::uint8_t>(window & mask);
    window >>= bits;
    have -= bits;
  }
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> out{};
    for (unsigned code = 0; code < out.size(); ++code) {
      const unsigned exponent = code >> 3 & 15U;
      const auto mantissa = static_cast<float>(code & 7U);
      float value = exponent == 0
                        ? mantissa * 0x1p-9F
                        : (8.0F + mantissa) * 0x1p-10F * static_cast<float>(1U << exponent);
      if ((code & 127U) == 127U) {
        value = std::bit_cast<float>(0x7fc00000U);
      }
      out[code] = (code & 128U) != 0 ? -value : value;
    }
    return out;
  }();
  return kValues;
}

}  // namespace

unsigned QuantizedLinear::Words::at(std::int64_t line, std::int64_t i, int bits) const {
  const std::byte* base = data + line * line_stride * 4;
  const unsigned mask = (1U << bits) - 1U;
  if (per_word > 0) {
    return load_word(base, i / per_word * word_stride) >> (bits * (i % per_word)) & mask;
  }
  const std::int64_t bit = i * bits;
  const auto from = static_cast<int>(bit % kWordBits);
  const std::int64_t word = bit / kWordBits;
  std::uint32_t value = load_word(base, word * word_stride) >> from;
  if (from + bits > kWordBits) {
    value |= load_word(base, (word + 1) * word_stride) << (kWordBits - from);
  }
  return value & mask;
}

void QuantizedLinear::read_words(std::int64_t row, std::int64_t col, std::int64_t num_cols,
                                 std::uint8_t* out) const {
  // In GPTQ's layout a row is a column of words.
  const std::int64_t line = layout_ == Layout::kGptq ? 0 : row;
  const std::byte* base = codes_.data + (layout_ == Layout::kGptq ? row * 4 : 0);
  if (codes_.per_word > 0) {
    for (std::int64_t i = 0; i < num_cols; ++i) {
      out[i] = static_cast<std::uint8_t>(codes_.at(line, col + i, bits_));
    }
    return;
  }
  for (std::int64_t i = 0; i < num_cols; i += kUnit) {
    const std::int64_t count = std::min(kUnit, num_cols - i);
    const std::int64_t first = (col + i) / kUnit * bits_;
    std::array<std::uint32_t, 8> words{};
    for (std::int64_t w = 0; w < (count * bits_ + kWordBits - 1) / kWordBits; ++w) {
      words[static_cast<std::size_t>(w)] =
          load_word(base, line * codes_.line_stride + (first + w) * codes_.word_stride);
    }
    unpack_unit(words, bits_, count, out + i);
  }
}

void QuantizedLinear::read_codes(std::int64_t row, std::int64_t num_rows, std::int64_t col,
                                 std::int64_t num_cols, std::uint8_t* out,
                                 std::int64_t stride) const {
  switch (layout_) {
    case Layout::kGptq:
    case Layout::kAwqGemv:
    case Layout::kPacked:
      for (std::int64_t r = 0; r < num_rows; ++r) {
        read_words(row + r, col, num_cols, out + r * stride);
      }
      return;
    case Layout::kAwqGemm:
      for (std::int64_t c = 0; c < num_cols; ++c) {
        const std::byte* line = codes_.data + (col + c) * codes_.line_stride * 4;
        for (std::int64_t r = 0; r < num_rows; ++r) {
          const std::int64_t n = row + r;
          const int shift = 4 * kAwqNibble[static_cast<std::size_t>(n % 8)];
          out[r * stride + c] = static_cast<std::uint8_t>(load_word(line, n / 8) >> shift & 15U);
        }
      }
      return;
    case Layout::kInt8:
    case Layout::kFloat8: {
      const unsigned flip = layout_ == Layout::kInt8 ? 0x80U : 0U;  // signed to offset by 128
      for (std::int64_t r = 0; r < num_rows; ++r) {
        const std::byte* in = codes_.data + (row + r) * cols_ + col;
        for (std::int64_t c = 0; c < num_cols; ++c) {
          out[r * stride + c] = static_cast<std::uint8_t>(static_cast<unsigned>(in[c]) ^ flip);
        }
      }
      return;
    }
  }
}

float QuantizedLinear::scale(std::int64_t row, std::int64_t group) const {
  const std::int64_t at = row / rows_per_scale_ * scale_row_stride_ + group * scale_group_stride_;
  if (scale_type_ == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, scales_ + at * 4, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, scales_ + at * 2, sizeof half);
  return scale_type_ == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

unsigned QuantizedLinear::stored_zero(std::int64_t row, std::int64_t group) const {
  switch (zeros_kind_) {
    case Zeros::kConstant:
      return 1U << (bits_ - 1);
    case Zeros::kWordsAlongRows:
      if (layout_ == Layout::kAwqGemm) {
        row = row / 8 * 8 + kAwqNibble[static_cast<std::size_t>(row % 8)];
      }
      return zeros_.at(group, row, bits_);
    case Zeros::kWordsAlongGroups:
      return zeros_.at(row, group, bits_);
    case Zeros::kInt8: {
      const std::int64_t at =
          row / rows_per_scale_ * scale_row_stride_ + group * scale_group_stride_;
      return static_cast<unsigned>(zeros_.data[at]) ^ 0x80U;
    }
  }
  return 0;
}

int QuantizedLinear::zero(std::int64_t row, std::int64_t group) const {
  const unsigned mask = (1U << bits_) - 1U;
  return static_cast<int>((stored_zero(row, group) + zero_add_) & mask);
}

void QuantizedLinear::read_rows(std::int64_t row, std::int64_t num_rows, float* out,
                                std::int64_t stride) const {
  std::array<std::uint8_t, static_cast<std::size_t>(kPartRows * kPartCols)> codes;
  const bool is_float = layout_ == Layout::kFloat8;
  const std::array<float, 256>& e4m3 = e4m3_values();
  for (std::int64_t first = 0; first < num_rows; first += kPartRows) {
    const std::int64_t count = std::min(kPartRows, num_rows - first);
    for (std::int64_t col = 0; col < cols_; col += kPartCols) {
      const std::int64_t width = std::min(kPartCols, cols_ - col);
      read_codes(row + first, count, col, width, codes.data(), kPartCols);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::uint8_t* in = codes.data() + r * kPartCols;
        float* to = out + (first + r) * stride + col;
        std::int64_t group = -1;
        float s = 0.0F;
        int z = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t g = group_of(col + c);
          if (g != group) {
            group = g;
            s = scale(row + first + r, g);
            z = is_float ? 0 : zero(row + first + r, g);
          }
          to[c] = is_float ? e4m3[in[c]] * s : static_cast<float>(in[c] - z) * s;
        }
      }
    }
  }
}

std::string QuantizedLinear::describe() const {
  std::string out = fmt::format("{} ", stored_method_name(method_));
  out += layout_ == Layout::kFloat8 ? std::string("E4M3") : fmt::format("{}-bit", bits_);
  switch (strategy_) {
    case WeightScheme::Strategy::kTensor:
      out += ", one scale";
      break;
    case WeightScheme::Strategy::kChannel:
      out += ", a scale per row";
      break;
    case WeightScheme::Strategy::kGroup:
      out += fmt::format(", groups of {}", group_cols_);
      break;
    case WeightScheme::Strategy::kBlock:
      out += fmt::format(", blocks of {} x {}", rows_per_scale_, group_cols_);
      break;
  }
  if (layout_ != Layout::kFloat8 && !symmetric_) {
    out += ", zero points";
  }
  if (!group_index_.empty()) {
    out += ", act-order";
  }
  return out;
}

}  // namespace trine
