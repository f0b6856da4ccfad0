// The vector dequantizers, shared by the instruction sets: unpacking works on 16 codes at a time in
// 128-bit registers, and the including file says how 16 codes become 16 floats. Include it inside
// an anonymous namespace, after defining, for i8 codes,
//   scale16(float* y, __m128i codes, float step)                  y[i] = step * codes[i]
//   affine16(float* y, __m128i codes, float step, float offset)   y[i] = step * codes[i] + offset
// with separate multiply and add (no fma), as the reference computes. Its `step * q - min` is
// `+ -min` here, which rounds the same. Layouts and reference: scalar/dequant.cpp.
// Length: one small function for each of the 25 formats, best read side by side.

using std::int64_t;
using Bytes = const std::byte*;

#define TRINE_INLINE inline __attribute__((always_inline))

TRINE_INLINE unsigned byte_at(Bytes p, int64_t i) {
  return static_cast<unsigned>(p[i]);
}

template <typename T>
TRINE_INLINE T load_as(Bytes p) {
  T value = {};
  __builtin_memcpy(&value, p, sizeof(T));
  return value;
}

TRINE_INLINE float f16_scale(Bytes p) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_as<unsigned short>(p))));
}

TRINE_INLINE float float_of_bits(unsigned bits) {
  float value = 0.0f;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

TRINE_INLINE float as_float(unsigned q) {
  return static_cast<float>(static_cast<int>(q));
}

TRINE_INLINE __m128i load16(Bytes p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// (v >> shift) & mask on every byte; the mask drops the bits that came from the neighbour.
TRINE_INLINE __m128i field(__m128i v, int64_t shift, char mask) {
  return _mm_and_si128(_mm_srl_epi16(v, _mm_cvtsi64_si128(shift)), _mm_set1_epi8(mask));
}

TRINE_INLINE __m128i low_nibbles(__m128i v) {
  return _mm_and_si128(v, _mm_set1_epi8(15));
}

TRINE_INLINE __m128i high_nibbles(__m128i v) {
  return field(v, 4, 15);
}

// Bytes of 0xFF where bit i of `bits` is set, 0 elsewhere.
TRINE_INLINE __m128i spread16(unsigned bits) {
  const __m128i both = _mm_set1_epi16(static_cast<short>(bits));
  const __m128i spread = _mm_shuffle_epi8(both, _mm_set_epi64x(0x0101010101010101, 0));
  const __m128i bit = _mm_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  return _mm_cmpeq_epi8(_mm_and_si128(spread, bit), bit);
}

TRINE_INLINE __m128i iq4_values() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

TRINE_INLINE __m128i e2m1_doubled() {
  return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}

// ---- blocks of 32

void row_q4_0(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 32, b += 18, y += 32) {
    const float d = f16_scale(b);
    const __m128i q = load16(b + 2);
    scale16(y, _mm_sub_epi8(low_nibbles(q), _mm_set1_epi8(8)), d);
    scale16(y + 16, _mm_sub_epi8(high_nibbles(q), _mm_set1_epi8(8)), d);
  }
}

void row_q4_1(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 32, b += 20, y += 32) {
    const float d = f16_scale(b);
    const float m = f16_scale(b + 2);
    const __m128i q = load16(b + 4);
    affine16(y, low_nibbles(q), d, m);
    affine16(y + 16, high_nibbles(q), d, m);
  }
}

void row_q5_0(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 32, b += 22, y += 32) {
    const float d = f16_scale(b);
    const unsigned high = load_as<unsigned>(b + 2);
    const __m128i q = load16(b + 6);
    // A clear fifth bit means minus 16; a set one cancels it, and -16 is 0xF0 in the upper nibble.
    const __m128i minus16 = _mm_set1_epi8(-16);
    scale16(y, _mm_or_si128(low_nibbles(q), _mm_andnot_si128(spread16(high), minus16)), d);
    scale16(y + 16, _mm_or_si128(high_nibbles(q), _mm_andnot_si128(spread16(high >> 16), minus16)),
            d);
  }
}

void row_q5_1(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 32, b += 24, y += 32) {
    const float d = f16_scale(b);
    const float m = f16_scale(b + 2);
    const unsigned high = load_as<unsigned>(b + 4);
    const __m128i q = load16(b + 8);
    const __m128i bit = _mm_set1_epi8(16);
    affine16(y, _mm_or_si128(low_nibbles(q), _mm_and_si128(spread16(high), bit)), d, m);
    affine16(y + 16, _mm_or_si128(high_nibbles(q), _mm_and_si128(spread16(high >> 16), bit)), d, m);
  }
}

