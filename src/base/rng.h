// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A draw is a pure function of (seed, position, purpose, index); nothing is
// consumed, so batch mates, retries, hand-over and draft length cannot shift it (docs/numerics.md,
// rule 6).
#pragma once

#include <array>
#include <cstdint>

namespace trine {

// What a draw is for. Part of the counter, so two uses at one position never share bits.
enum class RngPurpose : std::uint32_t {
  kSample = 0,
  kAccept = 1,
  kResidual = 2,
  kDraft = 3,
  kCalibration = 4,
  kBootstrap = 5,
  kTest = 255,
};

// One Philox4x32-10 block: four words of the stream `seed` at the 128-bit counter
// (position, purpose, index).
inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t position,
                                           RngPurpose purpose, std::uint32_t index) {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(position),
                                 static_cast<std::uint32_t>(position >> 32),
                                 static_cast<std::uint32_t>(purpose), index};
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// A double in (0, 1), never 0 or 1, from 52 bits of a block; `half` picks words 0-1 or 2-3.
inline double uniform_open(const std::array<std::uint32_t, 4>& block, int half) {
  const std::size_t at = half == 0 ? 0 : 2;
  const std::uint64_t bits = (std::uint64_t{block[at]} << 32 | block[at + 1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace trine
