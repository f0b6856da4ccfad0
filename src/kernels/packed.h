// Family `packed`: quantized weight matrices in the one packed layout
// (docs/formats/packed-weights.md) times activations quantized to int8 on the fly.
//
// Numeric contract. Activations: each row alone, in groups of `activation_group` consecutive
// values; scale = absmax / 127, code = round to nearest even of x * (127 / absmax), all in float32;
// a group whose absmax is below 2^-100 is zero, a group that holds an infinity or NaN has the scale
// NaN. One output element is one chain over the weight groups in ascending order, from acc = +0:
//   dot = exact int32 sum of (code - zero point) * activation code over the group
//   acc = fma(float(dot), weight_scale * activation_scale, acc)
//   acc = fma(weight_min, float(sum of activation codes) * activation_scale, acc)   schemes with a
//   min
// and last acc + bias when there is one. weight_scale and weight_min are float32 and exact for
// every scheme (the bits of f16 or of f16 times a small integer) but kF32Zero, whose weight_min is
// -(scale * zero), rounded once. The chain is the same for any
// number of rows, any tile and any instruction set, so results are bit-equal throughout. Shapes: W
// [rows N, cols K], X [num_rows M, K], y [M, N]. Errors: none. Thread rule: pure functions on the
// caller's memory.
#pragma once

#include <cstdint>

namespace trine::kernels {

struct Tuning;  // tuning.h

inline constexpr std::int64_t kPackedBlockRows = 32;   // output rows that are stored together
inline constexpr std::int64_t kPackedChunk = 32;       // columns whose codes are stored together
inline constexpr std::int64_t kPackedSuper = 256;      // columns under one super scale
inline constexpr std::int64_t kMaxPackedCols = 65536;  // int32 sums hold 255 * 127 * K up to here
inline constexpr std::int64_t kPackedScratchBytes =
    std::int64_t{128} * 1024;  // of each thread that multiplies

// How a code is stored and which integer it stands for. kU*: the unsigned code of that many bits.
enum class CodeKind : std::uint8_t { kU2, kU3, kU4, kU5, kU6, kU8, kIq4Nl, kE2M1 };
inline constexpr int kNumCodeKinds = 8;

enum class ScaleKind : std::uint8_t {
  kF16,         // f16 scale per group
  kF32,         // f32 scale per group
  kF16Min,      // f16 scale and f16 min per group: w = scale * code + min
  kF16Zero,     // f16 scale and u8 zero point per group: w = scale * (code - zero)
  kF32Zero,     // the same with an f32 scale
  kSuperI8,     // f16 super scale per 256 columns, i8 scale per group
  kSuperU8Min,  // f16 super scale and super min, u8 scale and min: w = d s code - dmin m
};

// A packed scheme. group: columns under one scale, 16, 32, 64, 128, 256, or 0 for the whole row.
struct PackedScheme {
  CodeKind codes = CodeKind::kU8;
  ScaleKind scales = ScaleKind::kF16;
  std::int32_t group = 32;

