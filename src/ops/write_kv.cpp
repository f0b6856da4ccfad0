// The write of a step's new keys and values into pages (layout: tensor/kv_layout.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/dispatch.h"
#include "ops/attention.h"

namespace trine::ops {
namespace {

constexpr std::uint8_t kZeroCode = 128;  // tensor/kv_layout.h

// codes[i] = 128 + round(x[i] / scale) in 1..255, scale = max |x| / 127 rounded to binary16, whose
// bits are returned. Values that binary16 scales cannot reach (NaN, beyond 8.3e6) make the scale
// NaN, so that they come back as NaN and not as something plausible.
std::uint16_t quantize_i8(const float* x, std::int64_t n, std::uint8_t* codes) {
  constexpr std::uint16_t kNan = 0x7e00;
  constexpr float kLargestF16 = 65504.0f;
  constexpr float kRounder = 0x1.8p23f;  // added and taken away again: rounds to nearest even
  float largest = 0.0f;
  bool comparable = true;
  for (std::int64_t i = 0; i < n; ++i) {
    comparable = comparable && x[i] == x[i];
    largest = std::max(largest, std::fabs(x[i]));
  }
  const float wanted = largest / 127.0f;
  if (!comparable || wanted > kLargestF16) {
    std::fill_n(codes, n, kZeroCode);
    return kNan;
  }
  const std::uint16_t bits = f32_to_f16(wanted);
  const float scale = f16_to_f32(bits);
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = scale == 0.0f ? 0.0f : std::clamp(x[i] / scale, -127.0f, 127.0f);
    codes[i] = static_cast<std::uint8_t>((code + kRounder) - kRounder + float{kZeroCode});
  }
  return bits;
}

// One token's keys and values of one head as stored elements, before they go to their places.
class RowWriter {
 public:
  explicit RowWriter(const KvGeometry& geometry)
      : geometry_(geometry), convert_(kernels::convert_table()) {}

  void write_key(const float* k, std::byte* block, std::int64_t token) {
    const std::int64_t dim = geometry_.head_dim_k;
    each_piece(k, dim, block + geometry_.key_scale(token),
               [&](std::int64_t first, std::int64_t count) {
                 const std::int64_t element = geometry_.element_bytes();
                 for (std::int64_t i = 0; i < count; ++i) {
                   std::memcpy(block + geometry_.key_element(token, first + i),
                               piece_.data() + i * element, static_cast<std::size_t>(element));
                 }
               });
    for (std::int64_t d = dim; d < geometry_.padded_dim_k(); ++d) {
      block[geometry_.key_element(token, d)] = std::byte{kZeroCode};
    }
  }

  void write_value(const float* v, std::byte* block, std::int64_t token) {
    const std::int64_t element = geometry_.element_bytes();
    const std::int64_t dim = geometry_.head_dim_v;
    if (geometry_.dtype == DType::kI8) {
      each_piece(v, dim, block + geometry_.value_scale(token),
                 [&](std::int64_t first, std::int64_t count) {
                   for (std::int64_t i = 0; i < count; ++i) {
                     block[geometry_.value_element(token, first + i)] =
                         piece_[static_cast<std::size_t>(i)];
                   }
                 });
      for (std::int64_t d = dim; d < geometry_.padded_dim_v(); ++d) {
        block[geometry_.value_element(token, d)] = std::byte{kZeroCode};
      }
      return;
    }
    each_piece(v, dim, block + geometry_.value_scale(token),
               [&](std::int64_t first, std::int64_t count) {
                 std::memcpy(block + geometry_.value_element(token, first), piece_.data(),
                             static_cast<std::size_t>(count * element));
               });
    std::memset(block + geometry_.value_element(token, dim), 0,
                static_cast<std::size_t>((geometry_.padded_dim_v() - dim) * element));
  }

 private:
  static constexpr std::int64_t kPiece =
      kMaxCodeDim;  // elements of a row that are converted at a time

  // Calls put(first, count) with elements [first, first + count) in piece_.
  template <typename Put>
  void each_piece(const float* x, std::int64_t n, std::byte* scale, Put&& put) {
    if (geometry_.dtype == DType::kI8) {
      TRINE_CHECK(n <= kPiece);
      const std::uint16_t bits = quantize_i8(x, n, reinterpret_cast<std::uint8_t*>(piece_.data()));
      std::memcpy(scale, &bits, sizeof bits);
      put(0, n);
      return;
    }
    for (std::int64_t first = 0; first < n; first += kPiece) {
      const std::int64_t count = std::min(kPiece, n - first);
      if (geometry_.dtype == DType::kF32) {
        std::memcpy(piece_.data(), x + first, static_cast<std::size_t>(count) * sizeof(float));
      } else if (geometry_.dtype == DType::kF16) {
        convert_.f32_to_f16(x + first, piece_.data(), count);
      } else {
        convert_.f32_to_bf16(x + first, piece_.data(), count);
      }
      put(first, count);
    }
  }

  const KvGeometry& geometry_;
  const kernels::ConvertTable& convert_;
  std::array<std::byte, kPiece * sizeof(float)> piece_;
};

}  // namespace

void write_kv(Context& ctx, const KvGeometry& geometry, std::int32_t layer,
              std::span<const AttentionSpan> spans, const float* k, std::int64_t k_stride,
              const float* v, std::int64_t v_stride) {
  TRINE_CHECK(geometry.element_bytes() > 0 && layer >= 0 && layer < geometry.num_layers);
  TRINE_CHECK(k_stride >= std::int64_t{geometry.num_kv_heads} * geometry.head_dim_k);
  TRINE_CHECK(v_stride >= std::int64_t{geometry.num_kv_heads} * geometry.head_dim_v);
  std::int64_t total_rows = 0;
  for (const AttentionSpan& span : spans) {
    check_span(span);
    total_rows += span.num_rows;
  }
  const auto write_row = [&](RowWriter& writer, const AttentionSpan& span, std::int64_t i) {
    const std::int64_t slot = span.first_slot + i;
    std::byte* page = span.pages[static_cast<std::size_t>(slot / kPageTokens)];
    const float* k_row = k + (span.first_row + i) * k_stride;
    const float* v_row = v + (span.first_row + i) * v_stride;
    for (std::int32_t g = 0; g < geometry.num_kv_heads; ++g) {
      writer.write_key(k_row + std::int64_t{g} * geometry.head_dim_k,
                       page + geometry.key_offset(layer, g), slot % kPageTokens);
      writer.write_value(v_row + std::int64_t{g} * geometry.head_dim_v,
                         page + geometry.value_offset(layer, g), slot % kPageTokens);
    }
  };
  const auto work = [&](int thread_idx, int num_threads) {
    RowWriter writer(geometry);
    std::int64_t base = 0;
    // Whole pages where spans begin at one: tokens of a page share cache lines.
    const auto [begin, end] = split_range(total_rows, kPageTokens, thread_idx, num_threads);
    for (const AttentionSpan& span : spans) {
      const std::int64_t first = std::max<std::int64_t>(begin - base, 0);
      const std::int64_t last = std::min<std::int64_t>(end - base, span.num_rows);
      for (std::int64_t i = first; i < last; ++i) {
        write_row(writer, span, i);
      }
      base += span.num_rows;
    }
  };
  constexpr std::int64_t kMinParallelRows = 64;
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || total_rows < kMinParallelRows) {
    work(0, 1);
    return;
  }
  ctx.team().run([&](int thread_idx) { work(thread_idx, num_threads); });
}

}  // namespace trine::ops