template <int kHeader>
TRINE_INLINE void row_q8(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 32, b += kHeader + 32, y += 32) {
    const float d = f16_scale(b);
    scale16(y, load16(b + kHeader), d);
    scale16(y + 16, load16(b + kHeader + 16), d);
  }
}

void row_q8_0(Bytes b, float* y, int64_t elems) {
  row_q8<2>(b, y, elems);
}

void row_q8_1(Bytes b, float* y, int64_t elems) {
  row_q8<4>(b, y, elems);
}

void row_iq4_nl(Bytes b, float* y, int64_t elems) {
  const __m128i values = iq4_values();
  for (; elems > 0; elems -= 32, b += 18, y += 32) {
    const float d = f16_scale(b);
    const __m128i q = load16(b + 2);
    scale16(y, _mm_shuffle_epi8(values, low_nibbles(q)), d);
    scale16(y + 16, _mm_shuffle_epi8(values, high_nibbles(q)), d);
  }
}

void row_mxfp4(Bytes b, float* y, int64_t elems) {
  const __m128i values = e2m1_doubled();
  for (; elems > 0; elems -= 32, b += 17, y += 32) {
    const unsigned e = byte_at(b, 0);
    const float d = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    const __m128i q = load16(b + 1);
    scale16(y, _mm_shuffle_epi8(values, low_nibbles(q)), d);
    scale16(y + 16, _mm_shuffle_epi8(values, high_nibbles(q)), d);
  }
}

void row_nvfp4(Bytes b, float* y, int64_t elems) {
  const __m128i values = e2m1_doubled();
  for (; elems > 0; elems -= 64, b += 36) {
    for (int64_t s = 0; s < 4; ++s, y += 16) {
      const unsigned bits = byte_at(b, s);
      const unsigned magnitude = bits & 0x7F;
      const float d = bits == 0x7F    ? 0.0f
                      : magnitude < 8 ? as_float(magnitude) * 0x1p-10f
                                      : float_of_bits((magnitude << 20) + (119u << 23));
      const __m128i q = _mm_cvtsi64_si128(load_as<long long>(b + 4 + 8 * s));
      const __m128i codes = _mm_unpacklo_epi64(low_nibbles(q), high_nibbles(q));
      scale16(y, _mm_shuffle_epi8(values, codes), d);
    }
  }
}

// ---- blocks of 256

void row_q2_k(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 256, b += 84, y += 256) {
    const float d = f16_scale(b + 80);
    const float dmin = f16_scale(b + 82);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t part = 0; part < 2; ++part) {
        const __m128i q = load16(b + 16 + 32 * half + 16 * part);
        for (int64_t pair = 0; pair < 4; ++pair) {
          const int64_t group = 8 * half + 2 * pair + part;
          const unsigned scale = byte_at(b, group);
          affine16(y + 16 * group, field(q, 2 * pair, 3), d * as_float(scale & 15),
                   -(dmin * as_float(scale >> 4)));
        }
      }
    }
  }
}

void row_q3_k(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 256, b += 110, y += 256) {
    const Bytes scales = b + 96;
    const float d = f16_scale(b + 108);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t part = 0; part < 2; ++part) {
        const __m128i q = load16(b + 32 + 32 * half + 16 * part);
        const __m128i high = load16(b + 16 * part);
        for (int64_t pair = 0; pair < 4; ++pair) {
          const int64_t s = 8 * half + 2 * pair + part;
          const unsigned low = byte_at(scales, s % 8) >> (4 * (s / 8)) & 15;
          const unsigned top = byte_at(scales, 8 + s % 4) >> (2 * (s / 4)) & 3;
          const float step = d * static_cast<float>(static_cast<int>(low | top << 4) - 32);
          const __m128i third = _mm_slli_epi16(field(high, 4 * half + pair, 1), 2);
          const __m128i codes = _mm_or_si128(field(q, 2 * pair, 3), third);
          scale16(y + 16 * s, _mm_sub_epi8(codes, _mm_set1_epi8(4)), step);
        }
      }
    }
  }
}

TRINE_INLINE void scale_min(Bytes p, int64_t j, unsigned* scale, unsigned* min) {
  if (j < 4) {
    *scale = byte_at(p, j) & 63;
    *min = byte_at(p, j + 4) & 63;
  } else {
    *scale = (byte_at(p, j + 4) & 15) | byte_at(p, j - 4) >> 6 << 4;
    *min = byte_at(p, j + 4) >> 4 | byte_at(p, j) >> 6 << 4;
  }
}

