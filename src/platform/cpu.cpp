#include "platform/cpu.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <cpuid.h>

#include "base/check.h"

namespace trine {
namespace {

constexpr std::uint8_t kUnselected = 255;
std::atomic<std::uint8_t> g_level{kUnselected};

bool has_bit(unsigned word, int bit) {
  return ((word >> bit) & 1u) != 0;
}

// XCR0: which register states the operating system saves on a context switch.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

CpuFeatures detect() {
  CpuFeatures features;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) {
    return features;
  }
  features.fma = has_bit(ecx, 12);
  features.f16c = has_bit(ecx, 29);
  const bool osxsave = has_bit(ecx, 27);
  if (osxsave) {
    const std::uint64_t xcr0 = read_xcr0();
    features.os_avx = (xcr0 & 0x6u) == 0x6u;
    features.os_avx512 = (xcr0 & 0xe6u) == 0xe6u;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    features.avx2 = has_bit(ebx, 5);
    features.avx512f = has_bit(ebx, 16);
    features.avx512dq = has_bit(ebx, 17);
    features.avx512bw = has_bit(ebx, 30);
    features.avx512vl = has_bit(ebx, 31);
    features.avx512vnni = has_bit(ecx, 11);
  }
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string_view isa_level_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kScalar:
      return "scalar";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
  }
  return "?";
}

std::string_view missing_feature(IsaLevel level, const CpuFeatures& features) {
  struct Need {
    IsaLevel level;
    bool present;
    std::string_view name;
  };

  const std::array<Need, 9> needs{{
      {IsaLevel::kAvx2, features.os_avx, "operating system support for AVX registers"},
      {IsaLevel::kAvx2, features.avx2, "AVX2"},
      {IsaLevel::kAvx2, features.fma, "FMA"},
      {IsaLevel::kAvx2, features.f16c, "F16C"},
      {IsaLevel::kAvx512, features.os_avx512, "operating system support for AVX-512 registers"},
      {IsaLevel::kAvx512, features.avx512f, "AVX512F"},
      {IsaLevel::kAvx512, features.avx512bw, "AVX512BW"},
      {IsaLevel::kAvx512, features.avx512vl, "AVX512VL"},
      {IsaLevel::kAvx512, features.avx512dq, "AVX512DQ"},
  }};
  for (const Need& need : needs) {
    if (level >= need.level && !need.present) {
      return need.name;
    }
  }
  return {};
}

Result<IsaLevel> choose_isa_level(std::string_view forced, const CpuFeatures& features) {
  if (forced.empty()) {
    IsaLevel best = IsaLevel::kScalar;
    for (const IsaLevel level : kAllIsaLevels) {
      if (missing_feature(level, features).empty()) {
        best = level;
      }
    }
    return best;
  }
  for (const IsaLevel level : kAllIsaLevels) {
    if (forced == isa_level_name(level)) {
      const std::string_view missing = missing_feature(level, features);
      if (!missing.empty()) {
        return fail(ErrorCode::kInvalidArgument,
                    "TRINE_ISA={}: this machine lacks {}; unset TRINE_ISA or choose a lower level",
                    forced, missing);
      }
      return level;
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "TRINE_ISA={}: no such level; choose scalar, avx2 or avx512", forced);
}

Status select_isa_level() {
  if (g_level.load(std::memory_order_relaxed) != kUnselected) {
    return {};
  }
  const char* forced = std::getenv("TRINE_ISA");
  TRINE_TRY_ASSIGN(const IsaLevel level,
                   choose_isa_level(forced == nullptr ? "" : forced, cpu_features()));
  g_level.store(static_cast<std::uint8_t>(level), std::memory_order_relaxed);
  return {};
}

IsaLevel isa_level() {
  const std::uint8_t level = g_level.load(std::memory_order_relaxed);
  if (level != kUnselected) [[likely]] {
    return static_cast<IsaLevel>(level);
  }
  if (const Status status = select_isa_level(); !status.has_value()) {
    std::fprintf(stderr, "trine: %s\n", status.error().message.c_str());
    std::exit(exit_status(status.error().code));
  }
  return static_cast<IsaLevel>(g_level.load(std::memory_order_relaxed));
}

void override_isa_level(IsaLevel level) {
  TRINE_CHECK(missing_feature(level, cpu_features()).empty());
  g_level.store(static_cast<std::uint8_t>(level), std::memory_order_relaxed);
}

}  // namespace trine
