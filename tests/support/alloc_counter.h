// Counts heap allocations of the whole program. Link alloc_counter.cpp into the test that uses it.
#pragma once

#include <cstdint>

namespace trine::test {

// Calls of operator new on any thread since the program started.
std::int64_t num_allocations();

}  // namespace trine::test
