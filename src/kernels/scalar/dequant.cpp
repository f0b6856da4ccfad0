// The reference dequantizers: one function per block format, written for reading. The order of
// float operations here is the contract that the fast paths keep bit for bit. Layouts:
// docs/formats/gguf-blocks.md.
#include "kernels/dequant.h"

#include <bit>
#include <cstring>

#include "base/half.h"

namespace trine::kernels {
namespace {

using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint8_t;

constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 values times two, so that they are integers; the block scale is halved to match.
constexpr std::int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint32_t u8_at(const std::byte* p, int64_t i) {
  return std::to_integer<uint32_t>(p[i]);
}

int i8_at(const std::byte* p, int64_t i) {
  return static_cast<std::int8_t>(p[i]);
}

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float f16_at(const std::byte* p) {
  return f16_to_f32(load<uint16_t>(p));
}

float to_float(uint32_t q) {
  return static_cast<float>(static_cast<int>(q));
}

// Calls block(bytes, out) for each block of a row.
template <int64_t kElems, int64_t kBytes, typename Block>
void for_each_block(const std::byte* in, float* out, int64_t elems, Block block) {
  for (int64_t i = 0; i < elems; i += kElems) {
    block(in, out + i);
    in += kBytes;
  }
}

// ---- plain types

void row_f32(const std::byte* in, float* out, int64_t elems) {
  if (elems > 0) {
    std::memcpy(out, in, static_cast<std::size_t>(elems) * sizeof(float));
  }
}

void row_f16(const std::byte* in, float* out, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    out[i] = f16_at(in + 2 * i);
  }
}

void row_bf16(const std::byte* in, float* out, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    out[i] = bf16_to_f32(load<uint16_t>(in + 2 * i));
  }
}

void row_f64(const std::byte* in, float* out, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    out[i] = static_cast<float>(load<double>(in + 8 * i));
  }
}

// The FN flavour: no infinities, NaN only at 0x7F and 0xFF, largest 448.
float f8_e4m3_to_f32(uint32_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7Fu;
  if (magnitude == 0x7Fu) {
    return std::bit_cast<float>(sign | 0x7FC00000u);
  }
  if (magnitude < 8) {  // subnormal: m * 2^-9
    const float value = to_float(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

void row_f8_e4m3(const std::byte* in, float* out, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    out[i] = f8_e4m3_to_f32(u8_at(in, i));
  }
}

// E5M2 is the upper half of an f16.
void row_f8_e5m2(const std::byte* in, float* out, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    out[i] = f16_to_f32(static_cast<uint16_t>(u8_at(in, i) << 8));
  }
}

// ---- blocks of 32 with one scale

void row_q4_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 18>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 2 + i);
      y[i] = d * static_cast<float>(static_cast<int>(q & 15) - 8);
      y[i + 16] = d * static_cast<float>(static_cast<int>(q >> 4) - 8);
    }
  });
}

void row_q4_1(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 20>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 4 + i);
      y[i] = d * to_float(q & 15) + m;
      y[i + 16] = d * to_float(q >> 4) + m;
    }
  });
}

void row_q5_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 22>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const uint32_t high = load<uint32_t>(b + 2);
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 6 + i);
      const uint32_t lo = (q & 15) | ((high >> i) & 1) << 4;
      const uint32_t hi = (q >> 4) | ((high >> (i + 16)) & 1) << 4;
      y[i] = d * static_cast<float>(static_cast<int>(lo) - 16);
      y[i + 16] = d * static_cast<float>(static_cast<int>(hi) - 16);
    }
  });
}

void row_q5_1(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 24>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    const uint32_t high = load<uint32_t>(b + 4);
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 8 + i);
      y[i] = d * to_float((q & 15) | ((high >> i) & 1) << 4) + m;
      y[i + 16] = d * to_float((q >> 4) | ((high >> (i + 16)) & 1) << 4) + m;
    }
  });
}

void row_q8_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 34>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 32; ++i) {
      y[i] = d * static_cast<float>(i8_at(b, 2 + i));
    }
  });
}

// Bytes 2 and 3 hold d * sum(q) for dot products; decoding does not need it.
void row_q8_1(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 36>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 32; ++i) {
      y[i] = d * static_cast<float>(i8_at(b, 4 + i));
    }
  });
}

void row_iq4_nl(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 18>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 2 + i);
      y[i] = d * static_cast<float>(kIq4Values[q & 15]);
      y[i + 16] = d * static_cast<float>(kIq4Values[q >> 4]);
    }
  });
}

// Half of 2^(e-127): e = 0 and 1 give the subnormals 2^-128 and 2^-127, 255 stays finite (2^127).
float e8m0_half(uint32_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void row_mxfp4(const std::byte* in, float* out, int64_t elems) {
  for_each_block<32, 17>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = e8m0_half(u8_at(b, 0));
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = u8_at(b, 1 + i);
      y[i] = d * static_cast<float>(kE2m1Doubled[q & 15]);
      y[i + 16] = d * static_cast<float>(kE2m1Doubled[q >> 4]);
    }
  });
}

