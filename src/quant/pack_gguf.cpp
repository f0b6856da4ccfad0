// Layouts of the blocks: docs/formats/gguf-blocks.md. Each fill function reads one row's blocks of
// up to 256 columns into the tile.
#include "quant/pack_gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "quant/packed_tile.h"

namespace trine {
namespace {

using kernels::CodeKind;
using kernels::PackedScheme;
using kernels::ScaleKind;

// One row of a tile, `blocks` GGUF blocks of it.
using Fill = void (*)(const std::uint8_t* in, std::size_t blocks, PackTile& tile, std::size_t row);

std::uint16_t u16_at(const std::uint8_t* p) {
  std::uint16_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint32_t u32_at(const std::uint8_t* p) {
  std::uint32_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint8_t byte(unsigned value) {
  return static_cast<std::uint8_t>(value);
}

// 16 bytes: low nibbles are the first 16 codes, high nibbles the next.
void nibbles_of_32(const std::uint8_t* in, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 16; ++i) {
    codes[i] = byte(in[i] & 15u);
    codes[i + 16] = byte(in[i] >> 4);
  }
}

void add_fifth_bits(std::uint32_t bits, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 32; ++i) {
    codes[i] = byte(codes[i] | (bits >> i & 1u) << 4);
  }
}

// Blocks of 32: f16 scale, f16 min or not, fifth bits or not, nibbles.
template <bool kMin, bool kFifth>
void fill_nibbles(const std::uint8_t* in, std::size_t blocks, PackTile& tile, std::size_t row) {
  for (std::size_t b = 0; b < blocks; ++b) {
    std::uint8_t* codes = &tile.codes[row][32 * b];
    tile.scale_f16[row][b] = u16_at(in);
    in += 2;
    if constexpr (kMin) {
      tile.min_f16[row][b] = u16_at(in);
      in += 2;
    }
    const std::uint32_t fifth = kFifth ? u32_at(in) : 0;
    in += kFifth ? 4 : 0;
    nibbles_of_32(in, codes);
    in += 16;
    if constexpr (kFifth) {
      add_fifth_bits(fifth, codes);
    }
  }
}

void fill_q8_0(const std::uint8_t* in, std::size_t blocks, PackTile& tile, std::size_t row) {
  for (std::size_t b = 0; b < blocks; ++b, in += 34) {
    tile.scale_f16[row][b] = u16_at(in);
    std::uint8_t* codes = &tile.codes[row][32 * b];
    for (std::size_t i = 0; i < 32; ++i) {
      codes[i] = in[2 + i] ^ 128u;  // q + 128
    }
  }
}

void fill_mxfp4(const std::uint8_t* in, std::size_t blocks, PackTile& tile, std::size_t row) {
  for (std::size_t b = 0; b < blocks; ++b, in += 17) {
    // Half of 2^(e - 127), as the codes are doubled; e = 0 and 1 are subnormal.
    const std::uint32_t e = in[0];
    tile.scale_f32[row][b] = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    nibbles_of_32(in + 1, &tile.codes[row][32 * b]);
  }
}

void fill_q2_k(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  tile.super_f16[row] = u16_at(in + 80);
  tile.super_min_f16[row] = u16_at(in + 82);
  for (std::size_t s = 0; s < 16; ++s) {
    tile.sub[row][s] = byte(in[s] & 15u);
    tile.sub_min[row][s] = byte(in[s] >> 4);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const unsigned four = in[16 + 32 * (i / 128) + i % 32];
    tile.codes[row][i] = byte(four >> (2 * (i / 32 % 4)) & 3u);
  }
}

void fill_q3_k(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  const std::uint8_t* scales = in + 96;
  tile.super_f16[row] = u16_at(in + 108);
  for (std::size_t s = 0; s < 16; ++s) {
    const unsigned low = s < 8 ? scales[s] & 15u : static_cast<unsigned>(scales[s - 8]) >> 4;
    const unsigned top = static_cast<unsigned>(scales[8 + s % 4]) >> (2 * (s / 4)) & 3u;
    tile.sub[row][s] = byte((low | top << 4) - 32u);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const unsigned low =
        static_cast<unsigned>(in[32 + 32 * (i / 128) + i % 32]) >> (2 * (i / 32 % 4)) & 3u;
    const unsigned high = static_cast<unsigned>(in[i % 32]) >> (i / 32) & 1u;
    tile.codes[row][i] = byte(low | high << 2);
  }
}

// The 6-bit scales and mins of Q4_K and Q5_K.
void fill_scale_mins(const std::uint8_t* in, PackTile& tile, std::size_t row) {
  tile.super_f16[row] = u16_at(in);
  tile.super_min_f16[row] = u16_at(in + 2);
  const std::uint8_t* p = in + 4;
  for (std::size_t j = 0; j < 8; ++j) {
    if (j < 4) {
      tile.sub[row][j] = byte(p[j] & 63u);
      tile.sub_min[row][j] = byte(p[j + 4] & 63u);
    } else {
      tile.sub[row][j] = byte((p[j + 4] & 15u) | static_cast<unsigned>(p[j - 4]) >> 6 << 4);
      tile.sub_min[row][j] =
          byte(static_cast<unsigned>(p[j + 4]) >> 4 | static_cast<unsigned>(p[j]) >> 6 << 4);
    }
  }
}

// 128 bytes: of each 64 codes the first 32 are the low nibbles of 32 bytes, the rest the high ones.
void nibbles_of_256(const std::uint8_t* in, std::uint8_t* codes) {
  for (std::size_t j = 0; j < 4; ++j) {
    for (std::size_t i = 0; i < 32; ++i) {
      codes[64 * j + i] = byte(in[32 * j + i] & 15u);
      codes[64 * j + 32 + i] = byte(in[32 * j + i] >> 4);
    }
  }
}

void fill_q4_k(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  fill_scale_mins(in, tile, row);
  nibbles_of_256(in + 16, tile.codes[row].data());
}

void fill_q5_k(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  fill_scale_mins(in, tile, row);
  nibbles_of_256(in + 48, tile.codes[row].data());
  for (std::size_t j = 0; j < 8; ++j) {
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint8_t& code = tile.codes[row][32 * j + i];
      code = byte(code | (static_cast<unsigned>(in[16 + i]) >> j & 1u) << 4);
    }
  }
}

void fill_q6_k(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  tile.super_f16[row] = u16_at(in + 208);
  std::memcpy(tile.sub[row].data(), in + 192, 16);
  for (std::size_t half = 0; half < 2; ++half) {
    const std::uint8_t* low = in + 64 * half;
    const std::uint8_t* high = in + 128 + 32 * half;
    std::uint8_t* codes = &tile.codes[row][128 * half];
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned top = high[i];
      codes[i] = byte((low[i] & 15u) | (top & 3u) << 4);
      codes[i + 32] = byte((low[i + 32] & 15u) | (top >> 2 & 3u) << 4);
      codes[i + 64] = byte(static_cast<unsigned>(low[i]) >> 4 | (top >> 4 & 3u) << 4);
      codes[i + 96] = byte(static_cast<unsigned>(low[i + 32]) >> 4 | (top >> 6) << 4);
    }
  }
}

