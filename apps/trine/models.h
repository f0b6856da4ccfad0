// From a command's MODEL argument to a path. Thread rule: main thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/trine/command.h"
#include "base/error.h"
#include "hub/store.h"

namespace trine::app {

// Rows that open_store() reads; every command with a MODEL takes them.
inline constexpr std::string_view kStoreOptions[] = {"home", "catalogue"};

// `own` with kStoreOptions appended, for Command::options.
std::vector<std::string_view> with_store_options(std::vector<std::string_view> own);

Result<hub::Store> open_store(const options::Settings& settings);

// The .gguf file or the directory that `model` names: a stored model, a pulled hf: reference or a
// local path. Errors: not_found saying how to get it.
Result<std::string> model_path(const options::Settings& settings, std::string_view model);

}  // namespace trine::app
