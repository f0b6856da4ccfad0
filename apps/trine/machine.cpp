#include "apps/trine/machine.h"

#include <fstream>

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

}  // namespace trine::app