void fill_iq4_xs(const std::uint8_t* in, std::size_t, PackTile& tile, std::size_t row) {
  tile.super_f16[row] = u16_at(in);
  const unsigned high = u16_at(in + 2);
  for (std::size_t j = 0; j < 8; ++j) {
    const unsigned low = static_cast<unsigned>(in[4 + j / 2]) >> (4 * (j % 2)) & 15u;
    tile.sub[row][j] = byte((low | (high >> (2 * j) & 3u) << 4) - 32u);
    nibbles_of_32(in + 8 + 16 * j, &tile.codes[row][32 * j]);
  }
}

struct Packing {
  PackedScheme scheme;
  Fill fill;
};

std::optional<Packing> packing_of(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return Packing{{CodeKind::kU4, ScaleKind::kF16, 32}, fill_nibbles<false, false>};
    case DType::kQ4_1:
      return Packing{{CodeKind::kU4, ScaleKind::kF16Min, 32}, fill_nibbles<true, false>};
    case DType::kQ5_0:
      return Packing{{CodeKind::kU5, ScaleKind::kF16, 32}, fill_nibbles<false, true>};
    case DType::kQ5_1:
      return Packing{{CodeKind::kU5, ScaleKind::kF16Min, 32}, fill_nibbles<true, true>};
    case DType::kQ8_0:
      return Packing{{CodeKind::kU8, ScaleKind::kF16, 32}, fill_q8_0};
    case DType::kIQ4NL:
      return Packing{{CodeKind::kIq4Nl, ScaleKind::kF16, 32}, fill_nibbles<false, false>};
    case DType::kMXFP4:
      return Packing{{CodeKind::kE2M1, ScaleKind::kF32, 32}, fill_mxfp4};
    case DType::kQ2K:
      return Packing{{CodeKind::kU2, ScaleKind::kSuperU8Min, 16}, fill_q2_k};
    case DType::kQ3K:
      return Packing{{CodeKind::kU3, ScaleKind::kSuperI8, 16}, fill_q3_k};
    case DType::kQ4K:
      return Packing{{CodeKind::kU4, ScaleKind::kSuperU8Min, 32}, fill_q4_k};
    case DType::kQ5K:
      return Packing{{CodeKind::kU5, ScaleKind::kSuperU8Min, 32}, fill_q5_k};
    case DType::kQ6K:
      return Packing{{CodeKind::kU6, ScaleKind::kSuperI8, 16}, fill_q6_k};
    case DType::kIQ4XS:
      return Packing{{CodeKind::kIq4Nl, ScaleKind::kSuperI8, 32}, fill_iq4_xs};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<PackedScheme> packed_scheme_of(DType type) {
  const auto packing = packing_of(type);
  return packing.has_value() ? std::optional(packing->scheme) : std::nullopt;
}

void pack_block(DType type, const std::byte* data, std::int64_t row_bytes, std::int64_t rows,
                std::int64_t cols, std::int64_t block, std::uint8_t* out) {
  const auto packing = packing_of(type);
  TRINE_CHECK(packing.has_value() && cols % dtype_info(type).block_elems == 0);
  const std::int64_t block_elems = dtype_info(type).block_elems;
  const std::int64_t block_bytes = dtype_info(type).block_bytes;
  const std::int64_t first = block * kernels::kPackedBlockRows;
  const std::int64_t count = std::min<std::int64_t>(rows - first, kernels::kPackedBlockRows);
  PackTile tile = {};
  for (std::int64_t col = 0; col < cols; col += static_cast<std::int64_t>(kTileCols)) {
    const std::int64_t width = std::min<std::int64_t>(cols - col, kTileCols);
    for (std::int64_t row = 0; row < count; ++row) {
      const std::byte* in = data + (first + row) * row_bytes + col / block_elems * block_bytes;
      packing->fill(reinterpret_cast<const std::uint8_t*>(in),
                    static_cast<std::size_t>(width / block_elems), tile,
                    static_cast<std::size_t>(row));
    }
    out = write_tile(packing->scheme, tile, col, width, out);
  }
}

}  // namespace trine
