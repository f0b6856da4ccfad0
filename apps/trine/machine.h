// What this machine is, for reports. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace trine::app {

std::string cpu_name();

// The fingerprint of a benchmark report: CPU, instruction-set level, cores, memory, system,
// version.
nlohmann::ordered_json machine_json();
std::string machine_line();

// Bytes of all last-level caches, as the system tells; 0: it does not.
std::int64_t cache_bytes();

}  // namespace trine::app
