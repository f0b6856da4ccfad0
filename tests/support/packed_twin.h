// A slow reader of the packed layout, written from docs/formats/packed-weights.md alone: where one
// weight's code and scales lie. Tests compare the writer and the kernels with it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/packed.h"
#include "support/numeric.h"

namespace trine::test {

class PackedTwin {
 public:
  PackedTwin(const kernels::PackedScheme& scheme, std::int64_t rows, std::int64_t cols)
      : scheme_(scheme), rows_(rows), cols_(cols) {}

  std::int64_t num_blocks() const { return (rows_ + 31) / 32; }

  std::int64_t bytes() const { return num_blocks() * kernels::packed_block_bytes(scheme_, cols_); }

  // Random codes; scales of a size that keeps sums finite.
  std::vector<std::uint8_t> random(std::uint64_t seed) const {
    std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes()));
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<std::uint8_t>(random_int(seed, i, 0, 255));
    }
    for (std::int64_t row = 0; row < num_blocks() * 32; ++row) {
      for (std::int64_t col = 0; col < padded(); col += 16) {
        const auto half = [&](std::int64_t at, float size) {
          const float value = size * static_cast<float>(random_int(
                                         seed + 1, static_cast<std::uint64_t>(at), -99, 99));
          const std::uint16_t bits = f32_to_f16(value);
          std::memcpy(&data[static_cast<std::size_t>(at)], &bits, 2);
        };
        const std::int64_t header = header_at(row, col);
        switch (scheme_.scales) {
          case kernels::ScaleKind::kF16:
          case kernels::ScaleKind::kF16Zero:
            half(header + 2 * (row % 32), 0.001f);
            break;
          case kernels::ScaleKind::kF16Min:
            half(header + 2 * (row % 32), 0.001f);
            half(header + 64 + 2 * (row % 32), 0.01f);
            break;
          case kernels::ScaleKind::kF32:
          case kernels::ScaleKind::kF32Zero: {
            const float value = static_cast<float>(random_int(
                                    seed + 2, static_cast<std::uint64_t>(header + row), 1, 999)) *
                                1e-5f;
            std::memcpy(&data[static_cast<std::size_t>(header + 4 * (row % 32))], &value, 4);
            break;
          }
          case kernels::ScaleKind::kSuperI8:
            half(super_at(row, col) + 2 * (row % 32), 0.0001f);
            break;
          case kernels::ScaleKind::kSuperU8Min:
            half(super_at(row, col) + 2 * (row % 32), 0.0001f);
            half(super_at(row, col) + 64 + 2 * (row % 32), 0.0001f);
            break;
        }
      }
    }
    return data;
  }

  // The stored code, before the zero point.
  int code(const std::uint8_t* data, std::int64_t row, std::int64_t col) const {
    const std::int64_t strip = kernels::packed_strip_bytes(scheme_.codes);
    const std::uint8_t* p = data + header_at(row, col) +
                            kernels::packed_header_bytes(scheme_.scales) +
                            col % unit() / 32 * 2 * strip + row % 32 / 16 * strip;
    const std::int64_t quad = col % 32 / 4;
    const std::int64_t byte = row % 16 * 4 + col % 4;
    const auto nibble = [&] { return p[64 * (quad % 4) + byte] >> (4 * (quad / 4)) & 15; };
    const auto crumb = [&](std::int64_t from) {
      return p[from + 64 * (quad % 2) + byte] >> (2 * (quad / 2)) & 3;
    };
    const auto bit = [&](std::int64_t from) { return p[from + byte] >> quad & 1; };
    constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
    constexpr int kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    switch (scheme_.codes) {
      case kernels::CodeKind::kU2:
        return crumb(0);
      case kernels::CodeKind::kU3:
        return crumb(0) | bit(128) << 2;
      case kernels::CodeKind::kU4:
        return nibble();
      case kernels::CodeKind::kU5:
        return nibble() | bit(256) << 4;
      case kernels::CodeKind::kU6:
        return nibble() | crumb(256) << 4;
      case kernels::CodeKind::kU8:
        return p[64 * quad + byte];
      case kernels::CodeKind::kIq4Nl:
        return kIq4[nibble()] + 128;
      case kernels::CodeKind::kE2M1:
        return kE2m1[nibble()] + 16;
    }
    return 0;
  }

  int zero_point() const {
    if (has_min()) {
      return 0;
    }
    switch (scheme_.codes) {
      case kernels::CodeKind::kU2:
        return 2;
      case kernels::CodeKind::kU3:
        return 4;
      case kernels::CodeKind::kU4:
        return 8;
      case kernels::CodeKind::kU5:
      case kernels::CodeKind::kE2M1:
        return 16;
      case kernels::CodeKind::kU6:
        return 32;
      default:
        return 128;
    }
  }

  bool has_min() const {
    return scheme_.scales == kernels::ScaleKind::kF16Min ||
           scheme_.scales == kernels::ScaleKind::kF16Zero ||
           scheme_.scales == kernels::ScaleKind::kF32Zero ||
           scheme_.scales == kernels::ScaleKind::kSuperU8Min;
  }

  float scale(const std::uint8_t* data, std::int64_t row, std::int64_t col) const {
    const std::uint8_t* header = data + header_at(row, col);
    switch (scheme_.scales) {
      case kernels::ScaleKind::kF32:
      case kernels::ScaleKind::kF32Zero: {
        float value = 0;
        std::memcpy(&value, header + 4 * (row % 32), 4);
        return value;
      }
      case kernels::ScaleKind::kSuperI8:
        return half(data + super_at(row, col), row) *
               static_cast<float>(static_cast<std::int8_t>(header[sub_at(row, col)]));
      case kernels::ScaleKind::kSuperU8Min:
        return half(data + super_at(row, col), row) * static_cast<float>(header[sub_at(row, col)]);
      default:
        return half(header, row);
    }
  }

  // What is added to scale * code.
  float min(const std::uint8_t* data, std::int64_t row, std::int64_t col) const {
    const std::uint8_t* header = data + header_at(row, col);
    switch (scheme_.scales) {
      case kernels::ScaleKind::kF16Min:
        return half(header + 64, row);
      case kernels::ScaleKind::kF16Zero:
        return -(half(header, row) * static_cast<float>(header[64 + row % 32]));
      case kernels::ScaleKind::kF32Zero:
        return -(scale(data, row, col) * static_cast<float>(header[128 + row % 32]));
      case kernels::ScaleKind::kSuperU8Min:
        return -half(data + super_at(row, col) + 64, row) *
               static_cast<float>(header[64 + sub_at(row, col)]);
      default:
        return 0.0f;
    }
  }

  std::int64_t group() const { return scheme_.group == 0 ? padded() : scheme_.group; }

  std::int64_t padded() const { return (cols_ + 31) / 32 * 32; }

 private:
  bool super() const {
    return scheme_.scales == kernels::ScaleKind::kSuperI8 ||
           scheme_.scales == kernels::ScaleKind::kSuperU8Min;
  }

  std::int64_t unit() const { return group() * (super() ? 2 : 1); }

  static float half(const std::uint8_t* p, std::int64_t row) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, p + 2 * (row % 32), 2);
    return f16_to_f32(bits);
  }

  std::int64_t sub_at(std::int64_t row, std::int64_t col) const {
    return col % unit() / group() * 32 + row % 32;
  }

  std::int64_t super_bytes() const {
    return scheme_.scales == kernels::ScaleKind::kSuperI8      ? 64
           : scheme_.scales == kernels::ScaleKind::kSuperU8Min ? 128
                                                               : 0;
  }

  // Offset of the super scales that hold for (row, col).
  std::int64_t super_at(std::int64_t row, std::int64_t col) const {
    const std::int64_t first = col / 256 * 256;
    return header_at(row, first) - super_bytes();
  }

  // Offset of the unit's header: what stands before it is super scales, headers and codes.
  std::int64_t header_at(std::int64_t row, std::int64_t col) const {
    const std::int64_t u = col / unit();
    const std::int64_t supers = super() ? col / 256 + 1 : 0;
    return row / 32 * kernels::packed_block_bytes(scheme_, cols_) + supers * super_bytes() +
           u * kernels::packed_header_bytes(scheme_.scales) +
           u * unit() / 32 * 2 * kernels::packed_strip_bytes(scheme_.codes);
  }

  kernels::PackedScheme scheme_;
  std::int64_t rows_;
  std::int64_t cols_;
};

}  // namespace trine::test
