// Rows of the option table that have a file of their own. Thread rule: constants.
#pragma once

#include <span>

#include "options/option.h"

namespace trine::options {

std::span<const Option> quantize_rows();
std::span<const Option> eval_rows();

}  // namespace trine::options
