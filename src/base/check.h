// TRINE_CHECK: a condition that only a bug can break. Prints the condition and aborts. Never
// reachable from input: a fuzzer that lands here has found a missing Result. TRINE_DCHECK is the
// same in the dev and sanitizer presets and nothing in release.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace trine::detail {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "trine: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace trine::detail

#define TRINE_CHECK(condition)                                       \
  do {                                                               \
    if (!(condition)) [[unlikely]] {                                 \
      ::trine::detail::check_failed(#condition, __FILE__, __LINE__); \
    }                                                                \
  } while (false)

#ifdef TRINE_DCHECK_ENABLED
#define TRINE_DCHECK(condition) TRINE_CHECK(condition)
#else
#define TRINE_DCHECK(condition) \
  do {                          \
  } while (false)
#endif