  friend constexpr bool operator==(const PackedScheme&, const PackedScheme&) = default;
};

// The integer that is subtracted from a stored code; 0 where a min takes its place.
constexpr std::int32_t packed_zero_point(const PackedScheme& s) {
  if (s.scales == ScaleKind::kF16Min || s.scales == ScaleKind::kF16Zero ||
      s.scales == ScaleKind::kF32Zero || s.scales == ScaleKind::kSuperU8Min) {
    return 0;
  }
  constexpr std::int32_t kZeros[kNumCodeKinds] = {2, 4, 8, 16, 32, 128, 128, 16};
  return kZeros[static_cast<int>(s.codes)];
}

constexpr bool packed_has_min(const PackedScheme& s) {
  return packed_zero_point(s) == 0;
}

constexpr bool packed_is_super(const PackedScheme& s) {
  return s.scales == ScaleKind::kSuperI8 || s.scales == ScaleKind::kSuperU8Min;
}

// Bytes of the codes of 16 rows and 32 columns.
constexpr std::int64_t packed_strip_bytes(CodeKind codes) {
  constexpr std::int64_t kBytes[kNumCodeKinds] = {128, 192, 256, 320, 384, 512, 256, 256};
  return kBytes[static_cast<int>(codes)];
}

// Scales of one unit; a unit is one group, or two where there are super scales.
constexpr std::int64_t packed_header_bytes(ScaleKind scales) {
  constexpr std::int64_t kBytes[7] = {64, 128, 128, 128, 192, 64, 128};
  return kBytes[static_cast<int>(scales)];
}

constexpr std::int64_t packed_super_bytes(ScaleKind scales) {
  return scales == ScaleKind::kSuperI8 ? 64 : scales == ScaleKind::kSuperU8Min ? 128 : 0;
}

// Columns padded to whole chunks; padded columns multiply activation codes of 0.
constexpr std::int64_t packed_padded_cols(std::int64_t cols) {
  return (cols + kPackedChunk - 1) / kPackedChunk * kPackedChunk;
}

constexpr std::int64_t packed_group(const PackedScheme& s, std::int64_t cols) {
  return s.group == 0 ? packed_padded_cols(cols) : s.group;
}

constexpr std::int64_t packed_unit(const PackedScheme& s, std::int64_t cols) {
  return packed_group(s, cols) * (packed_is_super(s) ? 2 : 1);
}

constexpr std::int64_t packed_block_bytes(const PackedScheme& s, std::int64_t cols) {
  const std::int64_t padded = packed_padded_cols(cols);
  const std::int64_t unit = packed_unit(s, cols);
  return (padded + unit - 1) / unit * packed_header_bytes(s.scales) +
         (padded + kPackedSuper - 1) / kPackedSuper * packed_super_bytes(s.scales) +
         padded / kPackedChunk * 2 * packed_strip_bytes(s.codes);
}

// Activations are quantized in groups of this many columns.
constexpr std::int64_t packed_activation_group(const PackedScheme& s, std::int64_t cols) {
  const std::int64_t group = packed_group(s, cols);
  return group < kPackedChunk ? kPackedChunk : group;
}

// Quantized activations of M rows. Sums are per weight group, so per 16 columns under groups of 16.
struct PackedRows {
  const std::int8_t* codes;  // [M, code_stride], zero from K to the padded columns
  std::int64_t code_stride;
  const float* scales;       // [M, group_stride], one per activation group
  const std::int32_t* sums;  // [M, sum_stride], sum of the codes of a weight group
  const float* scaled_sums;  // [M, sum_stride], float(sum) * scale
  std::int64_t group_stride;
  std::int64_t sum_stride;
  std::int64_t num_rows;
};

struct PackedMatrix {
  PackedScheme scheme;
  std::int64_t rows;
  std::int64_t cols;
  const std::uint8_t* data;  // ceil(rows / 32) blocks of packed_block_bytes, aligned to 64
};

struct PackedTable {
  // One row x[K] to codes[padded K], scales, sums and scaled_sums. sum_group divides group.
  void (*quantize_row)(const float* x, std::int64_t cols, std::int64_t group,
                       std::int64_t sum_group, std::int8_t* codes, float* scales,
                       std::int32_t* sums, float* scaled_sums);
  // y[m][n] for the rows n of blocks [block_begin, block_end). bias has N entries or is null.
  // `scratch` has kPackedScratchBytes, aligned to 64. `tuning` decides how, not what.
  void (*multiply)(const PackedMatrix* w, const PackedRows* x, const float* bias, float* y,
                   std::int64_t y_stride, std::int64_t block_begin, std::int64_t block_end,
                   void* scratch, const Tuning* tuning);
};

extern const PackedTable kPackedScalar;
extern const PackedTable kPackedAvx2;
extern const PackedTable kPackedAvxVnni;
extern const PackedTable kPackedAvx512;
extern const PackedTable kPackedAvx512Vnni;
extern const PackedTable kPackedAmx;

}  // namespace trine::kernels
