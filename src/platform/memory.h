// How much memory there is. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace trine {

// Of the machine.
std::int64_t physical_memory_bytes();

// What can be had now without swapping: free memory and page cache, and no more than the control
// group of this process may have (containers).
std::int64_t available_memory_bytes();

}  // namespace trine
