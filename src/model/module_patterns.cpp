#include "model/module_patterns.h"

#include <vector>

namespace trine {

Result<bool> ModulePatterns::matches(const std::string& pattern, std::string_view module) {
  auto it = compiled_.find(pattern);
  if (it == compiled_.end()) {
    TRINE_TRY_ASSIGN(auto regex, text::Regex::compile(pattern));
    it = compiled_.emplace(pattern, std::move(regex)).first;
  }
  TRINE_TRY_ASSIGN(const std::vector<text::Match> found, it->second->find_all(module));
  return !found.empty() && found.front().begin == 0;
}

}  // namespace trine
