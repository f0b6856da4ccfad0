// Shell completion scripts, made from the list of commands and the option table. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::app {

// `shell` is bash, zsh or fish. Errors: invalid_argument for another.
Result<std::string> completion_script(std::string_view shell);

}  // namespace trine::app
