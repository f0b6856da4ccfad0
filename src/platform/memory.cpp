#include "platform/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <unistd.h>

namespace trine {
namespace {

// The number in a one-line file of the control group, or `missing`: "max" means no limit.
std::int64_t group_value(const char* path, std::int64_t missing) {
  std::ifstream in(path);
  std::int64_t value = 0;
  return in >> value ? value : missing;
}

}  // namespace

std::int64_t physical_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? std::int64_t{pages} * size : 0;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = physical_memory_bytes();
  std::ifstream in("/proc/meminfo");
  for (std::string word; in >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "MemAvailable:" && in >> kibibytes) {
      available = kibibytes * 1024;
      break;
    }
  }
  const std::int64_t limit = group_value("/sys/fs/cgroup/memory.max", available);
  const std::int64_t used = group_value("/sys/fs/cgroup/memory.current", 0);
  return limit == available ? available : std::clamp<std::int64_t>(limit - used, 0, available);
}

}  // namespace trine
