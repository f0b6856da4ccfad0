// --json-schema, --grammar, --regex, --choice, --json-object: what an answer must match.
// Thread rule: main thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/compile.h"
#include "options/settings.h"

namespace trine::app {

// Rows of commands that answer in a structure.
std::vector<std::string_view> structure_options();

// The automaton that the settings ask for; null: any text. Errors: invalid_argument when two of the
// options are given, those of reading the file and of the grammar, each naming the option.
Result<grammar::AutomatonPtr> asked_structure(const options::Settings& settings);

}  // namespace trine::app