// Q4_K and Q5_K differ by the 32 bytes of fifth bits.
template <bool kFifthBit>
TRINE_INLINE void row_q45_k(Bytes b, float* y, int64_t elems) {
  constexpr int kCodes = kFifthBit ? 48 : 16;
  for (; elems > 0; elems -= 256, b += kCodes + 128, y += 256) {
    const float d = f16_scale(b);
    const float dmin = f16_scale(b + 2);
    for (int64_t j = 0; j < 8; ++j) {
      unsigned scale = 0;
      unsigned min = 0;
      scale_min(b + 4, j, &scale, &min);
      const float step = d * as_float(scale);
      const float offset = -(dmin * as_float(min));
      for (int64_t part = 0; part < 2; ++part) {
        __m128i q = field(load16(b + kCodes + 32 * (j / 2) + 16 * part), 4 * (j % 2), 15);
        if constexpr (kFifthBit) {
          q = _mm_or_si128(q, _mm_slli_epi16(field(load16(b + 16 + 16 * part), j, 1), 4));
        }
        affine16(y + 32 * j + 16 * part, q, step, offset);
      }
    }
  }
}

void row_q4_k(Bytes b, float* y, int64_t elems) {
  row_q45_k<false>(b, y, elems);
}

void row_q5_k(Bytes b, float* y, int64_t elems) {
  row_q45_k<true>(b, y, elems);
}

void row_q6_k(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 256, b += 210, y += 256) {
    const float d = f16_scale(b + 208);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t run = 0; run < 4; ++run) {
        for (int64_t part = 0; part < 2; ++part) {
          const __m128i low = load16(b + 64 * half + 32 * (run % 2) + 16 * part);
          const __m128i high = load16(b + 128 + 32 * half + 16 * part);
          const __m128i codes = _mm_or_si128(field(low, 4 * (run / 2), 15),
                                             _mm_slli_epi16(field(high, 2 * run, 3), 4));
          const int64_t group = 8 * half + 2 * run + part;
          const float step =
              d * static_cast<float>(static_cast<signed char>(byte_at(b, 192 + group)));
          scale16(y + 16 * group, _mm_sub_epi8(codes, _mm_set1_epi8(32)), step);
        }
      }
    }
  }
}

void row_iq4_xs(Bytes b, float* y, int64_t elems) {
  const __m128i values = iq4_values();
  for (; elems > 0; elems -= 256, b += 136, y += 256) {
    const float d = f16_scale(b);
    const unsigned scales_high = load_as<unsigned short>(b + 2);
    for (int64_t j = 0; j < 8; ++j) {
      const unsigned low = byte_at(b, 4 + j / 2) >> (4 * (j % 2)) & 15;
      const unsigned top = scales_high >> (2 * j) & 3;
      const float step = d * static_cast<float>(static_cast<int>(low | top << 4) - 32);
      const __m128i q = load16(b + 8 + 16 * j);
      scale16(y + 32 * j, _mm_shuffle_epi8(values, low_nibbles(q)), step);
      scale16(y + 32 * j + 16, _mm_shuffle_epi8(values, high_nibbles(q)), step);
    }
  }
}

// Ternary digits of 16 bytes, -1 to 1: (byte * 3^k mod 256) * 3 / 256 - 1.
TRINE_INLINE __m128i ternary16(__m128i bytes, __m256i pow3) {
  const __m256i wide = _mm256_cvtepu8_epi16(bytes);
  const __m256i fraction = _mm256_and_si256(_mm256_mullo_epi16(wide, pow3), _mm256_set1_epi16(255));
  const __m256i digit = _mm256_srli_epi16(_mm256_mullo_epi16(fraction, _mm256_set1_epi16(3)), 8);
  const __m128i packed =
      _mm_packus_epi16(_mm256_castsi256_si128(digit), _mm256_extracti128_si256(digit, 1));
  return _mm_sub_epi8(packed, _mm_set1_epi8(1));
}

void row_tq1_0(Bytes b, float* y, int64_t elems) {
  constexpr short kPow3[5] = {1, 3, 9, 27, 81};
  const __m256i last = _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27);
  for (; elems > 0; elems -= 256, b += 54, y += 256) {
    const float d = f16_scale(b + 52);
    for (int64_t k = 0; k < 5; ++k) {
      const __m256i pow3 = _mm256_set1_epi16(kPow3[k]);
      scale16(y + 32 * k, ternary16(load16(b), pow3), d);
      scale16(y + 32 * k + 16, ternary16(load16(b + 16), pow3), d);
      scale16(y + 160 + 16 * k, ternary16(load16(b + 32), pow3), d);
    }
    scale16(y + 240, ternary16(_mm_set1_epi32(load_as<int>(b + 48)), last), d);
  }
}

