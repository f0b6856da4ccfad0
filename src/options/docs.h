// docs/options.md, made from the table. Thread rule: pure function.
#pragma once

#include <string>

namespace trine::options {

std::string options_markdown();

}  // namespace trine::options
