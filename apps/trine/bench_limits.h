// The machine's two limits, on the threads of a team: what the benchmarks stand beside.
// Thread rule: the main thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "platform/huge_buffer.h"
#include "platform/thread_team.h"

namespace trine::app {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Warns when `bytes` may lie in the caches of the machine, which are faster than the memory that
// read() measures: shares of it mean nothing then.
void warn_if_cached(std::int64_t bytes);

class Limits {
 public:
  explicit Limits(ThreadTeam& team) : team_(&team) {}

  // Tries how `buffer` is read fastest; read() reads so from then on.
  void choose_setting(const HugeBuffer& buffer);

  // Gigabytes a second over the whole buffer.
  double read(const HugeBuffer& buffer) { return read(buffer, setting_); }

  // Billions of int8 operations a second. A member's rounds take a few milliseconds.
  double int8();

 private:
  struct ReadSetting {
    int streams;
    std::int64_t prefetch;
  };

  double read(const HugeBuffer& buffer, const ReadSetting& setting);

  // Reading runs best with one of these on every machine seen so far; which one is measured.
  static constexpr ReadSetting kReadSettings[] = {{1, 0}, {1, 2048}, {1, 8192},
                                                  {2, 0}, {4, 0},    {4, 2048}};

  ThreadTeam* team_;
  ReadSetting setting_ = kReadSettings[0];
  std::int64_t rounds_ = 0;
};

}  // namespace trine::app
