// What the control groups of this process (containers, systemd slices) let it have: a container
// with two CPUs' worth of time on a machine of 64 must not start 64 threads.
// Reads version 2 and version 1 of the interface (kernel: Documentation/admin-guide/cgroup-v2.rst,
// cgroup-v1/memory.rst, scheduler/sched-bwc.rst). A limit of a parent counts too. Errors: none;
// what cannot be read is no limit. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace trine {

struct GroupLimits {
  std::optional<double> cpus;               // CPU time per time; above 0
  std::optional<std::int64_t> memory_left;  // bytes until the tightest limit
};

// `membership` is the text of /proc/self/cgroup, `mount` where the hierarchies are mounted.
GroupLimits group_limits(std::string_view membership, const std::filesystem::path& mount);

// Of this process, now.
GroupLimits group_limits();

}  // namespace trine
