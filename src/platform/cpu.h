// What the CPU and the operating system offer, and the instruction-set level the kernels run at.
//
// CPUID and XGETBV are read once. A level is a set of features, not a CPU model:
//   scalar  baseline x86-64
//   avx2    AVX2, FMA, F16C
//   avxvnni     the 256-bit int8 dot product on top of avx2
//   avx512      AVX-512 F, BW, VL, DQ on top of avx2
//   avx512vnni  the 512-bit int8 dot product on top of avx512
//   amx         the AMX int8 matrix unit on top of avx512vnni, when the system lets us use it
// The best level that the machine has is used; the environment variable TRINE_ISA forces another
// one. Results do not depend on the level
// (docs/numerics.md), only speed does. Errors: invalid_argument when TRINE_ISA names no level or a
// level whose features the CPU lacks. Thread rule: any thread; override_isa_level() only while no
// operation runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace trine {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512vnni = false;
  bool avxvnni = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool os_avx = false;     // the kernel saves ymm registers
  bool os_avx512 = false;  // and zmm and mask registers
  bool os_amx = false;     // and tiles, and this process may use them
};

enum class CpuVendor : std::uint8_t { kOther, kIntel, kAmd };

// As CPUID gives them, the extended parts added.
struct CpuIdentity {
  CpuVendor vendor = CpuVendor::kOther;
  int family = 0;
  int model = 0;
};

// Of this machine.
CpuIdentity cpu_identity();

// In the order of preference.
enum class IsaLevel : std::uint8_t { kScalar, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAmx };
inline constexpr int kNumIsaLevels = 6;
inline constexpr std::array<IsaLevel, kNumIsaLevels> kAllIsaLevels{
    IsaLevel::kScalar, IsaLevel::kAvx2,       IsaLevel::kAvxVnni,
    IsaLevel::kAvx512, IsaLevel::kAvx512Vnni, IsaLevel::kAmx};

// Of this machine.
const CpuFeatures& cpu_features();

// "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx".
std::string_view isa_level_name(IsaLevel level);

// The first feature that `level` needs and `features` lacks, or an empty string.
std::string_view missing_feature(IsaLevel level, const CpuFeatures& features);

// The level for these features when TRINE_ISA has the value `forced` (empty: not set). Pure.
Result<IsaLevel> choose_isa_level(std::string_view forced, const CpuFeatures& features);

// Chooses the level of this process from the environment; idempotent. ThreadTeam::create() calls
// it, so whoever computes gets the error as a value.
Status select_isa_level();

// The level in use. Ends the process with a message when select_isa_level() would fail.
IsaLevel isa_level();

// For tests and self-checks: runs the following operations at `level`, which the machine must have.
void override_isa_level(IsaLevel level);

}  // namespace trine
