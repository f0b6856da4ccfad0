#include "platform/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <unistd.h>

#include "platform/control_group.h"

namespace trine {

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
  return std::min(available, group_limits().memory_left.value_or(available));
}

}  // namespace trine