void row_tq2_0(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 256, b += 66, y += 256) {
    const float d = f16_scale(b + 64);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t part = 0; part < 2; ++part) {
        const __m128i q = load16(b + 32 * half + 16 * part);
        for (int64_t pair = 0; pair < 4; ++pair) {
          scale16(y + 128 * half + 32 * pair + 16 * part,
                  _mm_sub_epi8(field(q, 2 * pair, 3), _mm_set1_epi8(1)), d);
        }
      }
    }
  }
}

// ---- one and two bits, in reading order

void row_q1_0(Bytes b, float* y, int64_t elems) {
  for (; elems > 0; elems -= 128, b += 18) {
    const float d = f16_scale(b);
    for (int64_t i = 0; i < 8; ++i, y += 16) {
      // 0xFF or 0 becomes 1 or -1.
      const __m128i set = spread16(load_as<unsigned short>(b + 2 + 2 * i));
      scale16(y, _mm_sub_epi8(_mm_set1_epi8(-1), _mm_add_epi8(set, set)), d);
    }
  }
}

void row_q2_0(Bytes b, float* y, int64_t elems) {
  // Byte i of the codes comes from byte i/4 of the word, at bit 2 * (i % 4).
  const __m128i source = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  for (; elems > 0; elems -= 64, b += 18) {
    const float d = f16_scale(b);
    for (int64_t i = 0; i < 4; ++i, y += 16) {
      const __m128i word = _mm_cvtsi32_si128(load_as<int>(b + 2 + 4 * i));
      const __m128i q = _mm_shuffle_epi8(word, source);
      const __m128i codes = _mm_or_si128(
          _mm_or_si128(_mm_and_si128(q, _mm_set1_epi32(0x00000003)),
                       _mm_and_si128(_mm_srli_epi32(q, 2), _mm_set1_epi32(0x00000300))),
          _mm_or_si128(_mm_and_si128(_mm_srli_epi32(q, 4), _mm_set1_epi32(0x00030000)),
                       _mm_and_si128(_mm_srli_epi32(q, 6), _mm_set1_epi32(0x03000000))));
      scale16(y, _mm_sub_epi8(codes, _mm_set1_epi8(1)), d);
    }
  }
}

// ---- plain types, any count

void row_f32(Bytes in, float* y, int64_t elems) {
  if (elems > 0) {
    __builtin_memcpy(y, in, static_cast<unsigned long>(elems) * sizeof(float));
  }
}

void row_f64(Bytes in, float* y, int64_t elems) {
  int64_t i = 0;
  for (; i + 4 <= elems; i += 4) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 8 * i));
    _mm_storeu_ps(y + i, _mm256_cvtpd_ps(_mm256_castsi256_pd(bits)));
  }
  for (; i < elems; ++i) {
    y[i] = static_cast<float>(load_as<double>(in + 8 * i));
  }
}

TRINE_INLINE __m256 widen_e4m3(__m128i eight) {
  const __m256i bits = _mm256_cvtepu8_epi32(eight);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7F));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x80)), 24);
  const __m256i normal =
      _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f));
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
  const __m256i finite = _mm256_blendv_epi8(normal, _mm256_castps_si256(small), is_small);
  const __m256i value = _mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7FC00000), is_nan);
  return _mm256_castsi256_ps(_mm256_or_si256(value, sign));
}

// E5M2 is the upper half of an f16.
TRINE_INLINE __m256 widen_e5m2(__m128i eight) {
  return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), eight));
}

template <__m256 (*Widen)(__m128i)>
TRINE_INLINE void row_f8(Bytes in, float* y, int64_t elems) {
  int64_t i = 0;
  for (; i + 8 <= elems; i += 8) {
    _mm256_storeu_ps(y + i, Widen(_mm_cvtsi64_si128(load_as<long long>(in + i))));
  }
  if (i < elems) {
    const unsigned long rest = static_cast<unsigned long>(elems - i);
    long long eight = 0;
    float out[8];
    __builtin_memcpy(&eight, in + i, rest);
    _mm256_storeu_ps(out, Widen(_mm_cvtsi64_si128(eight)));
    __builtin_memcpy(y + i, out, rest * sizeof(float));
  }
}

void row_f8_e4m3(Bytes in, float* y, int64_t elems) {
  row_f8<widen_e4m3>(in, y, elems);
}

void row_f8_e5m2(Bytes in, float* y, int64_t elems) {
  row_f8<widen_e5m2>(in, y, elems);
}

// `f16` and `bf16` come from the conversion family of the same instruction set.
constexpr DequantTable make_table(DequantFn f16, DequantFn bf16) {
  DequantTable table = {};
  const auto set = [&](DType type, DequantFn row) { table.row[static_cast<int>(type)] = row; };
  set(DType::kF32, row_f32);
  set(DType::kF16, f16);
  set(DType::kBF16, bf16);
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

#undef TRINE_INLINE
