// Deals the turns [0, n) of one piece of parallel work out to the members of a team.
//
// Every member owns a contiguous part and takes it from the front, so that what it reads from
// memory is one stream; who is done takes from the back of the longest part left, so that a member
// that is held up does not hold up the others. (Work stealing: Blumofe and Leiserson, "Scheduling
// multithreaded computations by work stealing", 1999; here on ranges, as no turn makes new ones.)
// Thread rule: start() by one thread before the others call next(); next() by each member for
// itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "platform/thread_team.h"

namespace trine {

class TurnQueue {
 public:
  explicit TurnQueue(int num_members) : parts_(static_cast<std::size_t>(num_members)) {}

  // turns < 2^32.
  void start(std::int64_t turns) {
    TRINE_CHECK(turns >= 0 && turns <= UINT32_MAX);
    const int members = static_cast<int>(parts_.size());
    for (int i = 0; i < members; ++i) {
      const auto [begin, end] = split_range(turns, 1, i, members);
      parts_[static_cast<std::size_t>(i)].range.store(pack(begin, end), std::memory_order_relaxed);
    }
  }

  // The member's next turn, -1 when none is left.
  std::int64_t next(int member) {
    std::atomic<std::uint64_t>& own = parts_[static_cast<std::size_t>(member)].range;
    std::uint64_t range = own.load(std::memory_order_relaxed);
    while (begin_of(range) < end_of(range)) {
      if (own.compare_exchange_weak(range, pack(begin_of(range) + 1, end_of(range)),
                                    std::memory_order_relaxed)) {
        return begin_of(range);
      }
    }
    return steal();
  }

 private:
  // One cache line each: parts are written by their owners all the time.
  struct alignas(64) Part {
    std::atomic<std::uint64_t> range{0};
  };

  static std::uint64_t pack(std::int64_t begin, std::int64_t end) {
    return static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end);
  }

  static std::int64_t begin_of(std::uint64_t range) {
    return static_cast<std::int64_t>(range >> 32);
  }

  static std::int64_t end_of(std::uint64_t range) {
    return static_cast<std::int64_t>(range & UINT32_MAX);
  }

  std::int64_t steal() {
    for (;;) {
      std::atomic<std::uint64_t>* victim = nullptr;
      std::uint64_t most = 0;
      for (Part& part : parts_) {
        const std::uint64_t range = part.range.load(std::memory_order_relaxed);
        if (end_of(range) - begin_of(range) > end_of(most) - begin_of(most)) {
          victim = &part.range;
          most = range;
        }
      }
      if (victim == nullptr) {
        return -1;
      }
      if (victim->compare_exchange_weak(most, pack(begin_of(most), end_of(most) - 1),
                                        std::memory_order_relaxed)) {
        return end_of(most) - 1;
      }
    }
  }

  std::vector<Part> parts_;
};

}  // namespace trine
