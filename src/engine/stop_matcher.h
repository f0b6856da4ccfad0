// Finds stop strings in text that arrives in pieces, and holds back what might become one.
//
// The result does not depend on how the text is cut into pieces: the stop string that is completed
// first wins, and among those completed by the same byte the longest. Text is released as soon as
// no stop string can begin in it any more. Thread rule: belongs to one sequence of the engine
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trine {

class StopMatcher {
 public:
  StopMatcher() = default;
  // No stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop);

  // Takes the next piece and appends what may be shown to `out`. True when a stop string was
  // completed: the text up to it (or through it with include_stop) was released, the rest is
  // dropped, matched() names it.
  bool push(std::string_view piece, std::string& out);
  // Releases what is held back; the text ended without a stop string.
  void finish(std::string& out);

  std::string_view matched() const { return matched_; }

  std::string_view held() const { return held_; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_ = false;
  std::string held_;
  std::string matched_;
};

}  // namespace trine
