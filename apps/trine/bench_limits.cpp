#include "apps/trine/bench_limits.h"

#include <atomic>

#include "apps/trine/machine.h"
#include "base/log.h"
#include "kernels/dispatch.h"

namespace trine::app {

void warn_if_cached(std::int64_t bytes) {
  if (const std::int64_t caches = cache_bytes(); bytes < 2 * caches) {
    log::warn(
        "--weight-bytes: {} MB may lie in caches of {} MB, which are faster than memory: % read "
        "says nothing below {} MB",
        bytes / 1000000, caches / 1000000, 2 * caches / 1000000);
  }
}

double Limits::read(const HugeBuffer& buffer, const ReadSetting& setting) {
  const auto total = static_cast<std::int64_t>(buffer.size());
  std::atomic<std::uint32_t> sink{0};
  const Stopwatch watch;
  team_->run([&](int thread_idx) {
    const auto [begin, end] = split_range(total, 1024, thread_idx, team_->num_threads());
    sink += kernels::limits_table().read(buffer.data() + begin, (end - begin) / 1024 * 1024,
                                         setting.streams, setting.prefetch);
  });
  return static_cast<double>(total) / watch.seconds() / 1e9;
}

void Limits::choose_setting(const HugeBuffer& buffer) {
  double best = 0;
  for (int round = 0; round < 2; ++round) {
    for (const ReadSetting& setting : kReadSettings) {
      const double gbps = read(buffer, setting);
      if (gbps > best) {
        best = gbps;
        setting_ = setting;
      }
    }
  }
}

double Limits::int8() {
  if (rounds_ == 0) {
    rounds_ = 1024;
    std::int32_t sink = 0;
    for (double seconds = 0; seconds < 4e-3; rounds_ *= 2) {
      const Stopwatch watch;
      kernels::limits_table().int8_dots(rounds_, &sink);
      seconds = watch.seconds();
    }
  }
  std::atomic<std::int64_t> ops{0};
  std::atomic<std::int32_t> sink{0};
  const Stopwatch watch;
  team_->run([&](int) {
    std::int32_t value = 0;
    ops += kernels::limits_table().int8_dots(rounds_, &value);
    sink ^= value;
  });
  return static_cast<double>(ops) / watch.seconds() / 1e9;
}

}  // namespace trine::app
