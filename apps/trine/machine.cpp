#include "apps/trine/machine.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>

#include "apps/trine/help.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_team.h"

namespace trine::app {

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

nlohmann::ordered_json machine_json() {
  utsname system = {};
  ::uname(&system);
  return {{"cpu", cpu_name()},
          {"isa", isa_level_name(isa_level())},
          {"usable_cpus", num_usable_cpus()},
          {"memory_bytes", physical_memory_bytes()},
          {"system", fmt::format("{} {}", system.sysname, system.release)},
          {"version", kVersion}};
}

std::string machine_line() {
  return fmt::format("{}, {} kernels, {} usable CPUs, {:.1f} GiB, trine {}", cpu_name(),
                     isa_level_name(isa_level()), num_usable_cpus(),
                     static_cast<double>(physical_memory_bytes()) / (1024.0 * 1024.0 * 1024.0),
                     kVersion);
}

std::int64_t cache_bytes() {
  namespace fs = std::filesystem;
  const auto line_of = [](const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
  };
  std::map<std::string, std::int64_t> last_levels;  // by the CPUs that share one
  for (int cpu = 0;; ++cpu) {
    const fs::path folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache", cpu);
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
      break;
    }
    int highest = 0;
    std::string sharers;
    std::int64_t kilobytes = 0;
    for (int index = 0; fs::is_directory(folder / fmt::format("index{}", index), error); ++index) {
      const fs::path one = folder / fmt::format("index{}", index);
      const std::string level = line_of(one / "level");
      const std::string size = line_of(one / "size");  // "32768K"
      std::int64_t value = 0;
      std::from_chars(size.data(), size.data() + size.size(), value);
      if (!level.empty() && level[0] - '0' >= highest) {
        highest = level[0] - '0';
        sharers = line_of(one / "shared_cpu_list");
        kilobytes = value;
      }
    }
    last_levels[sharers] = kilobytes;
  }
  std::int64_t total = 0;
  for (const auto& [sharers, kilobytes] : last_levels) {
    total += kilobytes * 1024;
  }
  return total;
}

}  // namespace trine::app
