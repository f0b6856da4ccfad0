// IEEE binary16, bfloat16 and FP8 E4M3 as bit patterns, with exact conversions in plain C++.
// Used by scalar references, file readers and tests; the ISA kernels use the CPU's own conversions,
// which agree bit for bit (round to nearest even; NaN stays NaN). Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace trine {

inline float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  const std::uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) {  // infinity; NaN made quiet, as vcvtph2ps does
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24 is exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the top payload bits, quiet
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more: infinity
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (magnitude <
      0x38800000u) {  // below 2^-14: adding 0.5 lines the mantissa up and rounds to even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

inline float bf16_to_f32(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// FP8 E4M3 without infinities: 448 is the largest, 0x7f and 0xff are NaN.
inline float f8_e4m3_to_f32(std::uint8_t b) {
  const std::uint32_t sign = static_cast<std::uint32_t>(b & 0x80u) << 24;
  const std::uint32_t magnitude = b & 0x7fu;
  if (magnitude == 0x7f) {
    return std::bit_cast<float>(sign | 0x7fc00000u);
  }
  if (magnitude < 8) {  // subnormals: multiples of 2^-9
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
}

// To the nearest, ties to even; beyond 448 to 448, as quantizers want it. NaN stays NaN.
inline std::uint8_t f32_to_f8_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint8_t>(sign | 0x7fu);
  }
  if (magnitude >= 0x43e00000u) {  // 448
    return static_cast<std::uint8_t>(sign | 0x7eu);
  }
  if (magnitude < 0x3c800000u) {  // below 2^-6: adding 2^14 rounds to multiples of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xffu));
  }
  const std::uint32_t odd = (magnitude >> 20) & 1u;
  return static_cast<std::uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

}  // namespace trine
