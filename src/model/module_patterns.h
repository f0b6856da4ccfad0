// Patterns over module names, as quantization configurations write them. Untrusted: each is
// compiled once, under the limits of text/regex.h. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "text/regex.h"

namespace trine {

class ModulePatterns {
 public:
  // Whether the pattern matches from the beginning of the name, not necessarily to its end
  // (Python's re.match). Errors: those of text::Regex.
  Result<bool> matches(const std::string& pattern, std::string_view module);

 private:
  std::unordered_map<std::string, std::shared_ptr<const text::Regex>> compiled_;
};

}  // namespace trine
