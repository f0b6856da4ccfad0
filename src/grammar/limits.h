// Every budget of structured output, in one place (docs/structured-output.md lists them with
// reasons). All are counts, never clocks, so that a compilation is accepted or refused
// everywhere alike. What masks remember of each other saves work of later ones, never adds any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trine::grammar {

inline constexpr std::size_t kMaxSourceBytes = std::size_t{256}
                                               << 10;  // grammar, regex, schema text
inline constexpr int kMaxNesting = 32;                 // groups of a notation, levels of a schema
inline constexpr std::uint32_t kMaxRepeat = 10000;     // m and n of {m,n}, minLength, maxItems, ...
inline constexpr std::uint32_t kMaxStates = 1u << 18;  // automaton states of a whole grammar
inline constexpr std::uint32_t kMaxNodes = 1u << 19;   // operations of a compilation: nodes made
inline constexpr int kMaxNodeDepth = 256;              // depth of the expression tree
inline constexpr std::uint32_t kMaxStackDepth = 128;   // rules open at once while matching
inline constexpr std::size_t kMaxConfigs = 4096;       // parallel readings of one prefix
inline constexpr std::size_t kMaxStackNodes = std::size_t{1}
                                              << 18;     // shared stack cells of a matcher
inline constexpr std::uint64_t kMaxStepWork = 1u << 17;  // closure operations of one byte
inline constexpr std::uint64_t kMaxMaskWork = 1u << 24;  // closure operations of one mask
inline constexpr std::size_t kMaskCacheBytes = std::size_t{16} << 20;  // per compiled grammar
inline constexpr std::size_t kMaxRollback = 256;  // tokens that rollback() can take back

}  // namespace trine::grammar
