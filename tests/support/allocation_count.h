// How often this program called operator new. Linking allocation_count.cpp replaces it by a
// counting one.
#pragma once

namespace trine::testing {

long num_allocations();

}  // namespace trine::testing
