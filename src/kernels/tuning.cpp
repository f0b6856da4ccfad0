#include "kernels/tuning.h"

#include <algorithm>
#include <array>
#include <optional>

namespace trine::kernels {
namespace {

// A field without a value fits everything.
struct Row {
  std::optional<CpuVendor> vendor;
  std::optional<int> model;  // of family 6 for Intel
  std::optional<IsaLevel> level;
  Tuning tuning;
};

// Of second-level caches of 1 MiB (Zen 4 and 5) and 2 MiB (Emerald Rapids).
constexpr std::int64_t kHalfMiB = std::int64_t{512} * 1024;

// The first row that fits counts. Measured with `trine bench kernels` on Emerald Rapids (Intel
// model 207): lines asked for 4 to 12 KiB ahead keep a core's outstanding misses in use, fewer or
// more do not; on Zen 5 (family 26) 4 KiB and more are alike. With 512-bit dot products
// unpacking again for every ten rows costs less than the detour through the first-level cache up to
// 128 rows on Zen 5. Without it the products are the larger part of the work. A CPU that wants
// other figures gets a row before these.
constexpr std::array kRows{
    Row{{}, {}, IsaLevel::kAvx2, {6144, 8192, 12, kHalfMiB}},
    Row{{}, {}, IsaLevel::kAvx512, {6144, 8192, 12, kHalfMiB}},
    Row{{}, {}, IsaLevel::kAvx512Vnni, {6144, 8192, 64, kHalfMiB}},
    Row{{}, {}, {}, {6144, 8192, 10, kHalfMiB}},
};

bool fits(const Row& row, const CpuIdentity& cpu, IsaLevel level) {
  return row.vendor.value_or(cpu.vendor) == cpu.vendor &&
         row.model.value_or(cpu.model) == cpu.model && row.level.value_or(level) == level;
}

}  // namespace

Tuning tuning(IsaLevel level) {
  const CpuIdentity cpu = cpu_identity();
  return std::ranges::find_if(kRows, [&](const Row& row) { return fits(row, cpu, level); })->tuning;
}

}  // namespace trine::kernels
