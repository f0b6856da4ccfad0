// Body of the limits family; contract in limits.h. TRINE_DOT_LANES_HEADER names the instruction
// set's dot_lanes.h.
#pragma once

#include <cstdint>

#include "kernels/limits.h"
#include TRINE_DOT_LANES_HEADER

namespace trine::kernels {
namespace {

constexpr std::int64_t kStep = sizeof(B);

template <unsigned kStreams>
std::uint32_t read_streams(const std::uint8_t* data, std::int64_t bytes,
                           std::int64_t prefetch_ahead) {
  const std::int64_t part = bytes / kStreams;
  B all[kStreams];
  for (unsigned s = 0; s < kStreams; ++s) {
    all[s] = bload(data);
  }
  for (std::int64_t at = 0; at < part; at += 64) {
#pragma GCC unroll 4
    for (unsigned s = 0; s < kStreams; ++s) {
      const std::uint8_t* const p = data + s * part + at;
      if (prefetch_ahead != 0) {
        prefetch(p + prefetch_ahead);
      }
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < 64; i += kStep) {
        all[s] = bor(all[s], bload(p + i));
      }
    }
  }
  std::uint8_t out[sizeof(B)];
  std::uint32_t sum = 0;
  for (unsigned s = 0; s < kStreams; ++s) {
    bstore(out, all[s]);
    for (std::uint8_t byte : out) {
      sum += byte;
    }
  }
  return sum;
}

std::uint32_t read_memory(const void* data, std::int64_t bytes, int streams,
                          std::int64_t prefetch_ahead) {
  const auto* const p = static_cast<const std::uint8_t*>(data);
  return streams == 1   ? read_streams<1>(p, bytes, prefetch_ahead)
         : streams == 2 ? read_streams<2>(p, bytes, prefetch_ahead)
                        : read_streams<4>(p, bytes, prefetch_ahead);
}

// Twelve chains hide the latency of the dot product on every core so far.
[[maybe_unused]] std::int64_t dots_in_registers(std::int64_t rounds, std::int32_t* sink) {
  constexpr unsigned kChains = 12;
  const std::int8_t x_codes[4] = {1, 2, 3, 4};
  std::uint8_t w_codes[sizeof(B)];
  for (std::uint8_t& code : w_codes) {
    code = 5;
  }
  B w = bload(w_codes);
  const X x = xload(x_codes);
  D sums[kChains];
  for (D& sum : sums) {
    sum = dset(0);
  }
  for (std::int64_t r = 0; r < rounds; ++r) {
    make_opaque(w);
#pragma GCC unroll 12
    for (unsigned i = 0; i < kChains; ++i) {
      sums[i] = ddot(sums[i], w, x);
    }
  }
  std::int32_t lanes[kVectorRows];
  *sink = 0;
  for (const D& sum : sums) {
    dstore(lanes, sum);
    *sink ^= lanes[0];
  }
  return rounds * kChains * kVectorRows * 4 * 2;
}

}  // namespace
}  // namespace trine::kernels
