#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  for (const std::string& stop : stops_) {
    TRINE_CHECK(!stop.empty());
  }
}

bool StopMatcher::push(std::string_view piece, std::string& out) {
  if (stops_.empty()) {
    out += piece;
    return false;
  }
  const std::size_t known = held_.size();  // no stop string ends in here: it would have been found
  held_ += piece;
  std::size_t best_end = std::string::npos;
  std::size_t best_begin = 0;
  const std::string* best = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t from = known + 1 > stop.size() ? known + 1 - stop.size() : 0;
    const std::size_t begin = held_.find(stop, from);
    if (begin == std::string::npos) {
      continue;
    }
    const std::size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
      best = &stop;
    }
  }
  if (best != nullptr) {
    matched_ = *best;
    out.append(held_, 0, include_stop_ ? best_end : best_begin);
    held_.clear();
    return true;
  }
  // Keep the longest end of the text that begins a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) {
        keep = size;
      }
    }
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace trine
