// Where a text stands in the automaton: the set of (state, stack) readings of the bytes so far, and
// one byte's step. Stacks are shared cells (a graph-structured stack: equal stacks are one cell),
// so a set is a list of number pairs.
//
// Errors: exhausted, naming budget and limit; a failed step leaves the caller's set alone. A step
// allocates only while its buffers grow. Thread rule: a Stepper belongs to one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"

namespace trine::grammar {

struct Config {
  std::uint32_t state = 0;
  std::uint32_t stack = 0;  // cell of the Stepper's pool; 0: empty

  friend bool operator==(const Config&, const Config&) = default;
};

// The state of the one reading that has reached the end of the text.
inline constexpr std::uint32_t kAcceptState = 0xffffffffu;

// Names a set independently of the pool it lives in (128 bits of the contents of states and
// stacks).
using Fingerprint = std::array<std::uint64_t, 2>;

class Stepper {
 public:
  explicit Stepper(std::shared_ptr<const Automaton> automaton);

  // Appends the set before the first byte to `out`.
  Status start(std::vector<Config>& out);
  // Appends the set after `byte` to `out`; nothing when the byte is not allowed. `from` may not
  // point into `out`.
  Status step(std::span<const Config> from, std::uint8_t byte, std::vector<Config>& out);
  // The same set with this pool's cells. Errors as a step.
  Status import(const Stepper& other, std::span<const Config> set, std::vector<Config>& out);

  Fingerprint fingerprint(std::span<const Config> set) const;
  // The only byte that continues the set, or -1 when there are several, none, or the text may end
  // here.
  int only_byte(std::span<const Config> set) const;

  // Closure operations since the Stepper was made.
  std::uint64_t work() const { return work_; }

  std::size_t num_cells() const { return cells_.size(); }

  void clear();

  const Automaton& automaton() const { return *automaton_; }

 private:
  struct Cell {
    std::uint32_t back = 0;  // state to come back to
    std::uint32_t parent = 0;
    std::uint32_t depth = 0;
    Fingerprint hash{};
  };

  // The cell (back, parent), made when there is none; 0 when the pool is full.
  std::uint32_t push(std::uint32_t back, std::uint32_t parent);
  void grow_cells();
  bool visit(std::uint32_t state, std::uint32_t stack);
  void enqueue(std::uint32_t state, std::uint32_t stack);
  // Follows everything that takes no byte from the queued readings.
  Status close(std::vector<Config>& out);

  std::shared_ptr<const Automaton> automaton_;
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> cell_table_;  // open addressing; 0: free

  struct Visited {
    std::uint64_t key = 0;
    std::uint64_t stamp = 0;
  };

  std::vector<Visited> visited_;
  std::size_t num_visited_ = 0;
  std::uint64_t stamp_ = 0;
  std::vector<Config> queue_;
  std::uint64_t work_ = 0;
};

// Whether the text may end here.
bool accepts(std::span<const Config> set);

}  // namespace trine::grammar
