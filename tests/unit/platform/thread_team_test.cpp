#include "platform/thread_team.h"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "platform/control_group.h"

namespace trine {
namespace {

std::unique_ptr<ThreadTeam> make_team(int num_threads) {
  auto team = ThreadTeam::create(num_threads);
  EXPECT_TRUE(team.has_value());
  return std::move(team).value();
}

TEST(ThreadTeam, EveryMemberRunsOnceAndTheCallerIsMemberZero) {
  for (const int num_threads : {1, 2, 3, 5, 9}) {
    const auto team = make_team(num_threads);
    ASSERT_EQ(team->num_threads(), num_threads);
    // Plain ints: the team itself must order the members' writes before the caller's reads.
    std::vector<int> calls(static_cast<std::size_t>(num_threads), 0);
    const auto caller = std::this_thread::get_id();
    bool caller_is_zero = false;
    for (int round = 1; round <= 300; ++round) {
      team->run([&](int thread_idx) {
        ++calls[static_cast<std::size_t>(thread_idx)];
        if (thread_idx == 0) {
          caller_is_zero = std::this_thread::get_id() == caller;
        }
      });
      for (const int count : calls) {
        ASSERT_EQ(count, round);
      }
    }
    EXPECT_TRUE(caller_is_zero);
  }
}

TEST(ThreadTeam, WorkWrittenBeforeARunIsSeenByTheMembers) {
  const auto team = make_team(4);
  std::vector<std::int64_t> data(1000);
  std::vector<std::int64_t> sums(4);
  for (std::int64_t round = 0; round < 100; ++round) {
    for (auto& value : data) {
      value = round;
    }
    team->run([&](int thread_idx) {
      const auto [begin, end] =
          split_range(static_cast<std::int64_t>(data.size()), 16, thread_idx, 4);
      std::int64_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        sum += data[static_cast<std::size_t>(i)];
      }
      sums[static_cast<std::size_t>(thread_idx)] = sum;
    });
    EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], 1000 * round);
  }
}

TEST(ThreadTeam, SleepersAreWoken) {
  const auto team = make_team(3);
  for (int round = 0; round < 5; ++round) {
    // Longer than any spin: members sleep before the run, the caller sleeps during it.
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::vector<int> done(3, 0);
    team->run([&](int thread_idx) {
      if (thread_idx == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      done[static_cast<std::size_t>(thread_idx)] = 1;
    });
    EXPECT_EQ(done, (std::vector<int>{1, 1, 1}));
  }
}

TEST(ThreadTeam, TeamsThatNeverRanAndManyTeamsStop) {
  for (int i = 0; i < 20; ++i) {
    const auto a = make_team(3);
    const auto b = make_team(2);
    int count = 0;
    b->run([&](int thread_idx) {
      if (thread_idx == 1) {
        ++count;
      }
    });
    EXPECT_EQ(count, 1);
  }
}

TEST(ThreadTeam, DifferentThreadsMayCallInTurn) {
  const auto team = make_team(2);
  int total = 0;
  for (int i = 0; i < 4; ++i) {
    std::thread caller([&] {
      team->run([&](int thread_idx) {
        if (thread_idx == 1) {
          ++total;
        }
      });
    });
    caller.join();
  }
  EXPECT_EQ(total, 4);
}

TEST(ThreadTeam, BadCountsAreRefused) {
  EXPECT_EQ(ThreadTeam::create(-1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ThreadTeam::create(1 << 20).error().code, ErrorCode::kInvalidArgument);
}

TEST(ThreadTeam, ZeroMeansOnePerUsableCpu) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_GE(num_usable_cpus(), 1);
  EXPECT_LE(num_usable_cpus(), CPU_COUNT(&set));
  if (!group_limits().cpus) {
    EXPECT_EQ(num_usable_cpus(), CPU_COUNT(&set));
  }
  EXPECT_EQ(make_team(0)->num_threads(), num_usable_cpus());
}

TEST(ThreadTeam, TheCallersAffinityIsLeftAlone) {
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const auto team = make_team(0);
  team->run([](int) {});
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// CPUs that each member may run on.
std::vector<int> cpus_of_members(int num_threads) {
  const auto team = make_team(num_threads);
  std::vector<int> counts(static_cast<std::size_t>(num_threads), 0);
  team->run([&](int thread_idx) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
      counts[static_cast<std::size_t>(thread_idx)] = CPU_COUNT(&set);
    }
  });
  return counts;
}

TEST(ThreadTeam, WorkersArePinnedApartWhenTheyTakeEveryCpu) {
  const int num_cpus = num_usable_cpus();
  if (num_cpus < 2) {
    GTEST_SKIP() << "one CPU";
  }
  const auto all = cpus_of_members(num_cpus);
  EXPECT_EQ(all[0], num_cpus);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i], 1);
  }
  for (const int num_threads : {num_cpus - 1, num_cpus + 1}) {
    for (const int count : cpus_of_members(num_threads)) {
      EXPECT_EQ(count, num_cpus);
    }
  }
}

TEST(SplitRange, PartsCoverTheRangeInOrderAndStartAtGrains) {
  for (const std::int64_t total : {0, 1, 15, 16, 17, 100, 1000}) {
    for (const std::int64_t grain : {1, 4, 16}) {
      for (const int num_threads : {1, 2, 3, 7, 40}) {
        std::int64_t at = 0;
        for (int i = 0; i < num_threads; ++i) {
          const auto [begin, end] = split_range(total, grain, i, num_threads);
          EXPECT_EQ(begin, at);
          EXPECT_LE(begin, end);
          EXPECT_TRUE(begin % grain == 0 || begin == total);
          at = end;
        }
        EXPECT_EQ(at, total);
      }
    }
  }
}

}  // namespace
}  // namespace trine
