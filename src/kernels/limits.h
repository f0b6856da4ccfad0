// Family `limits`: the two physical limits of this machine that a step runs against, for benchmarks
// and plans: how fast memory can be read, and how many int8 products the unit in use can make.
//
// Nothing here computes a result anybody wants; the loops only keep the unit busy the way the best
// kernel could. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace trine::kernels {

struct LimitsTable {
  // Reads the whole of [data, data + bytes) with plain loads in `streams` (1, 2 or 4) equal parts
  // side by side, and asks for lines `prefetch` bytes ahead (0: not at all). data is aligned to 64,
  // bytes a multiple of 1024. Returns a value made of everything that was read.
  std::uint32_t (*read)(const void* data, std::int64_t bytes, int streams, std::int64_t prefetch);
  // `rounds` rounds of int8 dot products on registers alone. Returns the operations done (a
  // multiply and an add are two); `sink` receives a value made of the sums.
  std::int64_t (*int8_dots)(std::int64_t rounds, std::int32_t* sink);
};

extern const LimitsTable kLimitsScalar;
extern const LimitsTable kLimitsAvx2;
extern const LimitsTable kLimitsAvxVnni;
extern const LimitsTable kLimitsAvx512;
extern const LimitsTable kLimitsAvx512Vnni;
extern const LimitsTable kLimitsAmx;

}  // namespace trine::kernels