// Half of an E4M3 scale whose sign bit is ignored; 0x7F means zero.
float ue4m3_half(uint32_t bits) {
  if (bits == 0x7Fu) {
    return 0.0f;
  }
  const uint32_t magnitude = bits & 0x7Fu;
  if (magnitude < 8) {
    return to_float(magnitude) * 0x1p-10f;
  }
  return std::bit_cast<float>((magnitude << 20) + (119u << 23));
}

void row_nvfp4(const std::byte* in, float* out, int64_t elems) {
  for_each_block<64, 36>(in, out, elems, [](const std::byte* b, float* y) {
    for (int s = 0; s < 4; ++s) {
      const float d = ue4m3_half(u8_at(b, s));
      for (int i = 0; i < 8; ++i) {
        const uint32_t q = u8_at(b, 4 + 8 * s + i);
        y[16 * s + i] = d * static_cast<float>(kE2m1Doubled[q & 15]);
        y[16 * s + i + 8] = d * static_cast<float>(kE2m1Doubled[q >> 4]);
      }
    }
  });
}

// ---- blocks of 256 with scales per 16 or 32

void row_q2_k(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 84>(in, out, elems, [](const std::byte* b, float* y) {
    const std::byte* qs = b + 16;
    const float d = f16_at(b + 80);
    const float dmin = f16_at(b + 82);
    for (int i = 0; i < 256; ++i) {
      const uint32_t scale = u8_at(b, i / 16);
      const float step = d * to_float(scale & 15);
      const float min = dmin * to_float(scale >> 4);
      const uint32_t q = u8_at(qs, 32 * (i / 128) + i % 32) >> (2 * (i / 32 % 4)) & 3;
      y[i] = step * to_float(q) - min;
    }
  });
}

void row_q3_k(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 110>(in, out, elems, [](const std::byte* b, float* y) {
    const std::byte* qs = b + 32;
    const std::byte* scales = b + 96;
    const float d = f16_at(b + 108);
    for (int i = 0; i < 256; ++i) {
      const int s = i / 16;
      const uint32_t low = s < 8 ? u8_at(scales, s) & 15 : u8_at(scales, s - 8) >> 4;
      const uint32_t top = u8_at(scales, 8 + s % 4) >> (2 * (s / 4)) & 3;
      const float step = d * static_cast<float>(static_cast<int>(low | top << 4) - 32);
      const int q = static_cast<int>(u8_at(qs, 32 * (i / 128) + i % 32) >> (2 * (i / 32 % 4)) & 3);
      const bool high = (u8_at(b, i % 32) >> (i / 32) & 1) != 0;
      y[i] = step * static_cast<float>(high ? q : q - 4);
    }
  });
}

// Scale and min number j (0 to 7) of the 12 bytes that Q4_K and Q5_K share.
struct ScaleMin {
  uint32_t scale;
  uint32_t min;
};

ScaleMin scale_min(const std::byte* p, int j) {
  if (j < 4) {
    return {u8_at(p, j) & 63, u8_at(p, j + 4) & 63};
  }
  return {(u8_at(p, j + 4) & 15) | u8_at(p, j - 4) >> 6 << 4,
          u8_at(p, j + 4) >> 4 | u8_at(p, j) >> 6 << 4};
}

void row_q4_k(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 144>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const float dmin = f16_at(b + 2);
    const std::byte* qs = b + 16;
    for (int j = 0; j < 8; ++j) {
      const ScaleMin sm = scale_min(b + 4, j);
      const float step = d * to_float(sm.scale);
      const float min = dmin * to_float(sm.min);
      for (int i = 0; i < 32; ++i) {
        const uint32_t q = u8_at(qs, 32 * (j / 2) + i) >> (4 * (j % 2)) & 15;
        y[32 * j + i] = step * to_float(q) - min;
      }
    }
  });
}

void row_q5_k(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 176>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const float dmin = f16_at(b + 2);
    const std::byte* high = b + 16;
    const std::byte* qs = b + 48;
    for (int j = 0; j < 8; ++j) {
      const ScaleMin sm = scale_min(b + 4, j);
      const float step = d * to_float(sm.scale);
      const float min = dmin * to_float(sm.min);
      for (int i = 0; i < 32; ++i) {
        const uint32_t low = u8_at(qs, 32 * (j / 2) + i) >> (4 * (j % 2)) & 15;
        const uint32_t q = low | (u8_at(high, i) >> j & 1) << 4;
        y[32 * j + i] = step * to_float(q) - min;
      }
    }
  });
}

