#include "platform/cpu.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Tiles are 8 KiB of state that Linux saves only for processes that asked (asm/prctl.h:
// ARCH_REQ_XCOMP_PERM, feature 18 of XCR0).
bool request_tile_permission() {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
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
  bool saves_tiles = false;
  if (osxsave) {
    const std::uint64_t xcr0 = read_xcr0();
    saves_tiles = (xcr0 & 0x60000u) == 0x60000u;
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
    features.amx_tile = has_bit(edx, 24);
    features.amx_int8 = has_bit(edx, 25);
  }
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    features.avxvnni = has_bit(eax, 4);
  }
  if (features.amx_tile && saves_tiles) {
    features.os_amx = request_tile_permission();
  }
  return features;
}

CpuIdentity detect_identity() {
  CpuIdentity out;
  unsigned eax = 0;
  std::array<unsigned, 3> name{};  // ebx, edx, ecx spell the vendor
  if (__get_cpuid(0, &eax, name.data(), &name[2], &name[1]) != 0) {
    const std::string_view vendor(reinterpret_cast<const char*>(name.data()), sizeof name);
    out.vendor = vendor == "GenuineIntel"   ? CpuVendor::kIntel
                 : vendor == "AuthenticAMD" ? CpuVendor::kAmd
                                            : CpuVendor::kOther;
  }
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    const unsigned family = eax >> 8 & 0xfu;
    const unsigned model = (eax >> 4 & 0xfu) | (eax >> 12 & 0xf0u);
    out.family = static_cast<int>(family == 0xf ? family + (eax >> 20 & 0xffu) : family);
    out.model = static_cast<int>(model);
  }
  return out;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

CpuIdentity cpu_identity() {
  static const CpuIdentity identity = detect_identity();
  return identity;
}

std::string_view isa_level_name(IsaLevel level) {
  constexpr std::array<std::string_view, kNumIsaLevels> kNames{"scalar", "avx2",       "avxvnni",
                                                               "avx512", "avx512vnni", "amx"};
  return kNames[static_cast<std::size_t>(level)];
}

std::string_view missing_feature(IsaLevel level, const CpuFeatures& features) {
  struct Need {
    IsaLevel from;  // this level and the later ones
    bool present;
    std::string_view name;
  };

  if (level == IsaLevel::kAvxVnni && !features.avxvnni) {
    return "AVX-VNNI";  // the 512-bit levels do without it
  }
  const std::array<Need, 13> needs{{
      {IsaLevel::kAvx2, features.os_avx, "operating system support for AVX registers"},
      {IsaLevel::kAvx2, features.avx2, "AVX2"},
      {IsaLevel::kAvx2, features.fma, "FMA"},
      {IsaLevel::kAvx2, features.f16c, "F16C"},
      {IsaLevel::kAvx512, features.os_avx512, "operating system support for AVX-512 registers"},
      {IsaLevel::kAvx512, features.avx512f, "AVX512F"},
      {IsaLevel::kAvx512, features.avx512bw, "AVX512BW"},
      {IsaLevel::kAvx512, features.avx512vl, "AVX512VL"},
      {IsaLevel::kAvx512, features.avx512dq, "AVX512DQ"},
      {IsaLevel::kAvx512Vnni, features.avx512vnni, "AVX512_VNNI"},
      {IsaLevel::kAmx, features.amx_tile, "AMX-TILE"},
      {IsaLevel::kAmx, features.amx_int8, "AMX-INT8"},
      {IsaLevel::kAmx, features.os_amx, "operating system support for AMX tiles"},
  }};
  for (const Need& need : needs) {
    if (level >= need.from && !need.present) {
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
        return fail(
            ErrorCode::kInvalidArgument,
            "--isa (TRINE_ISA) {}: this machine lacks {}; leave it unset or choose a lower level",
            forced, missing);
      }
      return level;
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "--isa (TRINE_ISA) {}: no such level; choose scalar, avx2, avxvnni, avx512, "
              "avx512vnni or amx",
              forced);
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
