#include "quant/packed_tile.h"

#include <cstring>

#include "base/check.h"

namespace trine {
namespace {

using kernels::CodeKind;
using kernels::PackedScheme;
using kernels::ScaleKind;

// Quads of one strip and chunk: [8 quads][16 rows][4 columns].
using Quads = std::array<std::array<std::uint8_t, 64>, 8>;

Quads gather_quads(const PackTile& tile, std::size_t strip, std::size_t col) {
  Quads quads;
  for (std::size_t row = 0; row < 16; ++row) {
    const std::uint8_t* codes = &tile.codes[16 * strip + row][col];
    for (std::size_t q = 0; q < quads.size(); ++q) {
      std::memcpy(&quads[q][4 * row], codes + 4 * q, 4);
    }
  }
  return quads;
}

std::uint8_t* write_nibbles(const Quads& quads, std::uint8_t* out) {
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t b = 0; b < 64; ++b) {
      out[b] = static_cast<std::uint8_t>((quads[i][b] & 15) | (quads[i + 4][b] & 15) << 4);
    }
    out += 64;
  }
  return out;
}

// Two bits of each code, from bit `from` on.
std::uint8_t* write_crumbs(const Quads& quads, int from, std::uint8_t* out) {
  const auto crumb = [&](std::size_t q, std::size_t b) { return quads[q][b] >> from & 3; };
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t b = 0; b < 64; ++b) {
      out[b] = static_cast<std::uint8_t>(crumb(i, b) | crumb(i + 2, b) << 2 | crumb(i + 4, b) << 4 |
                                         crumb(i + 6, b) << 6);
    }
    out += 64;
  }
  return out;
}

// One bit of each code: quad q is bit q.
std::uint8_t* write_bits(const Quads& quads, int from, std::uint8_t* out) {
  for (std::size_t b = 0; b < 64; ++b) {
    unsigned byte = 0;
    for (std::size_t q = 0; q < quads.size(); ++q) {
      byte |= (static_cast<unsigned>(quads[q][b]) >> from & 1u) << q;
    }
    out[b] = static_cast<std::uint8_t>(byte);
  }
  return out + 64;
}

std::uint8_t* write_strip(CodeKind codes, const Quads& quads, std::uint8_t* out) {
  switch (codes) {
    case CodeKind::kU2:
      return write_crumbs(quads, 0, out);
    case CodeKind::kU3:
      return write_bits(quads, 2, write_crumbs(quads, 0, out));
    case CodeKind::kU4:
    case CodeKind::kIq4Nl:
    case CodeKind::kE2M1:
      return write_nibbles(quads, out);
    case CodeKind::kU5:
      return write_bits(quads, 4, write_nibbles(quads, out));
    case CodeKind::kU6:
      return write_crumbs(quads, 4, write_nibbles(quads, out));
    case CodeKind::kU8:
      std::memcpy(out, quads.data(), sizeof(Quads));
      return out + sizeof(Quads);
  }
  return out;
}

// One value of each row, at index `at` of its scales.
template <typename T, std::size_t kCount>
std::uint8_t* write_rows(const std::array<std::array<T, kCount>, kTileRows>& values, std::size_t at,
                         std::uint8_t* out) {
  for (const auto& row : values) {
    std::memcpy(out, &row[at], sizeof(T));
    out += sizeof(T);
  }
  return out;
}

template <typename T>
std::uint8_t* write_rows(const std::array<T, kTileRows>& values, std::uint8_t* out) {
  std::memcpy(out, values.data(), sizeof values);
  return out + sizeof values;
}

// Scales of the unit whose first group is number `group` of the tile.
std::uint8_t* write_header(ScaleKind kind, const PackTile& tile, std::size_t group,
                           std::uint8_t* out) {
  switch (kind) {
    case ScaleKind::kF16:
      return write_rows(tile.scale_f16, group, out);
    case ScaleKind::kF32:
      return write_rows(tile.scale_f32, group, out);
    case ScaleKind::kF16Min:
      return write_rows(tile.min_f16, group, write_rows(tile.scale_f16, group, out));
    case ScaleKind::kF16Zero:
      out = write_rows(tile.zero, group, write_rows(tile.scale_f16, group, out));
      std::memset(out, 0, kTileRows);
      return out + kTileRows;
    case ScaleKind::kF32Zero:
      out = write_rows(tile.zero, group, write_rows(tile.scale_f32, group, out));
      std::memset(out, 0, kTileRows);
      return out + kTileRows;
    case ScaleKind::kSuperI8:
      return write_rows(tile.sub, group + 1, write_rows(tile.sub, group, out));
    case ScaleKind::kSuperU8Min:
      out = write_rows(tile.sub, group + 1, write_rows(tile.sub, group, out));
      return write_rows(tile.sub_min, group + 1, write_rows(tile.sub_min, group, out));
  }
  return out;
}

std::uint8_t* write_super(ScaleKind kind, const PackTile& tile, std::uint8_t* out) {
  switch (kind) {
    case ScaleKind::kSuperI8:
      return write_rows(tile.super_f16, out);
    case ScaleKind::kSuperU8Min:
      return write_rows(tile.super_min_f16, write_rows(tile.super_f16, out));
    default:
      return out;
  }
}

}  // namespace

std::uint8_t* write_tile(const PackedScheme& scheme, const PackTile& tile, std::int64_t col,
                         std::int64_t cols, std::uint8_t* out) {
  TRINE_CHECK(col % static_cast<std::int64_t>(kTileCols) == 0 && cols > 0 &&
              cols <= static_cast<std::int64_t>(kTileCols) && cols % kernels::kPackedChunk == 0);
  out = write_super(scheme.scales, tile, out);
  const std::int64_t groups_per_unit = kernels::packed_is_super(scheme) ? 2 : 1;
  const std::int64_t unit =
      scheme.group == 0 ? static_cast<std::int64_t>(kTileCols) : scheme.group * groups_per_unit;
  for (std::int64_t at = 0; at < cols; at += kernels::kPackedChunk) {
    if (at % unit == 0 && (scheme.group != 0 || col == 0)) {
      out = write_header(scheme.scales, tile, static_cast<std::size_t>(at / unit * groups_per_unit),
                         out);
    }
    for (std::size_t strip = 0; strip < 2; ++strip) {
      out = write_strip(scheme.codes, gather_quads(tile, strip, static_cast<std::size_t>(at)), out);
    }
  }
  return out;
}

}  // namespace trine