void row_q6_k(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 210>(in, out, elems, [](const std::byte* b, float* y) {
    const std::byte* high = b + 128;
    const std::byte* scales = b + 192;
    const float d = f16_at(b + 208);
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128;    // 128 weights share 64 low and 32 high bytes
      const int run = i / 32 % 4;  // runs 0, 1 are low nibbles, 2, 3 high ones
      const uint32_t low = u8_at(b, 64 * half + 32 * (run % 2) + i % 32) >> (4 * (run / 2)) & 15;
      const uint32_t top = u8_at(high, 32 * half + i % 32) >> (2 * run) & 3;
      const float step = d * static_cast<float>(i8_at(scales, i / 16));
      y[i] = step * static_cast<float>(static_cast<int>(low | top << 4) - 32);
    }
  });
}

void row_iq4_xs(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 136>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    const uint32_t scales_high = load<uint16_t>(b + 2);
    const std::byte* scales_low = b + 4;
    const std::byte* qs = b + 8;
    for (int j = 0; j < 8; ++j) {
      const uint32_t low = u8_at(scales_low, j / 2) >> (4 * (j % 2)) & 15;
      const uint32_t top = scales_high >> (2 * j) & 3;
      const float step = d * static_cast<float>(static_cast<int>(low | top << 4) - 32);
      for (int i = 0; i < 16; ++i) {
        const uint32_t q = u8_at(qs, 16 * j + i);
        y[32 * j + i] = step * static_cast<float>(kIq4Values[q & 15]);
        y[32 * j + i + 16] = step * static_cast<float>(kIq4Values[q >> 4]);
      }
    }
  });
}

// Five base-3 digits in a byte, stored as a fraction: digit k is the integer part of 3 * frac(byte
// * 3^k / 256).
int ternary_digit(uint32_t byte, int k) {
  constexpr uint32_t kPow3[5] = {1, 3, 9, 27, 81};
  const uint32_t fraction = byte * kPow3[k] & 0xFF;
  return static_cast<int>(fraction * 3 >> 8) - 1;
}

void row_tq1_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 54>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b + 52);
    for (int i = 0; i < 256; ++i) {
      int digit = 0;
      if (i < 160) {  // 32 bytes of five digits
        digit = ternary_digit(u8_at(b, i % 32), i / 32);
      } else if (i < 240) {  // 16 bytes of five digits
        digit = ternary_digit(u8_at(b, 32 + (i - 160) % 16), (i - 160) / 16);
      } else {  // 4 bytes of four digits
        digit = ternary_digit(u8_at(b, 48 + (i - 240) % 4), (i - 240) / 4);
      }
      y[i] = d * static_cast<float>(digit);
    }
  });
}

void row_tq2_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<256, 66>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b + 64);
    for (int i = 0; i < 256; ++i) {
      const uint32_t q = u8_at(b, 32 * (i / 128) + i % 32) >> (2 * (i / 32 % 4)) & 3;
      y[i] = d * static_cast<float>(static_cast<int>(q) - 1);
    }
  });
}

// ---- one and two bits, in reading order

void row_q1_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<128, 18>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 128; ++i) {
      y[i] = (u8_at(b, 2 + i / 8) >> (i % 8) & 1) != 0 ? d : -d;
    }
  });
}

void row_q2_0(const std::byte* in, float* out, int64_t elems) {
  for_each_block<64, 18>(in, out, elems, [](const std::byte* b, float* y) {
    const float d = f16_at(b);
    for (int i = 0; i < 64; ++i) {
      const uint32_t q = u8_at(b, 2 + i / 4) >> (2 * (i % 4)) & 3;
      y[i] = d * static_cast<float>(static_cast<int>(q) - 1);
    }
  });
}

constexpr DequantTable make_table() {
  DequantTable table = {};
  const auto set = [&](DType type, DequantFn row) {
    table.row[static_cast<std::size_t>(type)] = row;
  };
  set(DType::kF32, row_f32);
  set(DType::kF16, row_f16);
  set(DType::kBF16, row_bf16);
  set(DType::kF64, row_f64);
  set(DType::kF8E4M3, row_f8_e4m3);
  set(DType::kF8E5M2, row_f8_e5m2);
  set(DType::kQ4_0, row_q4_0);
  set(DType::kQ4_1, row_q4_1);
  set(DType::kQ5_0, row_q5_0);
  set(DType::kQ5_1, row_q5_1);
  set(DType::kQ8_0, row_q8_0);
  set(DType::kQ8_1, row_q8_1);
  set(DType::kQ2K, row_q2_k);
  set(DType::kQ3K, row_q3_k);
  set(DType::kQ4K, row_q4_k);
  set(DType::kQ5K, row_q5_k);
  set(DType::kQ6K, row_q6_k);
  set(DType::kIQ4NL, row_iq4_nl);
  set(DType::kIQ4XS, row_iq4_xs);
  set(DType::kMXFP4, row_mxfp4);
  set(DType::kNVFP4, row_nvfp4);
  set(DType::kTQ1_0, row_tq1_0);
  set(DType::kTQ2_0, row_tq2_0);
  set(DType::kQ1_0, row_q1_0);
  set(DType::kQ2_0, row_q2_0);
  return table;
}

}  // namespace

constinit const DequantTable kDequantScalar = make_table();

}  // namespace trine::kernels
